"""The operator: sends commands to devices at the plan's times, and retries each until the service has accepted it.

A command that got no answer is sent again only where the service takes idempotency keys; elsewhere it is not retried,
and the ledger records `order_unanswered`. Retries end after eight attempts, and no sooner than a minute after the
first: eight attempts may lie within three seconds, and a service that restarts takes longer.
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
"""Grace after expiry before an undelivered command counts as expired."""
_CONNECTIONS: Final = 8
_TRIES: Final = 8
_PATIENCE_S: Final = 60.0
_BACKOFF: Final = Backoff(base_s=0.5, cap_s=10.0)
_CONTACT_LOOK_S: Final = 0.2
_REASON_CHARACTERS: Final = 100
_NO_CONTACT: Final = (
    "their devices never had an answer to a poll, and a server that lists no states would have shown them as history"
)

OnOrdered = Callable[[str, int, float, float | None], object]
"""Called with a command's id, the number of its stream, when it was due by the plan, and when it expires at the service
(None where the service takes no time to live); on the monotonic clock."""


class Operator:
    """One for each worker; sends to that worker's devices.

    Args:
        job: of the worker.
        fleet: the worker's devices.
        measurement: of the worker.
        on_ordered: called for each command that the service took.
        had_contact: whether a device, by its index in the fleet, ever received a list of its commands; None where that
            does not matter.

    Attributes:
        held: commands that wait for their device's first contact.
        unanswered: orders that the service may have accepted, but whose command id is unknown.
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
        self._tallies = [Counter[str]() for _ in self._commands]  # how orders ended, by stream
        self._failures: Counter[str] = Counter()  # orders that the service surely did not accept, by the reason
        self._orders: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        """Whether an order is still under way."""
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
            # A device takes what a server without states lists at its first contact for history, and never runs it.
            self.held += 1
            while not self._had_contact(device):  # noqa: ASYNC110 - there is no event for it, and few commands ever wait
                await asyncio.sleep(_CONTACT_LOOK_S)
            self.held -= 1
            due_s = fleet.monotonic()
        command, tally = self._commands[stream], self._tallies[stream]
        idempotency_key = f"{fleet.run}-order-{stream}-{event.serial}"
        device_id = self._job.device_ids[device - fleet.first_index]
        request = self._messages.send_command(device_id, command.payload, command.ttl_s, due_s, idempotency_key)
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
            if error.advice is not Advice.RETRY or retries.attempt is not Attempt.AMBIGUOUS:
                reason = f"never left: {error}"
                if isinstance(error, ErrorAnswer):
                    reason = f"were refused: {error.status} {error.error}"
                tally["refused"] += 1
                self._failures[reason[:_REASON_CHARACTERS].strip()] += 1
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
        """Record that the service may have the command, under an id that is not known here."""
        self.unanswered += 1
        tally["unanswered"] += 1
        self._fleet.ledger.command("order_unanswered", device, "", self._fleet.monotonic() - self._fleet.began_s)

    async def close(self) -> None:
        """Cancel all orders that are under way, and close every connection."""
        for task in self._orders:
            task.cancel()
        await asyncio.gather(*self._orders, return_exceptions=True)
        await self._requests.close()

    def failures(self) -> list[str]:
        """A sentence for each reason why the service did not accept commands."""
        found = [f"{count} commands {what}" for what, count in self._failures.items()]
        return [*found, f"{self.held} commands were not sent: {_NO_CONTACT}"] if self.held else found

    def command_ends(self, ends: Mapping[int | None, Mapping[EndState, int]]) -> tuple[CommandEnds, ...]:
        """How the commands to this worker's devices ended.

        Args:
            ends: by stream, the number of commands in each end state; None stands for those that this run did not send.
        """
        if not self._commands:
            return ()
        counts = {stream: {str(state): count for state, count in each.items()} for stream, each in ends.items()}
        ours = [
            CommandEnds(
                each.name, each.expect, tally["sent"], tally["refused"], tally["unanswered"], counts.get(stream, {})
            )
            for stream, (each, tally) in enumerate(zip(self._commands, self._tallies, strict=True))
        ]
        return (*ours, CommandEnds("", "any", 0, 0, 0, counts.get(None, {})))
