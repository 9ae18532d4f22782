"""What comes back over HTTP, read with a bound and judged: a good answer, or one typed error.

A 2xx (or 304) becomes an :class:`Answer`. Everything else raises. The text of an error is one line, names no secret,
and says what to do when the service itself does not.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

import httpx
from pydantic import ValidationError
from pydantic_core import from_json

from agent.errors import (
    Conflict,
    ErrorAnswer,
    Forbidden,
    NotFound,
    RateLimited,
    Refused,
    ServerFault,
    StillRunning,
    Unauthorized,
    UnexpectedAnswer,
)
from agent.frozen import dataclass
from agent.wire.identity import is_page

if TYPE_CHECKING:
    from agent.wire.errors import ErrorBody

NOT_MODIFIED: Final = 304
KEY_IN_USE: Final = "idempotency_key_in_use"
"""The service's word for a request whose ``Idempotency-Key`` belongs to one that still runs."""
_RETRY_MAX_S: Final = 86_400.0
_TEXT_MAX: Final = 300
_BEGIN_BYTES: Final = 1_000
_BROKEN_OFF: Final = "the compressed answer broke off: try again, or look at the proxy in between"
# A proxy in front of the service says these in HTML, and they mean what they say. Any other 4xx in HTML may be a
# captive portal's, so nothing is dropped on its account unless the page is known to be the service's own.
TRUSTED_IN_HTML: Final = frozenset({401, 413, 414, 429, 431})
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
    """A 2xx or 304.

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
        return self.status == NOT_MODIFIED

    @property
    def is_page(self) -> bool:
        """The body is a web page."""
        return is_page(self.headers.get("content-type", ""), self.content)

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

        Tolerant where :func:`agent.wire.json_text.parse_json` is not, so that one bad record hides no other.

        Raises:
            UnexpectedAnswer: truncated, or not JSON.
        """
        if not self.content.strip():
            return None
        try:
            return from_json(self.content, cache_strings=False)  # the cache alone would be 256 KiB
        except ValueError as first:
            try:
                return json.loads(self.content)
            except (ValueError, RecursionError):
                raise UnexpectedAnswer(
                    f"{self.source} answered {self.status} with truncated or broken JSON ({first}): "
                    "the connection broke off, or something between here and the service changes its answers",
                    self.status,
                ) from None


def read_body(response: httpx.Response, max_bytes: int, check_deadline: Callable[[], None]) -> bytes:
    """The decoded body, never holding more than ``max_bytes`` of it, however small it was on the way.

    Raises:
        UnexpectedAnswer: larger than that, an encoding that was not asked for, or broken off.
    """
    if response.is_stream_consumed:  # a transport in memory hands over what it has read and decoded itself
        return _within(response.content, max_bytes, response.status_code)
    declared = response.headers.get("content-length", "")
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"identity", "", "gzip", "x-gzip"}:
        raise UnexpectedAnswer(
            f"the answer is encoded as {encoding[:40]!r}, which was not asked for: look at the proxy in between",
            response.status_code,
        )
    inflate = _Inflater() if "gzip" in encoding else None
    if inflate is None and declared.isascii() and declared.isdigit() and int(declared) > max_bytes:
        raise _too_large(max_bytes, response.status_code)
    parts: list[bytes] = []
    size = 0
    for chunk in response.iter_raw():
        check_deadline()
        part = chunk if inflate is None else inflate.feed(chunk, max_bytes - size, response.status_code)
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes, response.status_code)
        parts.append(part)
    if inflate is not None and not inflate.is_complete:
        raise UnexpectedAnswer(_BROKEN_OFF, response.status_code)
    return b"".join(parts)


def read_begin(response: httpx.Response) -> bytes:
    """The first decoded bytes of a body, about 1,000 at most of a compressed one; none of an empty body.

    Raises:
        UnexpectedAnswer: it says that it is gzip and is not.
    """
    if response.is_stream_consumed:
        return next(response.iter_bytes(), b"")
    is_gzip = "gzip" in response.headers.get("content-encoding", "").lower()
    inflater = _Inflater()
    for chunk in response.iter_raw():
        begun = inflater.feed(chunk, _BEGIN_BYTES, response.status_code) if is_gzip else chunk
        if begun:
            return begun
    return b""


def inflate(content: bytes, max_bytes: int, status: int) -> bytes:
    """A whole gzip body, decompressed.

    Raises:
        UnexpectedAnswer: it is no gzip, broke off, or is larger than that.
    """
    inflater = _Inflater()
    plain = inflater.feed(content, max_bytes, status)
    if len(plain) > max_bytes:
        raise _too_large(max_bytes, status)
    if not inflater.is_complete:
        raise UnexpectedAnswer(_BROKEN_OFF, status)
    return plain


class _Inflater:
    """Gzip (RFC 1952) with a bound on what one step may give; httpx decodes without one."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)
        self._fed = False

    @property
    def is_complete(self) -> bool:
        return self._stream.eof or not self._fed

    def feed(self, chunk: bytes, room: int, status: int) -> bytes:
        """The plain bytes of ``chunk``: at most ``room`` + 1, which is how the caller sees that it was too much."""
        parts: list[bytes] = []
        while chunk and room >= 0:
            if self._stream.eof:  # the next member of the same file
                self._stream = zlib.decompressobj(wbits=31)
            try:
                part = self._stream.decompress(chunk, room + 1)
            except zlib.error:
                raise UnexpectedAnswer(
                    "the answer says it is gzip and is not: look at the proxy in between", status
                ) from None
            self._fed = True
            parts.append(part)
            room -= len(part)
            chunk = self._stream.unconsumed_tail or self._stream.unused_data
        return b"".join(parts)


def raise_for_status(
    response: httpx.Response,
    body: bytes,
    *,
    source: str,
    redact: Callable[[str], str],
    page_is_meant: bool = False,
) -> None:
    """Return on a 2xx or 304 that is not a foreign web page; raise the one error that says what it is otherwise.

    Args:
        response: status and headers count.
        body: the decoded body.
        source: who answered.
        redact: takes secrets out of a text.
        page_is_meant: a web page is the service's own (:class:`~agent.wire.identity.Identity`), so that its status
            means what it says.

    Raises:
        UnexpectedAnswer: a redirect, a foreign web page, a status that is none.
        ErrorAnswer: the class that belongs to the status.
    """
    status = response.status_code
    is_web_page = is_page(response.headers.get("content-type", ""), body)
    if status == NOT_MODIFIED:
        return
    if 200 <= status < 300:  # noqa: PLR2004 - RFC 9110, section 15.3
        if is_web_page and not page_is_meant:
            raise UnexpectedAnswer(portal_text(source, status), status)
        return
    if 300 <= status < 400:  # noqa: PLR2004 - RFC 9110, section 15.4
        raise UnexpectedAnswer(_redirect_text(response, source), status)
    if not 400 <= status < 600:  # noqa: PLR2004 - RFC 9110, section 15
        raise UnexpectedAnswer(f"{source} answered with status {status}, which means nothing here", status)
    is_trusted = page_is_meant or status in TRUSTED_IN_HTML
    if is_web_page and status < 500 and not is_trusted:  # noqa: PLR2004 - RFC 9110, section 15.6
        raise UnexpectedAnswer(portal_text(source, status), status)
    raise _error_answer(response, _read_error(b"" if is_web_page else body), redact)


def one_line(text: str) -> str:
    """The text on one line, printable, and not longer than a person reads."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * _TEXT_MAX]).split())
    return line if len(line) <= _TEXT_MAX else f"{line[:_TEXT_MAX]}..."


def _error_answer(response: httpx.Response, body: ErrorBody, redact: Callable[[str], str]) -> ErrorAnswer:
    status = response.status_code
    message = body.message or body.error_description
    if body.details:
        issues = "; ".join(f"{detail.field}: {detail.issue}" for detail in body.details)
        message = f"{message} ({issues})" if message else issues
    if not body.error and not message:
        message = _HINTS.get(status, "no error body: the service or a proxy in front of it failed")
    kind = _CLASSES.get(status, ServerFault if status >= 500 else Refused)  # noqa: PLR2004 - RFC 9110, section 15.6
    if kind is Conflict and body.error == KEY_IN_USE:
        # Not a word about the request: what its first attempt comes to is not known yet.
        kind = StillRunning
    return kind(
        status,
        one_line(redact(body.error)),
        one_line(redact(message)),
        retry_after_s=read_retry_after(response.headers),
        server_time=_http_date(response.headers.get("date")),
    )


def read_retry_after(headers: httpx.Headers) -> float | None:
    """How long the service asks us to wait, seconds, at most a day: ``Retry-After`` in both forms (RFC 9110, section
    10.2.3), else the ``t`` of ``RateLimit`` when nothing is left.

    A date is compared with the answer's own ``Date`` and counts for nothing without it: the clock of this machine may
    be wrong.
    """  # noqa: D205 - one sentence needs two lines
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:10]), _RETRY_MAX_S)
    until, now = _http_date(value), _http_date(headers.get("date"))
    if until is not None and now is not None:
        return min(max(until - now, 0.0), _RETRY_MAX_S)
    items = dict(part.strip().partition("=")[::2] for part in headers.get("ratelimit", "").split(";"))
    seconds = items.get("t", "")
    # Headers are Latin-1 text, and "²" counts as a digit there without being a number.
    if items.get("r") == "0" and seconds.isascii() and seconds.isdigit():
        return min(float(seconds[:10]), _RETRY_MAX_S)
    return None


def _http_date(value: str | None) -> float | None:
    if not value:
        return None
    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _read_error(body: bytes) -> ErrorBody:
    from agent.wire.errors import ErrorBody  # with the first error

    try:
        return ErrorBody.model_validate(from_json(body, cache_strings=False))
    except (ValueError, ValidationError):
        return ErrorBody()


def portal_text(source: str, status: int) -> str:
    """What to say of a web page that is not the service's."""
    return (
        f"{source} answered {status} with a web page instead of JSON: the network wants a sign-in (captive portal), "
        "or base_url is not the service's address; sign in to the network, or correct base_url"
    )


def _redirect_text(response: httpx.Response, source: str) -> str:
    try:
        target = httpx.URL(response.headers.get("location", ""))
        host = f"{target.scheme}://{target.netloc.decode('ascii').rpartition('@')[2]}" if target.host else "itself"
    except (httpx.InvalidURL, UnicodeDecodeError):
        host = "an unreadable address"
    return (
        f"{source} redirects ({response.status_code}) to {one_line(host)}, which is not followed, since it would get "
        "the keys too: a captive portal, or set base_url to the final address"
    )


def _within(body: bytes, max_bytes: int, status: int) -> bytes:
    if len(body) > max_bytes:
        raise _too_large(max_bytes, status)
    return body


def _too_large(max_bytes: int, status: int) -> UnexpectedAnswer:
    return UnexpectedAnswer(
        f"the answer is larger than {max_bytes} bytes and was not read on: ask for less, or raise max_answer_bytes",
        status,
    )
