"""The operator: sends commands to devices at the plan's instants, and keeps sending one until it is known to be taken.

A command that got no answer is sent again only where the service takes idempotency keys; elsewhere nobody knows whether
it exists, and the ledger has that instead. One that is sent again is given up after eight attempts, and no sooner than
a minute after the first: eight attempts may lie within three seconds, and a service that starts again takes longer.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx

from agent.core.backoff import Backoff
from agent.errors import ServiceError
from agent.wire import paths
from agent.wire.answers import KEY_IN_USE, Answer, read_retry_after
from agent.wire.commands import CommandRecord, SendCommand
from agent.wire.extensions import COMMAND_TTL, IDEMPOTENCY_KEY
from agent.wire.json_text import encode_json
from simulator.fleet.audit.digest import digest_document
from simulator.fleet.audit.ledger import Ledger
from simulator.fleet.device.answers import judge, read_written
from simulator.fleet.device.hashed_random import HashedRandom
from simulator.fleet.device.http_codec import Operation, Request
from simulator.fleet.device.model import RUN_OVER, Observer
from simulator.fleet.device.request_template import RequestTemplate
from simulator.fleet.device.retry_policy import RequestRetries
from simulator.fleet.engine.ports import Headers, HttpAnswer, HttpEngine
from simulator.fleet.engine.wheel import Wheel
from simulator.fleet.metrics.stages import EndState
from simulator.fleet.outcomes import REFUSALS, OutcomeClass, class_of
from simulator.fleet.record import CommandEnds
from simulator.fleet.scenario.model import CommandSettings

OPERATION: Final = Operation.ORDER
EXPIRY_MARGIN_S: Final = 2.0
"""A command that its device has not got so long after its end is on its way to it no more."""
_TRIES: Final = 8
_PATIENCE_S: Final = 60.0
_BACKOFF: Final = Backoff(base_s=0.5, cap_s=10.0)
_CONFLICT: Final = 409
_AGAIN: Final = frozenset({OutcomeClass.LIMITED, OutcomeClass.SERVER_ERROR})
_UNANSWERED: Final = frozenset({OutcomeClass.TRANSPORT, OutcomeClass.TIMEOUT, OutcomeClass.UNEXPECTED})


@dataclass(frozen=True, slots=True)
class OrderContext:
    """How the operator reaches the service.

    Attributes:
        engine: carries the requests, under an index that no device has.
        templates: one with each credential of the operator; its commands take turns.
        wheel: for what is sent again.
        now: the engine's clock.
        timeout_s: for one request.
        offers: the service's extensions.
        run: begins each idempotency key.
    """

    engine: HttpEngine
    templates: Sequence[RequestTemplate]
    wheel: Wheel
    now: Callable[[], float]
    timeout_s: float
    offers: frozenset[str]
    run: str


@dataclass(frozen=True, slots=True)
class Ordered:
    """A command that the service took; times on the engine's clock.

    Attributes:
        stream: number of the scenario's stream of commands.
        due_s: when it was due by the plan.
        expires_s: when the service hands it out no more; None where the service takes no time to live.
    """

    command_id: str
    stream: int
    due_s: float
    expires_s: float | None


@dataclass(slots=True)
class StreamTally:
    """What became of the orders of one stream of commands.

    Attributes:
        sent: orders begun.
        refused: refused for good.
        unanswered: given up without an answer, or answered without the command's id.
    """

    sent: int = 0
    refused: int = 0
    unanswered: int = 0


class Operator:
    """One for each worker; sends to that worker's devices.

    Args:
        context: to the service.
        device_ids: the service's ids of this worker's devices.
        first_index: of the first of them, in the fleet.
        payloads: the scenario's streams of commands: payload and time to live, seconds; the latter goes out where the
            service takes it.
        ledger: for the audit.
        observer: for the measurement.
        began_s: the run's begin on the engine's clock: the ledger's times count from it.
        on_ordered: called for each command that the service took.

    Attributes:
        under_way: orders that were sent and are not answered for good yet.
        refused: orders that were refused for good, by the status and the service's word.
        streams: what became of the orders, by stream of commands.
        is_over: the run is over; what ends from now on has not come to an end by itself, and nothing goes out again.
    """

    def __init__(
        self,
        context: OrderContext,
        device_ids: Sequence[str],
        first_index: int,
        payloads: Sequence[tuple[Mapping[str, Any], float]],
        *,
        ledger: Ledger,
        observer: Observer,
        began_s: float,
        on_ordered: Callable[[Ordered], None],
    ) -> None:
        self.context = context
        self.ledger = ledger
        self.observer = observer
        self.began_s = began_s
        self.on_ordered = on_ordered
        self.under_way = 0
        self.refused: Counter[str] = Counter()
        self.streams = tuple(StreamTally() for _ in payloads)
        self.is_over = False
        self._device_ids = device_ids
        self._first = first_index
        self._payloads = payloads
        self.digests = tuple(digest_document(payload) for payload, _ in payloads)
        self._chance = HashedRandom(0, first_index)
        self._templates = itertools.cycle(context.templates)

    def send(self, device: int, stream: int, serial: int, due_s: float) -> None:
        """Send one command to a device.

        Args:
            device: index in the fleet.
            stream: number of the scenario's stream of commands.
            serial: of the command in its stream; both together identify the order within the run.
            due_s: when it was due by the plan, on the engine's clock.
        """
        payload, ttl_s = self._payloads[stream]
        body = SendCommand(
            device_id=self._device_ids[device - self._first],
            command_payload=dict(payload),
            ttl_seconds=round(ttl_s) if COMMAND_TTL in self.context.offers else None,
        )
        once = IDEMPOTENCY_KEY in self.context.offers
        headers = {"idempotency-key": f"{self.context.run}-order-{stream}-{serial}"} if once else {}
        request = Request(OPERATION, "POST", paths.SEND_COMMAND, encode_json(body.to_wire()), headers)
        self.under_way += 1
        self.streams[stream].sent += 1
        _Order(self, device, next(self._templates).message(request), due_s, repeatable=once, stream=stream).go()

    def took(self, command_id: str, stream: int, due_s: float, now_s: float) -> None:
        """The service has a command, and answered now."""
        lasts_s = round(self._payloads[stream][1]) if COMMAND_TTL in self.context.offers else None
        expires_s = None if lasts_s is None else now_s + lasts_s
        self.on_ordered(Ordered(command_id, stream, due_s, expires_s))

    def end(self) -> int:
        """The run is over.

        Returns:
            Orders that never came to their end: without an answer, or waiting to go out again.
        """
        self.is_over = True
        return self.under_way

    def count_unnumbered(self) -> int:
        """How many orders may be commands whose id is not known: no answer, or one that does not say it."""
        return sum(stream.unanswered for stream in self.streams)

    def command_ends(
        self, commands: Sequence[CommandSettings], ends: Mapping[int | None, Mapping[EndState, int]]
    ) -> tuple[CommandEnds, ...]:
        """How the commands to this worker's devices ended.

        Args:
            commands: the scenario's streams.
            ends: how so many commands of a stream ended; under None those that nobody here sent.
        """
        if not commands:
            return ()
        ours = [
            CommandEnds(
                command.name,
                command.expect,
                tally.sent,
                tally.refused,
                tally.unanswered,
                {str(state): count for state, count in ends.get(stream, {}).items()},
            )
            for stream, (command, tally) in enumerate(zip(commands, self.streams, strict=True))
        ]
        others = {str(state): count for state, count in ends.get(None, {}).items()}
        return (*ours, CommandEnds("", "any", 0, 0, 0, others))

    def retries(self) -> RequestRetries:
        """The retries of one order."""
        return RequestRetries(_BACKOFF, self._chance)


class _Order:
    """A command on its way to the service: the engine's :class:`~simulator.fleet.engine.ports.Caller`."""

    __slots__ = (
        "_device",
        "_due_s",
        "_first_due_s",
        "_gives_up_s",
        "_message",
        "_operator",
        "_repeatable",
        "_retries",
        "_stream",
        "_tries",
    )

    def __init__(
        self, operator: Operator, device: int, message: bytes, due_s: float, *, repeatable: bool, stream: int
    ) -> None:
        self._operator = operator
        self._device = device
        self._message = message
        self._due_s = self._first_due_s = due_s
        self._repeatable = repeatable
        self._stream = stream
        self._retries = operator.retries()
        self._tries = 0
        self._gives_up_s = operator.context.now() + _PATIENCE_S

    def go(self) -> None:
        if self._operator.is_over:
            return
        self._tries += 1
        context = self._operator.context
        context.engine.send(self._device, self._message, self, context.timeout_s)

    def answered(self, status: int, headers: Headers, body: bytes, sent_s: float, now_s: float) -> None:
        """The answer came. See :class:`~simulator.fleet.engine.ports.Caller`."""
        operator, outcome = self._operator, class_of(status)
        self._note(outcome, sent_s, now_s)
        if outcome is OutcomeClass.OK:
            try:
                command_id = _id_of(judge(HttpAnswer(status, headers, body)))
            except ServiceError as error:
                self._operator.observer.faulted(OPERATION, self._device, str(error))
                self._forget(now_s)
                return
            operator.under_way -= 1
            if command_id is None:  # the status has decided: it is there, under an id that the answer does not name
                operator.streams[self._stream].unanswered += 1
                operator.ledger.command("order_unanswered", self._device, "", now_s - operator.began_s)
                return
            at_s, digest = now_s - operator.began_s, operator.digests[self._stream]
            operator.ledger.command("ordered", self._device, command_id, at_s, digest=digest)
            operator.took(command_id, self._stream, self._first_due_s, now_s)
        elif status == _CONFLICT and _word_of(body) == KEY_IN_USE:
            # An attempt that timed out here still runs there: what became of the order is not known yet.
            if self._goes_on(now_s):
                self._again(self._retries.failed(read_retry_after(httpx.Headers(headers))), now_s)
            else:
                self._forget(now_s)
        elif outcome in _AGAIN and (self._repeatable or outcome is OutcomeClass.LIMITED) and self._goes_on(now_s):
            wait_s = read_retry_after(httpx.Headers(headers))
            self._again(self._retries.failed(wait_s, refused=outcome in REFUSALS), now_s)
        elif outcome is OutcomeClass.SERVER_ERROR:
            self._forget(now_s)
        else:
            self._give_up(f"{status} {_word_of(body)}".strip())

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """No answer. See :class:`~simulator.fleet.engine.ports.Caller`."""
        if self._operator.is_over:
            # Neither the target nor the network ended it: it has waited until now.
            outcome, reason = OutcomeClass.TIMEOUT, RUN_OVER
        self._note(outcome, sent_s, now_s)
        self._operator.observer.faulted(OPERATION, self._device, reason)
        if not self._operator.is_over and (self._repeatable or sent_s is None) and self._goes_on(now_s):
            self._again(self._retries.failed(left=sent_s is not None), now_s)
        else:
            self._forget(now_s)

    def _note(self, outcome: OutcomeClass, sent_s: float | None, now_s: float) -> None:
        self._operator.observer.exchanged(
            OPERATION,
            outcome,
            self._device,
            intended_s=self._due_s,
            ready_s=self._due_s,
            sent_s=sent_s,
            now_s=now_s,
            attempt=self._retries.attempt,
        )

    def _goes_on(self, now_s: float) -> bool:
        return self._tries < _TRIES or now_s < self._gives_up_s

    def _again(self, pause_s: float, now_s: float) -> None:
        self._due_s = now_s + pause_s
        self._operator.context.wheel.at(self._due_s, self.go)

    def _forget(self, now_s: float) -> None:
        operator = self._operator
        operator.under_way -= 1
        operator.streams[self._stream].unanswered += 1
        operator.ledger.command("order_unanswered", self._device, "", now_s - operator.began_s)

    def _give_up(self, why: str) -> None:
        self._operator.under_way -= 1
        self._operator.refused[why] += 1
        self._operator.streams[self._stream].refused += 1


def _id_of(answer: Answer) -> str | None:
    """The id that the service gave a command; None where the answer names none."""
    return read_written(CommandRecord, answer, "command", {"command_payload": {}}).id


def _word_of(body: bytes) -> str:
    try:
        found = json.loads(body)
    except ValueError:
        return ""
    return str(found.get("error", ""))[:80] if isinstance(found, dict) else ""
