"""What comes back over HTTP, read with a bound: body, JSON, times. :mod:`agent.wire.faults` judges its status."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx
from pydantic_core import from_json

from agent.errors import UnexpectedAnswer

NOT_MODIFIED: Final = 304
_RETRY_MAX_S: Final = 86_400.0
_TEXT_MAX: Final = 300
_BROKEN_OFF: Final = "the compressed answer broke off: try again, or look at the proxy in between"


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
        return http_date(self.headers.get("date"))

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


def is_page(content_type: str, body: bytes) -> bool:
    """Whether an answer is a web page; frameworks add ``text/html`` also to an empty body, which is none."""
    text = body[:200].lstrip(b"\xef\xbb\xbf \t\r\n")
    return bool(text) and ("html" in content_type.lower() or text.startswith(b"<"))


def read_body(response: httpx.Response, max_bytes: int, check_deadline: Callable[[], None]) -> bytes:
    """The decoded body, read on until it is larger than ``max_bytes``.

    Raises:
        UnexpectedAnswer: larger than that.
    """
    declared = response.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:15]) > max_bytes:
        raise _too_large(max_bytes, response.status_code)
    parts: list[bytes] = []
    size = 0
    for part in response.iter_bytes():
        check_deadline()
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes, response.status_code)
        parts.append(part)
    return b"".join(parts)


def inflate(content: bytes, max_bytes: int, status: int) -> bytes:
    """A whole gzip body, decompressed.

    Raises:
        UnexpectedAnswer: it is no gzip, broke off, or is larger than that.
    """
    stream = zlib.decompressobj(wbits=31)
    try:
        plain = stream.decompress(content, max_bytes + 1)
    except zlib.error:
        raise UnexpectedAnswer("the answer says it is gzip and is not: look at the proxy in between", status) from None
    if len(plain) > max_bytes:
        raise _too_large(max_bytes, status)
    if not stream.eof:
        raise UnexpectedAnswer(_BROKEN_OFF, status)
    return plain


def one_line(text: str) -> str:
    """The text on one line, printable, and not longer than a person reads."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * _TEXT_MAX]).split())
    return line if len(line) <= _TEXT_MAX else f"{line[:_TEXT_MAX]}..."


def read_retry_after(headers: httpx.Headers) -> float | None:
    """How long the service asks us to wait, seconds, at most a day: ``Retry-After`` in both forms (RFC 9110, section
    10.2.3), else the ``t`` of ``RateLimit`` when nothing is left.

    A date is compared with the answer's own ``Date`` and counts for nothing without it: the clock of this machine may
    be wrong.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:10]), _RETRY_MAX_S)
    until, now = http_date(value), http_date(headers.get("date"))
    if until is not None and now is not None:
        return min(max(until - now, 0.0), _RETRY_MAX_S)
    items = dict(part.strip().partition("=")[::2] for part in headers.get("ratelimit", "").split(";"))
    seconds = items.get("t", "")
    # Headers are Latin-1 text, and "²" counts as a digit there without being a number.
    if items.get("r") == "0" and seconds.isascii() and seconds.isdigit():
        return min(float(seconds[:10]), _RETRY_MAX_S)
    return None


def http_date(value: str | None) -> float | None:
    """A header's date (RFC 9110, section 5.6.7) as seconds since the epoch; None when it cannot be read."""
    if not value:
        return None
    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _too_large(max_bytes: int, status: int) -> UnexpectedAnswer:
    return UnexpectedAnswer(
        f"the answer is larger than {max_bytes} bytes and was not read on: ask for less",
        status,
    )
