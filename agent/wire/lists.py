"""Lists of any server, page by page: an array, or an object that holds one; by cursor, link, page number or offset.

:func:`read_page` reads one answer, :class:`PageWalk` goes from page to page, :func:`read_commands` makes a device's
list of commands out of all of them.

Nothing is assumed of a server: a parameter is sent for the next page only when the answer has a member that belongs to
it, such as ``next_cursor`` to ``cursor`` and ``offset`` to ``offset``. Ours answers ``{"data": [...], "next_cursor":
text or null, "has_more": bool}`` with ``Link: rel="next"``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from agent.errors import InvalidMessage, ServiceError, UnexpectedAnswer
from agent.wire.answers import Answer
from agent.wire.models import CommandRecord
from agent.wire.network import origin_of
from agent.wire.server import Dialect

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
