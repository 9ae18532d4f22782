"""Send the corpus to a server and judge each answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from agent.errors import (
    ErrorAnswer,
    Forbidden,
    RateLimited,
    ServiceError,
    TransportError,
    Unauthorized,
    UnexpectedAnswer,
)
from agent.wire import paths
from agent.wire.answers import Answer
from simulator.labels.corpus.case import Case, Expected
from simulator.labels.corpus.collection import Entry

_PATIENCE_S: Final = 5.0
"""The wait after a 429 that names none."""
_REFUSED: Final = range(400, 500)


class ScanConnection(Protocol):
    """A connection, as :class:`agent.wire.connection.Connection` is one."""

    def request(self, method: str, path: str, *, body: bytes | None = None) -> Answer:
        """One request; raises :class:`~agent.errors.ServiceError` for anything but a good answer."""
        ...


class ScanOutcome(StrEnum):
    """What became of one payload."""

    AS_EXPECTED = "as expected"
    REFUSED_OTHERWISE = "refused otherwise"
    """Refused as it must be, with another status or error."""
    TAKEN = "taken"
    """A payload that must be refused was taken."""
    REFUSED = "refused"
    """A payload that must be taken was refused."""
    SHOWN_WRONG = "shown wrong"
    """Taken as it must be, but the answer names another product or identifier."""
    FAULT = "fault"
    """No answer of the specification: a status of 5xx or 3xx, or a body that is none."""
    NO_ANSWER = "no answer"
    NOT_SENT = "not sent"
    """No scanner may hand it over."""


@dataclass(frozen=True, slots=True)
class AnsweredEntry:
    """One payload with its answer.

    Attributes:
        entry: the payload.
        outcome: the judgement.
        status: of HTTP; None without an answer.
        error: the body's ``error``.
        message: the server's words, or ours about a missing answer.
    """

    entry: Entry
    outcome: ScanOutcome
    status: int | None = None
    error: str = ""
    message: str = ""

    def good(self, *, any_refusal: bool) -> bool:
        """Whether it counts as passed.

        Args:
            any_refusal: also a refusal with another status or error.
        """
        good = {ScanOutcome.AS_EXPECTED, ScanOutcome.NOT_SENT} | (
            {ScanOutcome.REFUSED_OTHERWISE} if any_refusal else set()
        )
        return self.outcome in good


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a quota may hold the run up.

    Attributes:
        sleep: waits that many seconds.
        max_wait_s: for one payload in all.
    """

    sleep: Callable[[float], None]
    max_wait_s: float = 120.0


def send_all(
    connection: ScanConnection,
    entries: Sequence[Entry],
    retry_policy: RetryPolicy,
    on_progress: Callable[[int, int], None] | None = None,
) -> tuple[AnsweredEntry, ...]:
    """Send each payload once and judge its answer.

    Raises:
        Unauthorized: the keys are refused, so no answer says anything.
        Forbidden: the same.
        TransportError: the first payload got no answer: nobody is there.
    """
    asked: list[AnsweredEntry] = []
    for number, entry in enumerate(entries, start=1):
        asked.append(_ask(connection, entry, retry_policy, first=number == 1))
        if on_progress:
            on_progress(number, len(entries))
    return tuple(asked)


def _ask(connection: ScanConnection, entry: Entry, retry_policy: RetryPolicy, *, first: bool) -> AnsweredEntry:
    expected = entry.case.expected
    if expected is None:
        return AnsweredEntry(entry, ScanOutcome.NOT_SENT)
    try:
        answer = _send(connection, entry.case.request, retry_policy)
    except (Unauthorized, Forbidden):
        raise
    except ErrorAnswer as error:
        return AnsweredEntry(entry, _judge_error(expected, error), error.status, error.error, error.message)
    except ServiceError as error:
        is_silence = isinstance(error, TransportError)
        if first and is_silence:
            raise
        status = error.status if isinstance(error, UnexpectedAnswer) else None
        return AnsweredEntry(entry, ScanOutcome.NO_ANSWER if is_silence else ScanOutcome.FAULT, status, "", str(error))
    return _judge_answer(entry, answer)


def _send(connection: ScanConnection, body: bytes, retry_policy: RetryPolicy) -> Answer:
    """One payload, sent again while only the quota is in its way."""
    waited_s = 0.0
    while True:
        try:
            return connection.request("POST", paths.SCAN_QR, body=body)
        except RateLimited as limit:
            wait_s = _PATIENCE_S if limit.retry_after_s is None else max(0.1, limit.retry_after_s)
            if waited_s + wait_s > retry_policy.max_wait_s:
                raise
        retry_policy.sleep(wait_s)
        waited_s += wait_s


def _judge_error(expected: Expected, error: ErrorAnswer) -> ScanOutcome:
    if (error.status, error.error) == (expected.status, expected.error):
        return ScanOutcome.AS_EXPECTED
    if isinstance(error, RateLimited):
        return ScanOutcome.NO_ANSWER
    if error.status not in _REFUSED:
        return ScanOutcome.FAULT
    return ScanOutcome.REFUSED_OTHERWISE if expected.error else ScanOutcome.REFUSED


def _judge_answer(entry: Entry, answer: Answer) -> AnsweredEntry:
    if entry.case.expected is not None and entry.case.expected.error:
        return AnsweredEntry(entry, ScanOutcome.TAKEN, answer.status, "", "the server takes it for a good label")
    shown = _shown(answer.content)
    if shown is None:
        return AnsweredEntry(entry, ScanOutcome.FAULT, answer.status, "", "the answer is no JSON object")
    wrong = _contradiction(entry.case, shown)
    return AnsweredEntry(entry, ScanOutcome.SHOWN_WRONG if wrong else ScanOutcome.AS_EXPECTED, answer.status, "", wrong)


def _shown(content: bytes) -> dict[str, Any] | None:
    try:
        shown = json.loads(content)
    except ValueError:
        return None
    return shown if isinstance(shown, dict) else None


def _contradiction(case: Case, shown: dict[str, Any]) -> str:
    """What the answer says that the label does not. The specification asks for product information alone."""
    product = shown.get("product")
    product = product if isinstance(product, dict) else shown
    if case.shows is None:
        return ""
    found = {
        "product_id": product.get("product_id", product.get("productId")),
        "device_identifier": shown.get("device_identifier", shown.get("deviceIdentifier")),
    }
    for (name, value), right in zip(found.items(), case.shows, strict=True):
        if value is not None and value != right:
            return f"the answer names {name} {value!r:.80}, the label {right!r:.80}"
    return ""


def others(asked: Iterable[AnsweredEntry], *, any_refusal: bool) -> list[AnsweredEntry]:
    """The payloads that did not pass."""
    return [each for each in asked if not each.good(any_refusal=any_refusal)]
