"""Parses answers by the rules of the real agent's client, and sets the pauses before a request is sent again.

A service usually sends the same bytes for "stored" and for "nothing new": equal short answers are parsed once.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from typing import Final, TypeVar

import httpx

from agent.errors import (
    Conflict,
    ErrorAnswer,
    InvalidMessage,
    ServiceError,
    StillRunning,
    UnexpectedAnswer,
)
from agent.health import Backoff, RetryPolicy
from agent.wire.answers import Answer
from agent.wire.client import read_record
from agent.wire.limits import ANSWER_BYTES
from agent.wire.models import CommandRecord, JsonObject, Received
from simulator.fleet.engine.http_answers import Headers, HttpAnswer
from simulator.fleet.engine.pool import NoAnswerInTime
from simulator.fleet.outcomes import REFUSALS, Attempt, OutcomeClass, class_of

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
    judged = Answer(answer.status, headers, body, SOURCE)
    is_good = answer.status in _GOOD and (not body or _GOOD_JSON.match(body))
    if not is_good or "html" in headers.get("content-type", "").lower():
        # A load test has no captive portal in between, so an HTML page is the server's own and its status decides.
        judged.raise_for_status(page_is_meant=True)
    return judged


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
    """The record in a 2xx answer to a write; what the answer leaves out is taken from the request.

    The status decides; the body only informs (specification, rule E2): it may be empty, text, or anything else.

    Raises:
        InvalidMessage: what was sent is no such record.
    """
    try:
        return read_record(model, answer, word, sent)
    except (UnexpectedAnswer, InvalidMessage):
        return model.receive(sent)


def outcome_of(error: ServiceError) -> OutcomeClass:
    """The outcome of an exchange that ended with this error."""
    if isinstance(error, ErrorAnswer):
        return class_of(error.status)
    if isinstance(error, NoAnswerInTime):
        return OutcomeClass.TIMEOUT
    return OutcomeClass.UNEXPECTED if isinstance(error, UnexpectedAnswer) else OutcomeClass.TRANSPORT


def is_refused(error: ServiceError) -> bool:
    """Whether the service received the request and surely did not carry it out; other errors leave that open.

    409 is left open: a request with the same idempotency key may still be running.
    """
    leaves_open = isinstance(error, Conflict | StillRunning)
    return isinstance(error, ErrorAnswer) and not leaves_open and class_of(error.status) in REFUSALS


def command_id_in(answer: HttpAnswer) -> str:
    """The command's id in the answer to its sender; empty where there is none.

    Raises:
        ServiceError: the answer is an error, or not the service's.
    """
    return read_written(CommandRecord, judge(answer), "command", {"command_payload": {}}).id or ""


# --- short answers, each of which is read once ------------------------------------------------------------------------

SHORT_BYTES: Final = 200
_TELLING: Final = frozenset({b"content-encoding", b"content-type", b"date", b"etag", b"link"})


def essence(headers: Headers) -> Headers:
    """The headers that the meaning of a good answer depends on, which are equal for many devices.

    A tuple is passed on as it is: the engine shares one among equal answers (see
    :data:`~simulator.fleet.engine.http_answers.Headers`).
    """
    return headers if type(headers) is tuple else tuple([pair for pair in headers if pair[0].lower() in _TELLING])


# --- pauses between attempts, by the agent's own policy ---------------------------------------------------------------


class Retries(RetryPolicy):
    """Counts the attempts of one request, or of a channel that goes on after each error, and sets the pauses.

    Args:
        backoff: the pace of attempts.
        fraction: random numbers in [0, 1).

    Attributes:
        attempt: what the next attempt of a single request is: the first one, or a resend of what the service surely
            does not have, or may have.
        failures: how many attempts failed since the last success.
    """

    __slots__ = ("attempt", "failures")

    def __init__(self, backoff: Backoff, fraction: Callable[[], float]) -> None:
        super().__init__(fraction, base_s=backoff.base_s, cap_s=backoff.cap_s)
        self.attempt = Attempt.FIRST
        self.failures = 0

    def failed(self, error: ServiceError, *, left: bool = True) -> float:  # type: ignore[override]  # there always is an error
        """Count a failed attempt; returns the pause before the next, seconds.

        Args:
            error: how it ended. A refusal that will last, such as 401, makes the pause long.
            left: the request went out.
        """
        self.failures += 1
        if left:
            self.attempt = self.attempt.again(refused=is_refused(error))
        return super().failed(error)

    def succeeded(self) -> None:
        """Start again with the shortest pause."""
        self.failures = 0
        super().succeeded()
