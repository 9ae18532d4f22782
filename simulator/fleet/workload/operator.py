"""The operator: sends commands to devices at the plan's instants, and keeps sending one until it is known to be taken.

A command that got no answer is sent again only where the service takes idempotency keys; elsewhere nobody knows whether
it exists, and the ledger has that instead. One that is sent again is given up after eight attempts, and no sooner than
a minute after the first: eight attempts may lie within three seconds, and a service that starts again takes longer.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from agent.errors import Advice, ErrorAnswer, ServiceError
from agent.health import Backoff
from agent.wire.server import COMMAND_TTL, IDEMPOTENCY_KEY
from simulator.fleet.audit.ledger import digest_document
from simulator.fleet.device.answers import Retries, command_id_in
from simulator.fleet.device.http_messages import HttpMessages
from simulator.fleet.device.model import Fleet
from simulator.fleet.metrics.ages import EndState
from simulator.fleet.outcomes import Attempt
from simulator.fleet.plan import Event
from simulator.fleet.record import CommandEnds
from simulator.fleet.workload.base import Job, MeasuredRequests, Measurement
from simulator.watched import start_task

EXPIRY_MARGIN_S: Final = 2.0
"""A command that its device has not got so long after its end is on its way to it no more."""
_CONNECTIONS: Final = 8
_TRIES: Final = 8
_PATIENCE_S: Final = 60.0
_BACKOFF: Final = Backoff(base_s=0.5, cap_s=10.0)
_CONTACT_LOOK_S: Final = 0.2
_NO_CONTACT: Final = (
    "their devices never had an answer to a poll, and a server that lists no states would have shown them as history"
)

OnOrdered = Callable[[str, int, float, float | None], object]
"""Called with a command's id, the number of its stream, when it was due by the plan, and when the service hands it out
no more (None where it takes no time to live); on the monotonic clock."""


class Operator:
    """One for each worker; sends to that worker's devices.

    Args:
        job: of the worker.
        fleet: the worker's devices.
        measurement: of the worker.
        on_ordered: called for each command that the service took.
        had_contact: whether a device, by its index in the fleet, ever had a list of its commands; None where that does
            not matter.

    Attributes:
        held: commands that wait for their device's first contact.
        unanswered: how many orders may be commands whose id is not known: no answer, or one that does not say it.
    """

    def __init__(
        self,
        job: Job,
        fleet: Fleet,
        measurement: Measurement,
        on_ordered: OnOrdered,
        had_contact: Callable[[int], bool] | None,
    ) -> None:
        self.held = self.unanswered = 0
        self._job = job
        self._fleet = fleet
        self._on_ordered = on_ordered
        self._had_contact = had_contact
        self._requests = MeasuredRequests(job, _CONNECTIONS, measurement)
        self._messages = HttpMessages(job.offers)
        self._commands = job.scenario.commands
        self._tallies = [Counter[str]() for _ in self._commands]  # how orders ended, of each stream of commands
        self._refusals: Counter[str] = Counter()  # by the status and the service's word
        self._orders: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        """Whether an order has not come to its end yet."""
        return bool(self._orders)

    def send(self, event: Event, due_s: float) -> None:
        """Send the command of an event of the plan, which was due at this time on the monotonic clock."""
        task = start_task(self._order(event, due_s), "order")
        self._orders.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._orders.discard(task)
        self._fleet.on_news()

    async def _order(self, event: Event, due_s: float) -> None:
        stream, device, fleet = event.number, event.device, self._fleet
        if self._had_contact is not None and not self._had_contact(device):
            # What a server without states lists at a device's first contact is history to it, and never carried out.
            self.held += 1
            while not self._had_contact(device):  # noqa: ASYNC110 - nobody tells of it, and few commands ever wait
                await asyncio.sleep(_CONTACT_LOOK_S)
            self.held -= 1
            due_s = fleet.monotonic()
        command, tally = self._commands[stream], self._tallies[stream]
        once = f"{fleet.run}-order-{stream}-{event.serial}"
        device_id = self._job.device_ids[device - fleet.first_index]
        request = self._messages.order(device_id, command.payload, command.ttl_s, due_s, once)
        retries, gives_up_s = Retries(_BACKOFF, random.random), fleet.monotonic() + _PATIENCE_S

        def goes_again(error: ServiceError) -> bool:
            is_safe = IDEMPOTENCY_KEY in self._job.offers or retries.attempt is not Attempt.AMBIGUOUS
            is_patient = retries.failures < _TRIES or fleet.monotonic() < gives_up_s
            return error.advice is Advice.RETRY and is_safe and is_patient

        tally["sent"] += 1
        command_id = ""
        try:
            command_id = await self._requests.ask(request, command_id_in, goes_again, retries, device)
        except ServiceError as error:
            if isinstance(error, ErrorAnswer) and error.advice is not Advice.RETRY:
                tally["refused"] += 1
                self._refusals[f"{error.status} {error.error[:80]}".strip()] += 1
                return
        except asyncio.CancelledError:
            if retries.attempt is Attempt.AMBIGUOUS:
                self._lose_sight(device, tally)
            raise
        if not command_id:
            self._lose_sight(device, tally)
            return
        now_s = fleet.monotonic()
        digest = digest_document(command.payload)
        fleet.ledger.command("ordered", device, command_id, now_s - fleet.began_s, digest=digest)
        expires_s = now_s + round(command.ttl_s) if COMMAND_TTL in self._job.offers else None
        self._on_ordered(command_id, stream, due_s, expires_s)

    def _lose_sight(self, device: int, tally: Counter[str]) -> None:
        """The service may have the command, and nobody knows its id."""
        self.unanswered += 1
        tally["unanswered"] += 1
        self._fleet.ledger.command("order_unanswered", device, "", self._fleet.monotonic() - self._fleet.began_s)

    async def close(self) -> None:
        """The run is over: nothing goes out again."""
        for task in self._orders:
            task.cancel()
        await asyncio.gather(*self._orders, return_exceptions=True)
        await self._requests.close()

    def failures(self) -> list[str]:
        """A sentence for each reason why commands did not get to the service."""
        found = [f"{count} commands were refused: {why}" for why, count in self._refusals.items()]
        return [*found, f"{self.held} commands were not sent: {_NO_CONTACT}"] if self.held else found

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
                each.name, each.expect, tally["sent"], tally["refused"], tally["unanswered"], told.get(stream, {})
            )
            for stream, (each, tally) in enumerate(zip(self._commands, self._tallies, strict=True))
        ]
        return (*ours, CommandEnds("", "any", 0, 0, 0, told.get(None, {})))
