"""The fast path for the usual answers, without parsing them: nothing new for a poll, and readings accepted.

Whatever is not surely one of these is None here; then :mod:`simulator.fleet.device.http_codec` parses the whole answer.
A property test compares both: where the fast path gives a result, it is the same.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final, NamedTuple

from simulator.fleet.engine.ports import Headers, HttpAnswer

_OK: Final = 200
_CREATED: Final = 201
_NOT_MODIFIED: Final = 304
_DATE: Final = b"date"
_ETAG: Final = b"etag"
_LENGTH: Final = 4  # of both
_TYPE: Final = b"content-type"
_TYPE_LENGTH: Final = len(_TYPE)
_KEPT: Final = 64
_BODY_BYTES_MAX: Final = 200


class AnswerHeaders(NamedTuple):
    """The headers of a good answer that a device uses.

    Attributes:
        server_time: ``Date``, epoch seconds.
        etag: the version of what was listed.
    """

    server_time: float | None
    etag: str | None


def stamps_of(headers: Headers) -> AnswerHeaders | None:
    """Date and entity tag; None where one comes twice or is unusual, and for a web page."""
    # A tuple is there again and again (see Headers), and its parts are not looked through each time.
    return _stamps_of_known(headers) if type(headers) is tuple else _look_through(headers)


@lru_cache(maxsize=64)
def _stamps_of_known(headers: tuple[tuple[bytes, bytes], ...]) -> AnswerHeaders | None:
    return _look_through(headers)


def _look_through(headers: Headers) -> AnswerHeaders | None:
    dates = etags = 0
    date = etag = b""
    for name, value in headers:
        if len(name) == _LENGTH:
            lower = name.lower()
            if lower == _DATE:
                dates += 1
                date = value
            elif lower == _ETAG:
                etags += 1
                etag = value
        elif len(name) == _TYPE_LENGTH and b"html" in value.lower() and name.lower() == _TYPE:
            return None
    if dates > 1 or etags > 1:
        return None
    if not (date.isascii() and etag.isascii()):
        return None
    text = etag.decode("ascii")
    return AnswerHeaders(_epoch_s(date), text if text and text.isprintable() else None)


@lru_cache(maxsize=16)
def _epoch_s(date: bytes) -> float | None:
    """Seconds since the epoch; the answers of one second all carry the same text."""
    if not date:
        return None
    try:
        return parsedate_to_datetime(date.decode("ascii")).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


class KnownAnswers:
    """Bodies that were parsed before, and their meaning. One object for all devices of a driver.

    A service usually sends the same bytes for "nothing new". Where it does not, each answer is parsed.
    """

    __slots__ = ("_empty", "_taken")

    def __init__(self) -> None:
        self._empty: set[bytes] = set()
        self._taken: dict[bytes, int] = {}

    def unchanged(self, answer: HttpAnswer) -> bool | None:
        """Of a poll's answer: True for 304, False for an empty list, None for anything else."""
        if answer.status == _NOT_MODIFIED:
            return True
        return False if answer.status == _OK and answer.body in self._empty else None

    def taken(self, answer: HttpAnswer, count: int) -> bool:
        """Whether all of ``count`` readings were certainly taken, by this answer."""
        status, body = answer.status, answer.body
        if status not in (_CREATED, _OK):
            return False
        if count == 1:
            return not body or body[0] in b"{["
        return self._taken.get(body) == count

    def learn_empty(self, body: bytes) -> None:
        """Remember a body that was an empty list."""
        if len(body) <= _BODY_BYTES_MAX and len(self._empty) < _KEPT:
            self._empty.add(body)

    def learn_taken(self, body: bytes, count: int) -> None:
        """Remember the body of an answer that accepted ``count`` readings and refused none."""
        if len(body) <= _BODY_BYTES_MAX and len(self._taken) < _KEPT * 4:
            self._taken[body] = count
