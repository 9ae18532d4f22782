"""The meaning of answers, by the rules of the real agent's client; and the usual ones, known by their bytes.

Whatever is not surely a usual answer is parsed. A property test compares both.
"""

from __future__ import annotations

import re
import zlib
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Final, TypeVar

import httpx

from agent.errors import Conflict, ErrorAnswer, InvalidMessage, ServiceError, StillRunning, UnexpectedAnswer
from agent.wire.answers import Answer, raise_for_status
from agent.wire.base import JsonObject, Received
from agent.wire.client import read_record
from agent.wire.limits import ANSWER_BYTES
from agent.wire.models import CommandRecord
from simulator.fleet.engine.ports import Headers, HttpAnswer
from simulator.fleet.outcomes import REFUSALS, OutcomeClass, class_of

Record = TypeVar("Record", bound=Received)

SOURCE: Final = "the service"
_GOOD_JSON: Final = re.compile(rb"[ \t\r\n]*[\[{]")
_GOOD: Final = range(200, 300)


def judge(answer: HttpAnswer) -> Answer:
    """A good answer as the agent's client has it.

    Args:
        answer: good or not.

    Raises:
        ServiceError: the class that belongs to the status, or what it is instead of the service's answer.
    """
    headers, body = httpx.Headers(answer.headers), answer.body
    if body and "gzip" in headers.get("content-encoding", "").lower():
        body = _inflate(body, answer.status)
        del headers["content-encoding"]
    is_good = answer.status in _GOOD and (not body or _GOOD_JSON.match(body))
    if not is_good or "html" in headers.get("content-type", "").lower():
        response = httpx.Response(answer.status, headers=headers, content=body)
        # Who loads a server knows whose pages these are: there is no captive portal between, and the status decides.
        raise_for_status(response, body, source=SOURCE, page_is_meant=True)
    return Answer(answer.status, headers, body, SOURCE)


def _inflate(content: bytes, status: int) -> bytes:
    """A whole gzip body, decompressed.

    Raises:
        UnexpectedAnswer: it is no gzip, broke off, or is too large.
    """
    stream = zlib.decompressobj(wbits=31)
    try:
        plain = stream.decompress(content, ANSWER_BYTES + 1)
    except zlib.error:
        raise UnexpectedAnswer("the answer says it is gzip and is not: look at the proxy in between", status) from None
    if len(plain) > ANSWER_BYTES:
        raise UnexpectedAnswer(f"the answer is larger than {ANSWER_BYTES} bytes and was not read on", status)
    if not stream.eof:
        raise UnexpectedAnswer("the compressed answer broke off: look at the proxy in between", status)
    return plain


def read_written(model: type[Record], answer: Answer, word: str, sent: JsonObject) -> Record:
    """The record in a 2xx answer to a writing request; what was sent stands in for what the answer leaves out.

    The status has decided; the body only informs (specification, rule E2): it may be empty, text, or anything else.

    Raises:
        InvalidMessage: what was sent is no such record.
    """
    try:
        return read_record(model, answer, word, sent)
    except (UnexpectedAnswer, InvalidMessage):
        return model.receive(sent)


def outcome_of(error: ServiceError) -> OutcomeClass:
    """The class that an answered exchange counts in, when its answer was judged to be this error."""
    if isinstance(error, ErrorAnswer):
        return class_of(error.status)
    return OutcomeClass.UNEXPECTED if isinstance(error, UnexpectedAnswer) else OutcomeClass.TRANSPORT


def is_refused(error: ServiceError) -> bool:
    """Whether the service had the request and surely did not carry it out; every other error leaves that open.

    409 is left open: a request with the same idempotency key may still be running.
    """
    leaves_open = isinstance(error, Conflict | StillRunning)
    return isinstance(error, ErrorAnswer) and not leaves_open and class_of(error.status) in REFUSALS


def command_id_in(answer: HttpAnswer) -> str:
    """The id that the service gave a command, of the answer to whoever sent it; empty where it names none.

    Raises:
        ServiceError: the answer is an error, or not the service's.
    """
    return read_written(CommandRecord, judge(answer), "command", {"command_payload": {}}).id or ""


# --- the usual answers, without parsing them --------------------------------------------------------------------------

_DATE: Final = b"date"
_ETAG: Final = b"etag"
_TYPE: Final = b"content-type"
_KEPT: Final = 256
_BODY_BYTES_MAX: Final = 200

Stamps = tuple[float | None, str | None]
"""``Date`` in epoch seconds, and the entity tag."""


def stamps_of(headers: Headers) -> Stamps | None:
    """Date and entity tag of a good answer; None where one comes twice or is unusual, and for a web page."""
    # A tuple is there again and again (see Headers), and its parts are not looked through each time.
    return _stamps_of_known(headers) if type(headers) is tuple else _read_stamps(headers)


@lru_cache(maxsize=64)
def _stamps_of_known(headers: tuple[tuple[bytes, bytes], ...]) -> Stamps | None:
    return _read_stamps(headers)


def _read_stamps(headers: Headers) -> Stamps | None:
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        lower = name.lower()
        if lower == _TYPE and b"html" in value.lower():
            return None
        if lower in {_DATE, _ETAG}:
            if lower in found or not value.isascii():
                return None
            found[lower] = value
    etag = found.get(_ETAG, b"").decode("ascii")
    return _epoch_s(found.get(_DATE, b"")), etag if etag and etag.isprintable() else None


@lru_cache(maxsize=16)
def _epoch_s(date: bytes) -> float | None:
    """Seconds since the epoch; the answers of one second all carry the same text."""
    try:
        return parsedate_to_datetime(date.decode("ascii")).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


class KnownAnswers:
    """Bodies that were parsed before, and their meaning; one object for all devices.

    A service usually sends the same bytes for "nothing new". Where it does not, each answer is parsed.
    """

    __slots__ = ("_empty_lists", "_taken")

    def __init__(self) -> None:
        self._empty_lists: set[bytes] = set()
        self._taken: dict[bytes, int] = {}

    def is_empty_list(self, answer: HttpAnswer) -> bool:
        """Whether this is certainly a list without commands."""
        return answer.status == HTTPStatus.OK and answer.body in self._empty_lists

    def are_taken(self, answer: HttpAnswer, count: int) -> bool:
        """Whether ``count`` readings were certainly taken, all of them, by this answer."""
        body = answer.body
        if answer.status not in (HTTPStatus.CREATED, HTTPStatus.OK):
            return False
        return (not body or body[0] in b"{[") if count == 1 else self._taken.get(body) == count

    def learn_empty_list(self, body: bytes) -> None:
        """Remember a body that was an empty list."""
        if len(body) <= _BODY_BYTES_MAX and len(self._empty_lists) < _KEPT:
            self._empty_lists.add(body)

    def learn_taken(self, body: bytes, count: int) -> None:
        """Remember the body of an answer that accepted ``count`` readings and refused none."""
        if len(body) <= _BODY_BYTES_MAX and len(self._taken) < _KEPT:
            self._taken[body] = count
