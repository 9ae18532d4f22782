"""What comes back over HTTP: an answer as a value, one typed error for what is not good, and lists page by page.

:meth:`Answer.raise_for_status` judges an answer: a 2xx or 304 is good. :func:`explain` takes what httpx raises. The
text of an error names no secret, and says what to do when the service itself does not.

:func:`read_page` reads one page of a list of any server, :class:`PageWalk` goes from page to page, and
:func:`read_commands` makes a device's list of commands out of all of them.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx

from agent.errors import (
    Conflict,
    ErrorAnswer,
    Forbidden,
    InvalidMessage,
    NotFound,
    RateLimited,
    Refused,
    ServerFault,
    ServiceError,
    StillRunning,
    TransportError,
    Unanswered,
    Unauthorized,
    UnexpectedAnswer,
)
from agent.wire.models import CommandRecord
from agent.wire.network import certificate_fault, origin_of
from agent.wire.secret import redact
from agent.wire.server import Dialect

FAULTS: Final = (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict, httpx.StreamError, OSError, UnicodeError)
"""Everything that a request can raise: httpx's own, and a host name that cannot be encoded (a UnicodeError)."""
DECIDED: Final = frozenset({*range(200, 300), *range(400, 500), 501} - {401, 408, 425, 429})
"""Statuses that say something of the path that was asked, whoever sends them."""
KEY_IN_USE: Final = "idempotency_key_in_use"
"""The service's word for a request whose ``Idempotency-Key`` belongs to one that still runs."""

_NOT_MODIFIED: Final = 304
_RETRY_MAX_S: Final = 86_400.0
_TEXT_MAX: Final = 300
# A proxy in front of the service says these in HTML, and they mean what they say. Any other 4xx in HTML may be a
# captive portal's, so nothing is dropped on its account unless the page is known to be the service's own.
_TRUSTED_IN_HTML: Final = frozenset({401, 413, 414, 429, 431})
_CLASSES: Final[Mapping[int, type[ErrorAnswer]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: RateLimited,
}
_HINTS: Final[Mapping[int, str]] = {
    401: "the service did not accept the credentials: check api_key and secret_key",
    404: "the service does not know this path or resource: check base_url and the id",
    413: "the request is larger than the service takes",
    429: "the request quota of this key is used up for this minute",
    511: "the network wants a sign-in before it lets anything through",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, good or not.

    Attributes:
        content: the decoded body.
        source: who answered, for error texts: the origin, or the path asked.
    """

    status: int
    headers: httpx.Headers
    content: bytes
    source: str

    @property
    def is_unchanged(self) -> bool:
        """304: what the ``If-None-Match`` named is still the newest."""
        return self.status == _NOT_MODIFIED

    @property
    def is_page(self) -> bool:
        """The body is a web page; frameworks add ``text/html`` also to an empty body, which is none."""
        text = self.content[:200].lstrip(b"\xef\xbb\xbf \t\r\n")
        return bool(text) and ("html" in self.headers.get("content-type", "").lower() or text.startswith(b"<"))

    @property
    def server_time(self) -> float | None:
        """The service's clock (``Date``), seconds since the epoch, whole seconds."""
        return _http_date(self.headers.get("date"))

    @property
    def etag(self) -> str | None:
        """The entity tag, if it can be sent back."""
        tag = self.headers.get("etag")
        return tag if tag and tag.isascii() and tag.isprintable() else None

    def json_or_none(self) -> Any:
        """As :meth:`json`; None also when the body is something else, where only the status counts."""
        try:
            return self.json()
        except UnexpectedAnswer:
            return None

    def json(self) -> Any:
        """The body as a JSON value; None when there is no body.

        Tolerant where :func:`agent.wire.encoding.parse_json` is not, so that one bad record hides no other.

        Raises:
            UnexpectedAnswer: truncated, or not JSON.
        """
        if not self.content.strip():
            return None
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError) as error:
            raise UnexpectedAnswer(
                f"{self.source} answered {self.status} with truncated or broken JSON ({one_line(str(error))}): "
                "the connection broke off, or something between here and the service changes its answers",
                self.status,
            ) from None

    def raise_for_status(self, *, page_is_meant: bool = False) -> None:
        """Return on a 2xx or 304 that is not a foreign web page; raise the one error that says what it is otherwise.

        Args:
            page_is_meant: a web page is the service's own, so that its status means what it says.

        Raises:
            UnexpectedAnswer: a redirect, a foreign web page, a status that is none.
            ErrorAnswer: the class that belongs to the status.
        """
        status, source, is_page = self.status, self.source, self.is_page
        if self.is_unchanged or (200 <= status < 300 and (page_is_meant or not is_page)):
            return
        if 300 <= status < 400:
            try:
                host = httpx.URL(self.headers.get("location", "")).host or "itself"
            except httpx.InvalidURL:
                host = "an unreadable address"
            raise UnexpectedAnswer(
                f"{source} redirects ({status}) to {one_line(host)}, which is not followed, since it would get the "
                "keys too: a captive portal, or set base_url to the final address",
                status,
            )
        if not 200 <= status < 600:
            raise UnexpectedAnswer(f"{source} answered with status {status}, which means nothing here", status)
        if is_page and status < 500 and not page_is_meant and status not in _TRUSTED_IN_HTML:
            raise UnexpectedAnswer(portal_text(source, status), status)
        error, message = ("", "") if is_page else _read_error(self.content)
        if not error and not message:
            message = _HINTS.get(status, "no error body: the service or a proxy in front of it failed")
        kind = _CLASSES.get(status, ServerFault if status >= 500 else Refused)
        if kind is Conflict and error == KEY_IN_USE:
            # Not a word about the request: what its first attempt comes to is not known yet.
            kind = StillRunning
        raise kind(
            status,
            one_line(redact(error)),
            one_line(redact(message)),
            retry_after_s=read_retry_after(self.headers),
            server_time=self.server_time,
        )


def explain(exc: Exception, host: str, waited_s: float) -> TransportError:
    """The error to raise instead of ``exc``. It does not hold ``exc``, which holds the request and so the keys.

    Args:
        exc: one of :data:`FAULTS`.
        host: the origin that was asked.
        waited_s: how long an answer was waited for, seconds.
    """
    refused = _refused_certificate(exc)
    if refused is not None:
        fault = certificate_fault(refused, "base_url", "service.ca_file (fleet-simulator: --ca-file)")
        return TransportError(f"the certificate of {host} is refused: {fault}")
    detail = f" ({one_line(redact(str(exc)))})" if str(exc) else ""
    match exc:
        case httpx.ConnectTimeout() | httpx.PoolTimeout():
            text = f"cannot reach {host}: no connection in time: check the network and base_url"
        case httpx.TimeoutException():
            return Unanswered(f"{host} did not answer within {waited_s:g} s: slow network or service")
        case httpx.ConnectError():
            text = f"cannot connect to {host}{detail}: check that the service runs, the network and base_url"
        case httpx.LocalProtocolError():  # its text may quote a header
            text = f"the request to {host} is not valid HTTP: check the credentials for stray characters"
        case httpx.ProtocolError() | httpx.NetworkError():
            return Unanswered(f"{host} broke off the connection{detail}: look at the service and the proxy in between")
        case _:
            text = f"no answer from {host}{detail}: check the network and base_url"
    return TransportError(text)


def portal_text(source: str, status: int) -> str:
    """The sentence for a web page that is not the service's."""
    return (
        f"{source} answered {status} with a web page instead of JSON: the network wants a sign-in (captive portal), "
        "or base_url is not the service's address; sign in to the network, or correct base_url"
    )


def read_retry_after(headers: httpx.Headers) -> float | None:
    """How long the service asks us to wait, seconds, at most a day: ``Retry-After`` in both forms (RFC 9110, section
    10.2.3).

    A date is compared with the answer's own ``Date`` and counts for nothing without it: the clock of this machine may
    be wrong.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():  # headers are Latin-1 text, where "²" counts as a digit, too
        return min(float(value[:10]), _RETRY_MAX_S)
    until, now = _http_date(value), _http_date(headers.get("date"))
    if until is not None and now is not None:
        return min(max(until - now, 0.0), _RETRY_MAX_S)
    return None


def one_line(text: str) -> str:
    """The text on one line, printable, and not longer than a person reads."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * _TEXT_MAX]).split())
    return line if len(line) <= _TEXT_MAX else f"{line[:_TEXT_MAX]}..."


def _http_date(value: str | None) -> float | None:
    """A header's date (RFC 9110, section 5.6.7) as seconds since the epoch; None when it cannot be read."""
    try:
        return parsedate_to_datetime(value or "").timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _read_error(body: bytes) -> tuple[str, str]:
    """``error`` and the sentence of an error body (specification, "Errors"); other servers nest
    (``{"error": {"code", "message"}}``) or say ``detail``. Empty texts for what it does not say.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return "", ""
    if not isinstance(value, dict):
        return "", ""
    nested = value.get("error")
    inner = nested if isinstance(nested, dict) else {}
    error = _first_text(inner, "type", "code") or _first_text(value, "error")
    message = _first_text(inner, "message") or _first_text(value, "message", "detail", "error_description")
    details = value.get("details")
    listed = [one for one in details if isinstance(one, dict)] if isinstance(details, list) else []
    pairs = [(_first_text(one, "field"), _first_text(one, "issue")) for one in listed]
    # What the message does not say itself.
    unsaid = "; ".join(f"{field}: {issue}" for field, issue in pairs if not (issue in message and field in message))
    return error, f"{message} ({unsaid})" if message and unsaid else message or unsaid


def _first_text(members: Mapping[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := members.get(name), str) and value), "")


def _refused_certificate(exc: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Why the server's certificate was not accepted, out of what ``exc`` was raised for; None for another fault."""
    while exc is not None and not isinstance(exc, ssl.SSLCertVerificationError):
        exc = exc.__cause__ or exc.__context__
    return exc


# --- lists ------------------------------------------------------------------------------------------------------------
# An array, or an object that holds one; by cursor, link, page number or offset. Nothing is assumed of a server: a
# parameter is sent for the next page only when the answer has a member that belongs to it, such as ``next_cursor`` to
# ``cursor`` and ``offset`` to ``offset``. Ours answers ``{"data": [...], "next_cursor": text or null, "has_more":
# bool}`` with ``Link: rel="next"``.

Params = Mapping[str, str | int]

_PAGES_MAX: Final = 100_000
_EMPTY_PAGES_MAX: Final = 100
_DEPTH_MAX: Final = 3
_ENVELOPES: Final = ("data", "items", "results", "result", "records", "response", "content", "value", "_embedded")
_NOT_ITEMS: Final = frozenset({"errors", "error", "warnings", "details", "messages", "links", "_links", "meta", "tags"})
_PAGING: Final = ("meta", "pagination", "paging", "page", "links", "_links")
"""Members that hold objects which speak about paging."""
_CURSORS: Final[Mapping[str, str]] = {
    "next_cursor": "cursor",
    "nextCursor": "cursor",
    "next_page_token": "page_token",
    "nextPageToken": "pageToken",
    "next": "cursor",
}
"""Member -> the parameter that takes its value, where that is no address."""
_MORE: Final = ("has_more", "hasMore", "has_next", "hasNext")
_NUMBERS: Final = ("page", "current_page", "currentPage")
_LAST_PAGES: Final = ("total_pages", "totalPages", "last_page")
_SIZES: Final = ("per_page", "perPage", "page_size", "pageSize", "limit")
_OFFSETS: Final = ("offset", "skip")
_TOTALS: Final = ("total", "total_count", "totalCount", "count")
_LINK: Final = re.compile(r'<([^>]*)>((?:[^,"]|"[^"]*")*)')
_REL: Final = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^\s;,]+))', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list.

    Attributes:
        has_more: whether there is another one; None when the answer does not say.
        total: how many items the whole list has; None when the answer does not say.
        following: parameter and value that ask for the next page: a cursor as it came, else the number of the page or
            of its first item; None when there is none.
        next_url: where the body says the next page is; as it came.
        place: as ``following``, of this page; None where the next one is asked for by a cursor.
    """

    items: list[Any]
    has_more: bool | None = None
    total: int | None = None
    following: tuple[str, str | int] | None = None
    next_url: str | None = None
    place: tuple[str, int] | None = None


# --- one answer -------------------------------------------------------------------------------------------------------


def read_page(value: object, source: str = "the service", word: str = "") -> Page:
    """The list in a JSON value: an array, or an object that has it under a usual name, or under any as its only array.

    Args:
        value: the JSON value.
        source: who answered.
        word: the name that the list most likely has, such as ``commands``.

    Raises:
        UnexpectedAnswer: there is no list, or more than one and none of the known names.
    """
    if isinstance(value, list):
        return Page(value)
    if not isinstance(value, dict):
        kind = "nothing" if value is None else type(value).__name__
        raise UnexpectedAnswer(f"{source} answered {kind} where a list belongs: check base_url")
    around: list[dict[str, Any]] = []
    items = _find_items(value, word, around)
    if items is None:
        count = sum(isinstance(inner, list) for inner in value.values())
        raise UnexpectedAnswer(
            f"{source} answered an object with {count} arrays where one list belongs: check base_url"
        )
    paging = (inner for outer in around for name in _PAGING if isinstance(inner := outer.get(name), dict))
    return _with_paging(items, [*around, *paging])


def _find_items(value: dict[str, Any], word: str, around: list[dict[str, Any]]) -> list[Any] | None:
    """The items in an object; ``around`` gets the objects that lie around them."""
    if len(around) > _DEPTH_MAX:
        return None
    around.append(value)
    known = [value[name] for name in (word, *_ENVELOPES) if name in value]
    for inner in known:
        if isinstance(inner, list):
            return inner
    for inner in known:
        if isinstance(inner, dict):
            found = _find_items(inner, word, around)
            if found is not None:
                return found
    lists = [inner for name, inner in value.items() if isinstance(inner, list) and name not in _NOT_ITEMS]
    if len(lists) == 1:
        return lists[0]
    return [] if None in known and not lists else None  # {"data": null}


def _with_paging(items: list[Any], scopes: list[dict[str, Any]]) -> Page:
    more = next((scope[name] for name in _MORE for scope in scopes if isinstance(scope.get(name), bool)), None)
    total = _find_count(scopes, _TOTALS)
    cursor, url = _find_cursor(scopes)
    if cursor is not None:
        return Page(items, more, total, cursor)
    number, last = _find_count(scopes, _NUMBERS), _find_count(scopes, _LAST_PAGES)
    place, following, has_following = None, None, bool(more)
    if number is not None:
        size = _find_count(scopes, _SIZES)
        if last is None and total is not None and size:
            last = -(-total // size)
        place, following = ("page", number), ("page", number + 1)
        has_following = has_following or (last is not None and number < last)
    else:
        for name in _OFFSETS:
            first = _find_count(scopes, (name,))
            if first is not None:
                place, following = (name, first), (name, first + len(items))
                has_following = has_following or (total is not None and following[1] < total)
                break
    return Page(items, more, total, following if items and has_following else None, url, place)


def _find_cursor(scopes: list[dict[str, Any]]) -> tuple[tuple[str, str] | None, str | None]:
    """What asks for the next page: parameter and value, or an address."""
    for name, param in _CURSORS.items():
        for scope in scopes:
            value = scope.get(name)
            if isinstance(value, dict):
                value = value.get("href")
            if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
                text = str(value)
                is_url = "?" in text or text.startswith(("/", "http://", "https://"))
                return (None, text) if is_url else ((param, text), None)
    return None, None


def _find_count(scopes: list[dict[str, Any]], names: tuple[str, ...]) -> int | None:
    """A whole number of 0 or more."""
    for name in names:
        for scope in scopes:
            value = scope.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                return value
    return None


# --- from page to page ------------------------------------------------------------------------------------------------


class PageWalk:
    """The way through the pages of a list, for whoever makes the requests: ask for ``target`` with ``params``, hand the
    answer to :meth:`take`, and go on until ``done``.

    Args:
        path: of the list.
        params: query parameters of each page that a cursor, a page number or an offset asks for.
        url: the absolute URL of ``path``, which links are resolved against.
        pages_max: how many pages are read.

    Attributes:
        target: path, or absolute URL of the same origin.
        params: query parameters to add to it.
        done: there is no further page.
    """

    def __init__(self, path: str, params: Params, url: httpx.URL, *, pages_max: int = _PAGES_MAX) -> None:
        self._path = path
        self._word = path.rpartition("/")[2]
        self._query = params
        self._url = url
        self._pages_left = pages_max
        self._seen: set[str] = set()
        self._empty_pages = 0
        self._expected: tuple[str, str | int] | None = None
        self.target = path
        self.params: Params = dict(params)
        self.done = False

    def take(self, answer: Answer) -> Page:
        """The page in an answer; :meth:`proceed` is to be called before the next one is asked for.

        Raises:
            UnexpectedAnswer: no list, or another page than the one that was asked for.
        """
        if answer.is_unchanged:
            self.done = True
            return Page([])
        page = read_page(answer.json(), answer.source, self._word)
        if self._expected is not None and page.place is not None and page.place != self._expected:
            asked, got = (f"{name} {number}" for name, number in (self._expected, page.place))
            raise UnexpectedAnswer(f"{answer.source} answers {got} of this list where {asked} was asked for: stopped")
        return page

    def proceed(self, answer: Answer, page: Page) -> None:
        """Go on to the page after this one.

        Raises:
            UnexpectedAnswer: it was there before, there are 100 empty ones in a row or too many (it would never end),
                or the answer does not say how to get it.
        """
        if self.done:
            return
        self._empty_pages = 0 if page.items else self._empty_pages + 1
        self._pages_left -= 1
        is_cursor = page.following is not None and page.place is None
        is_last = page.has_more is False
        link = None if is_cursor or is_last else _next_link(answer, self._url, page.next_url)
        if link is not None:
            self.target, self.params, self._expected = str(link), {}, None
            mark = self.target
        elif page.following is not None and not is_last:
            name, value = page.following
            self.target, self.params = self._path, {**self._query, name: value}
            self._expected = None if is_cursor else page.following
            mark = f"{name}={value}"
        elif page.has_more:
            raise UnexpectedAnswer(f"{answer.source} says there is more of this list, and not how to get it")
        else:
            self.done = True
            return
        if mark in self._seen or self._empty_pages >= _EMPTY_PAGES_MAX:
            raise UnexpectedAnswer(f"{answer.source} repeats the same page of this list for ever: stopped")
        if self._pages_left <= 0:
            raise UnexpectedAnswer(f"{answer.source} has more pages of this list than are read: stopped")
        self._seen.add(mark)


def _next_link(answer: Answer, url: httpx.URL, in_body: str | None) -> httpx.URL | None:
    """Where ``Link: rel="next"`` (RFC 8288) points, or else the body, resolved against ``url``; None without either.

    Raises:
        UnexpectedAnswer: it points to another origin, or nowhere.
    """
    target = in_body
    for where, attributes in _LINK.findall(answer.headers.get("link", "")):
        if any("next" in (quoted or bare).lower().split() for quoted, bare in _REL.findall(attributes)):
            target = where
            break
    if target is None:
        return None
    try:
        link = url.join(target)
    except httpx.InvalidURL:
        raise UnexpectedAnswer(f"{answer.source} names a next page that is no address") from None
    if origin_of(link) != origin_of(url):
        raise UnexpectedAnswer(
            f"{answer.source} names a next page on another host, {link.host}, which is not followed, since it "
            "would get the keys too: look at the proxy in between, or the service's public address"
        )
    return link


# --- all pages of a device's commands ---------------------------------------------------------------------------------

ITEMS_MAX: Final = 20_000
"""So many commands of one list are read: half of them from its beginning, half from its end."""

_OVERLAP_MAX: Final = 50


@dataclass(slots=True)
class CommandList:
    """One answer to the listing of a device's commands.

    Attributes:
        records: every command that could be read, in the service's order.
        malformed: one sentence for each that could not; never its content.
        etag: the list's version, for the next conditional request; None when the service gives none.
        unchanged: 304, the list is the one that ``etag`` names; ``records`` is empty.
        omitted: so many commands at least were listed and not read, since there were too many: what is missing in
            ``records`` may be listed all the same.
        has_hidden: by its own count the list has more items, and the answer does not say how to get them.
        notes: what is odd about the list as a whole, kind -> one sentence with an example, to be said once per kind.
        incomplete: why pages after the first are missing; None when the list is whole. What was read counts all the
            same, since a server may hand each command out once: the caller stores it first and then takes this for
            the error of the call. What is not in ``records`` may still be on the list.
    """

    records: list[CommandRecord] = field(default_factory=list)
    malformed: list[str] = field(default_factory=list)
    etag: str | None = None
    unchanged: bool = False
    omitted: int = 0
    has_hidden: bool = False
    notes: dict[str, str] = field(default_factory=dict)
    incomplete: ServiceError | None = None

    @property
    def is_whole(self) -> bool:
        """What is not in ``records`` or ``malformed`` is not on the list."""
        return self.incomplete is None and not self.omitted and not self.has_hidden


def read_commands(pages: Iterator[tuple[Answer, Page]], dialect: Dialect, max_bytes: int) -> CommandList:
    """The commands of all pages, or of as many as are read.

    Args:
        pages: fetched when asked for.
        dialect: how this server's answers are read.
        max_bytes: no further page is asked for after so many.

    Raises:
        ServiceError: the first page did not come. One that is missing later is in ``incomplete``.
    """
    found = CommandList()
    page_count, count, size_bytes, total = 0, 0, 0, None
    occurrences: dict[str, int] = {}
    before: list[Any] = []
    try:
        for answer, page in pages:
            page_count += 1
            # With more than one page the first one's tag does not speak for the whole list.
            found.etag = answer.etag if page_count == 1 else None
            found.unchanged = answer.is_unchanged
            items = page.items
            if len(items) > ITEMS_MAX:
                items = [*items[: ITEMS_MAX // 2], *items[-ITEMS_MAX // 2 :]]
            # What ended the page before this one has only moved between the two requests.
            longest = min(len(before), len(items), _OVERLAP_MAX)
            again = next((n for n in range(longest, 0, -1) if before[-n:] == items[:n]), 0)
            for item in items[again:]:
                _read_command(item, found, occurrences, dialect)
            before = items
            count += len(items)
            found.omitted += len(page.items) - len(items)
            size_bytes += len(answer.content)
            total = page.total if page.total is not None else total
            if count >= ITEMS_MAX and page.has_more is not False:
                found.omitted = found.omitted or 1  # at least one more, for all that is known
                break
            if size_bytes > max_bytes and page.has_more is not False:
                raise UnexpectedAnswer(
                    f"{answer.source} lists more than {max_bytes} bytes of commands, and the rest is not read: "
                    "let the service drop old ones"
                )
    except ServiceError as error:
        if page_count == 0:
            raise
        found.incomplete, found.etag = error, None
    if found.omitted:
        found.notes["omitted"] = (
            f"of one list {count} commands were read, and {found.omitted} or more were not: they are lost where the "
            "server hands each command out once; let it list fewer at a time"
        )
    elif total is not None and count < total and found.incomplete is None:
        found.has_hidden = True
        found.notes["more_than_listed"] = (
            f"the list of commands has {total} items by its own count, lists {count}, and not how to get the others"
        )
    return found


def _read_command(item: Any, found: CommandList, occurrences: dict[str, int], dialect: Dialect) -> None:
    """Put a listed command, or why it cannot be read, into ``found``; ``occurrences`` counts equal ones without id."""
    members = item if isinstance(item, dict) else {}
    try:
        record = CommandRecord.receive(item, dialect)
    except InvalidMessage as exc:
        given_id = members.get("id", members.get("command_id"))
        place = f"item {len(found.records) + len(found.malformed)}"
        name = f"command {given_id[:64]!a}" if isinstance(given_id, str) and given_id else place
        found.malformed.append(f"{name} in the list of commands is skipped: {exc}")
        return
    if not record.id:
        first = record.stable_id()
        occurrence = occurrences.get(first, 0)
        occurrences[first] = occurrence + 1
        record = record.model_copy(update={"id": record.stable_id(occurrence)})
        found.notes.setdefault(
            "derived_ids",
            "commands come without an id, so one is derived from content and time, and results carry it: let the "
            "service list ids, or name the member that holds them in service.dialect.command_id",
        )
    found.records.append(record)
    for name in record.unreadable_times:
        consequence = "it is not run, since it may have expired" if name == "expires_at" else "it counts as old"
        sent = members.get(name, members.get(name.replace("_at", "At")))
        found.notes.setdefault(
            f"unreadable_{name}",
            f"{name} of command {str(record.id)[:64]!a} cannot be read as a time ({ascii(sent)[:60]}): {consequence}; "
            "let the service write RFC 3339, such as 2026-01-01T00:00:00Z",
        )
