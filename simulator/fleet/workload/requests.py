"""Plain requests over HTTP as devices make them (scenario kind ``requests``), without devices: no retry, no outbox.

Every body is made for its request (device id, sequence number, time, signals); nothing is sent twice. Arrivals are
open: each is sent at its planned time, whatever the target does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from agent.errors import ServiceError
from simulator.fleet.audit.ledger import SEQUENCE_NAME, ReadingEvent
from simulator.fleet.device.answers import judge, outcome_of
from simulator.fleet.device.http_messages import HttpMessages, Operation, Reading, Request, values_text
from simulator.fleet.device.links import DOWN, Links
from simulator.fleet.device.model import RUN_OVER, Fleet, Member
from simulator.fleet.engine.addresses import RequestHead
from simulator.fleet.engine.http import Http1Engine
from simulator.fleet.engine.http_answers import Headers, HttpAnswer
from simulator.fleet.outcomes import OutcomeClass, class_of
from simulator.fleet.scenario.model import Arrivals
from simulator.fleet.signals import DeviceRandom

_GOOD_BEGINNINGS: Final = frozenset({b"", b"{", b"["})
_CLEAR: Final = frozenset({OutcomeClass.OK, OutcomeClass.REFUSED, OutcomeClass.LIMITED})
"""Outcomes after which it is certain whether the service has what was sent."""
_EVENTS: Final[Mapping[OutcomeClass, ReadingEvent]] = {OutcomeClass.OK: "accepted", OutcomeClass.REFUSED: "refused"}


class RequestDriver:
    """Makes requests for a range of devices; all calls come from the loop's thread.

    Args:
        engine: carries the requests.
        fleet: what the devices have in common; the ledger gets every reading.
        members: the devices.
        heads: of requests, one for each member.
        arrivals: the scenario's.
        links: of the devices.

    Attributes:
        is_over: the run is over: what is under way counts as a timeout.
        undelivered: requests that were under way when the run was over.
    """

    def __init__(
        self,
        engine: Http1Engine,
        fleet: Fleet,
        members: Sequence[Member],
        heads: Sequence[RequestHead],
        arrivals: Sequence[Arrivals],
        links: Links,
    ) -> None:
        self.fleet = fleet
        self.links = links
        links.on_lost = self._link_lost
        self.is_over = False
        self.undelivered = 0
        self._engine = engine
        self._send = partial(links.send, engine) if links.has_faults else engine.send
        self._members = members
        self._heads = heads
        self._arrivals = arrivals
        self._messages = HttpMessages(fleet.offers, fleet.dialect)
        self._under_way: set[_Sending] = set()
        self._online: set[int] = set()
        self._random = [DeviceRandom(fleet.seed, fleet.first_index + number) for number in range(len(members))]
        self._sequences = [0] * len(members)

    # --- the same methods as DeviceDriver -----------------------------------------------------------------------------

    def switch_on(self, device: int) -> None:
        """Count a device as online; arrivals do not depend on it."""
        self._online.add(device)

    def switch_off(self, device: int) -> None:
        """Count a device as offline."""
        self._online.discard(device)

    def _link_lost(self, device: int) -> None:
        self._engine.cut(device)
        now_s = self.fleet.monotonic()
        for sending in [sending for sending in self._under_way if sending.device == device]:
            sending.failed(OutcomeClass.TRANSPORT, DOWN, now_s, now_s)

    def drain(self, from_s: float) -> None:
        """No-op: no sensors to stop; :meth:`has_settled` waits for all requests."""

    def unsettled(self) -> list[int]:
        """Devices with a request under way."""
        return list({sending.device for sending in self._under_way})

    def has_settled(self) -> bool:
        return not self._under_way

    def figures(self) -> Mapping[str, float]:
        """Current values, by name."""
        return {
            "online": float(len(self._online)),
            "waiting_readings": float(sum(bool(sending.request.keys) for sending in self._under_way)),
            "connections": float(self._engine.connections),
        }

    async def close(self) -> int:
        """Close every connection; the number of requests that were still without an answer."""
        self.is_over = True
        await self._engine.close()
        now_s = self.fleet.monotonic()
        for sending in list(self._under_way):  # lost on their link: the engine does not know them
            sending.failed(OutcomeClass.TIMEOUT, RUN_OVER, now_s, now_s)
        return self.undelivered

    # --- requests -----------------------------------------------------------------------------------------------------

    def arrive(self, stream: int, device: int, due_s: float) -> None:
        """Send one request of a stream of arrivals, due at ``due_s`` on the monotonic clock."""
        kind, place = self._arrivals[stream].operation, device - self.fleet.first_index
        device_id, head = self._members[place].device_id, self._heads[place]
        taken_s = self.fleet.monotonic()
        if kind == "sensor_data":
            reading = self._reading(place, device, taken_s)
            request = self._messages.readings(device_id, (reading,), f"{self.fleet.run}-{device}")
            request.intended_s = request.ready_s = due_s
        else:
            target = self._messages.poll_target(device_id)
            request = Request(Operation.POLL, "GET", target, intended_s=due_s, ready_s=due_s)
        sending = _Sending(self, request, device, taken_s)
        self._under_way.add(sending)
        message = head.message(request.method, request.target, request.headers, request.body)
        self._send(device, message, sending, self.fleet.timeout_s)

    def ended(self, sending: _Sending, outcome: OutcomeClass, fault: str, sent_s: float | None, now_s: float) -> None:
        """Record the end of a request in the ledger and the measurement, and forget it."""
        fleet, request, device = self.fleet, sending.request, sending.device
        if keys := request.keys:
            fleet.observer.readings_ended((sending.taken_s,), outcome, now_s)
            event = "unanswered" if outcome not in _CLEAR and sent_s is not None else _EVENTS.get(outcome)
            if event is not None:
                fleet.ledger.readings(event, device, keys, now_s - fleet.began_s)
        self._under_way.discard(sending)
        sending.is_wanted = False
        fleet.observer.exchanged(request.operation, outcome, device, request.intended_s, request.ready_s, sent_s, now_s)
        if fault:
            fleet.observer.faulted(request.operation, device, fault)
        fleet.on_news()

    def _reading(self, place: int, device: int, now_s: float) -> Reading:
        """The next reading of a device, recorded as sent; its key is its number on this device."""
        fleet, wall_s = self.fleet, self.fleet.wall()
        self._sequences[place] += 1
        sequence = self._sequences[place]
        values = self._members[place].model.signals.read(self._random[place], wall_s)
        digest = fleet.ledger.digest(values)
        if fleet.numbered:
            values[SEQUENCE_NAME] = fleet.first_number + sequence
        recorded_ms, at_s = round(wall_s * 1000), now_s - fleet.began_s
        carried_ms = recorded_ms if self._messages.sends_time else None
        fleet.ledger.reading_sent(device, sequence, digest, carried_ms, at_s, at_s)
        return Reading(sequence, values_text(values), recorded_ms)


class _Sending:
    """A request on its way: the engine's :class:`~simulator.fleet.engine.http_answers.Caller`."""

    __slots__ = ("_driver", "device", "is_wanted", "request", "taken_s")

    def __init__(self, driver: RequestDriver, request: Request, device: int, taken_s: float) -> None:
        self._driver = driver
        self.is_wanted = True
        self.request = request
        self.device = device
        self.taken_s = taken_s

    def answered(self, status: int, headers: Headers, body: bytes, sent_s: float, now_s: float) -> None:
        """See :class:`~simulator.fleet.engine.http_answers.Caller`."""
        outcome, fault = class_of(status), ""
        if outcome is not OutcomeClass.OK or body[:1] not in _GOOD_BEGINNINGS:
            try:
                judge(HttpAnswer(status, headers, body))
            except ServiceError as error:
                outcome, fault = outcome_of(error), str(error)
        self._driver.ended(self, outcome, fault, sent_s, now_s)

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """See :class:`~simulator.fleet.engine.http_answers.Caller`; cut off by the run's end, it is a timeout."""
        driver = self._driver
        if driver.is_over:
            driver.undelivered += 1
            outcome, reason = OutcomeClass.TIMEOUT, RUN_OVER
        driver.ended(self, outcome, reason, sent_s, now_s)
