"""The operator: sends commands to devices at the plan's instants, and keeps sending one until it is known to be taken.

A command that got no answer is sent again only where the service takes idempotency keys; elsewhere nobody knows whether
it exists, and the ledger has that instead. One that is sent again is given up after eight attempts, and no sooner than
a minute after the first: eight attempts may lie within three seconds, and a service that starts again takes longer.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from agent.errors import ErrorAnswer, RateLimited, ServiceError, StillRunning, TransportError, UnexpectedAnswer
from agent.health import Backoff
from agent.wire.server import COMMAND_TTL, IDEMPOTENCY_KEY
from simulator.fleet.audit.ledger import digest_document
from simulator.fleet.device.answers import HashedRandom, Retries, command_id_in
from simulator.fleet.device.http_messages import HttpMessages, Operation
from simulator.fleet.device.model import RUN_OVER, Fleet
from simulator.fleet.engine.addresses import RequestHead
from simulator.fleet.engine.http import Http1Engine
from simulator.fleet.engine.http_answers import Headers, HttpAnswer
from simulator.fleet.metrics.ages import EndState
from simulator.fleet.outcomes import OutcomeClass, class_of
from simulator.fleet.record import CommandEnds
from simulator.fleet.scenario.model import CommandSettings

_OPERATION: Final = Operation.ORDER
EXPIRY_MARGIN_S: Final = 2.0
"""A command that its device has not got so long after its end is on its way to it no more."""
_TRIES: Final = 8
_PATIENCE_S: Final = 60.0
_BACKOFF: Final = Backoff(base_s=0.5, cap_s=10.0)

OnOrdered = Callable[[str, int, float, float | None], object]
"""Called with a command's id, the number of its stream, when it was due by the plan, and when the service hands it out
no more (None where it takes no time to live); on the monotonic clock."""


class Operator:
    """One for each worker; sends to that worker's devices.

    Args:
        engine: carries the requests, under an index that no device has.
        fleet: the worker's devices.
        heads: of requests, one with each credential of the operator; its commands take turns.
        device_ids: the service's ids of this worker's devices.
        offers: the service's extensions.
        commands: the scenario's streams of commands.
        on_ordered: called for each command that the service took.

    Attributes:
        under_way: orders that were sent and are not answered for good yet.
        refused: orders that were refused for good, by the status and the service's word.
        tallies: of each stream of commands how many orders were ``sent``; how many were ``refused`` for good; and
            ``unanswered``: given up without an answer, or answered without the command's id.
        is_over: the run is over; what ends from now on has not come to an end by itself, and nothing goes out again.
    """

    def __init__(
        self,
        engine: Http1Engine,
        fleet: Fleet,
        heads: Sequence[RequestHead],
        device_ids: Sequence[str],
        offers: frozenset[str],
        commands: Sequence[CommandSettings],
        on_ordered: OnOrdered,
    ) -> None:
        self.engine = engine
        self.fleet = fleet
        self.under_way = 0
        self.refused: Counter[str] = Counter()
        self.tallies = tuple(Counter[str]() for _ in commands)
        self.is_over = False
        self.is_repeatable = IDEMPOTENCY_KEY in offers
        self.digests = tuple(digest_document(command.payload) for command in commands)
        self.chance = HashedRandom(0, fleet.first_index)
        self._messages = HttpMessages(offers)
        self._commands = commands
        self._device_ids = device_ids
        self._heads = itertools.cycle(heads)
        self._on_ordered = on_ordered

    def send(self, device: int, stream: int, serial: int, due_s: float) -> None:
        """Send one command to a device.

        Args:
            device: index in the fleet.
            stream: number of the scenario's stream of commands.
            serial: of the command in its stream; both together identify the order within the run.
            due_s: when it was due by the plan, on the engine's clock.
        """
        command, device_id = self._commands[stream], self._device_ids[device - self.fleet.first_index]
        once = f"{self.fleet.run}-order-{stream}-{serial}"
        request = self._messages.order(device_id, command.payload, command.ttl_s, due_s, once)
        self.under_way += 1
        self.tallies[stream]["sent"] += 1
        message = next(self._heads).message(request.method, request.target, request.headers, request.body)
        _Order(self, device, message, due_s, stream).go()

    def took(self, device: int, command_id: str, stream: int, due_s: float, now_s: float) -> None:
        """The service has a command, and answered now; without an id it is there, and nobody knows which it is."""
        fleet = self.fleet
        if not command_id:
            self.forget(device, stream, now_s)
            return
        self.under_way -= 1
        fleet.ledger.command("ordered", device, command_id, now_s - fleet.began_s, digest=self.digests[stream])
        expires_s = now_s + round(self._commands[stream].ttl_s) if COMMAND_TTL in self._messages.offers else None
        self._on_ordered(command_id, stream, due_s, expires_s)

    def forget(self, device: int, stream: int, now_s: float) -> None:
        """Nobody knows what became of an order."""
        fleet = self.fleet
        self.under_way -= 1
        self.tallies[stream]["unanswered"] += 1
        fleet.ledger.command("order_unanswered", device, "", now_s - fleet.began_s)

    def end(self) -> int:
        """The run is over; how many orders never came to their end: without an answer, or waiting to go out again."""
        self.is_over = True
        return self.under_way

    def count_unnumbered(self) -> int:
        """How many orders may be commands whose id is not known: no answer, or one that does not say it."""
        return sum(tally["unanswered"] for tally in self.tallies)

    def command_ends(self, ends: Mapping[int | None, Mapping[EndState, int]]) -> tuple[CommandEnds, ...]:
        """How the commands to this worker's devices ended.

        Args:
            ends: how so many commands of a stream ended; under None those that nobody here sent.
        """
        if not self._commands:
            return ()
        told = {stream: {str(state): count for state, count in each.items()} for stream, each in ends.items()}
        ours = [
            CommandEnds(
                command.name,
                command.expect,
                sent=tally["sent"],
                refused=tally["refused"],
                unanswered=tally["unanswered"],
                ends=told.get(stream, {}),
            )
            for stream, (command, tally) in enumerate(zip(self._commands, self.tallies, strict=True))
        ]
        return (*ours, CommandEnds("", "any", 0, 0, 0, told.get(None, {})))


class _Order:
    """A command on its way to the service: the engine's :class:`~simulator.fleet.engine.http_answers.Caller`."""

    is_wanted = True
    __slots__ = ("_device", "_due_s", "_first_due_s", "_gives_up_s", "_message", "_operator", "_retries", "_stream")

    def __init__(self, operator: Operator, device: int, message: bytes, due_s: float, stream: int) -> None:
        self._operator = operator
        self._device = device
        self._message = message
        self._due_s = self._first_due_s = due_s
        self._stream = stream
        self._retries = Retries(_BACKOFF, operator.chance)
        self._gives_up_s = operator.fleet.monotonic() + _PATIENCE_S

    def go(self) -> None:
        """Send it, once more."""
        operator = self._operator
        if not operator.is_over:
            operator.engine.send(self._device, self._message, self, operator.fleet.timeout_s)

    def answered(self, status: int, headers: Headers, body: bytes, sent_s: float, now_s: float) -> None:
        """See :class:`~simulator.fleet.engine.http_answers.Caller`."""
        operator = self._operator
        self._measure(class_of(status), sent_s, now_s)
        try:
            command_id = command_id_in(HttpAnswer(status, headers, body))
        except ServiceError as error:
            is_answer = isinstance(error, ErrorAnswer)
            is_open = isinstance(error, StillRunning) or class_of(status) is OutcomeClass.SERVER_ERROR
            if is_answer and not is_open and not isinstance(error, RateLimited):
                operator.under_way -= 1
                operator.refused[f"{status} {getattr(error, 'error', '')[:80]}".strip()] += 1
                operator.tallies[self._stream]["refused"] += 1
                return
            if not is_answer:
                operator.fleet.observer.faulted(_OPERATION, self._device, str(error))
            is_again = is_answer and (operator.is_repeatable or isinstance(error, RateLimited))
            self._go_on(error, now_s, is_again=is_again)
        else:
            operator.took(self._device, command_id, self._stream, self._first_due_s, now_s)

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """See :class:`~simulator.fleet.engine.http_answers.Caller`."""
        operator = self._operator
        if operator.is_over:
            # Neither the target nor the network ended it: it has waited until now.
            outcome, reason = OutcomeClass.TIMEOUT, RUN_OVER
        self._measure(outcome, sent_s, now_s)
        operator.fleet.observer.faulted(_OPERATION, self._device, reason)
        error = UnexpectedAnswer(reason) if outcome is OutcomeClass.UNEXPECTED else TransportError(reason)
        is_again = not operator.is_over and (operator.is_repeatable or sent_s is None)
        self._go_on(error, now_s, is_again=is_again, left=sent_s is not None)

    def _go_on(self, error: ServiceError, now_s: float, *, is_again: bool, left: bool = True) -> None:
        """Send it again after a while, or give it up."""
        if is_again and (self._retries.failures + 1 < _TRIES or now_s < self._gives_up_s):
            self._due_s = now_s + self._retries.failed(error, left=left)
            self._operator.fleet.wheel.at(self._due_s, self.go)
        else:
            self._operator.forget(self._device, self._stream, now_s)

    def _measure(self, outcome: OutcomeClass, sent_s: float | None, now_s: float) -> None:
        due_s, attempt = self._due_s, self._retries.attempt
        self._operator.fleet.observer.exchanged(_OPERATION, outcome, self._device, due_s, due_s, sent_s, now_s, attempt)
