"""Requests over HTTP as devices make them, without devices: no retry, no outbox.

Every body is made for its request (device id, sequence number, time, signals); nothing is sent twice. Open arrivals
come at times that somebody else plans, whatever the target does; closed users send the next request after the answer.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, Unpack

import httpx

from agent.errors import ServiceError
from agent.wire import paths
from agent.wire.answers import Answer
from agent.wire.commands import CommandRecord, SendCommand
from agent.wire.extensions import COMMAND_TTL
from agent.wire.json_text import encode_json
from simulator.fleet.audit.digest import digest_values
from simulator.fleet.audit.ledger import SEQUENCE_NAME
from simulator.fleet.device.answers import SOURCE, judge, outcome_of, read_written
from simulator.fleet.device.driver import Linked, Member
from simulator.fleet.device.http_codec import HttpCodec, Operation, Request, TimedReading, sends_time, values_text
from simulator.fleet.device.links import Links
from simulator.fleet.device.model import RUN_OVER, TIMEOUT_S, Clocks, Observer, SharedSettings, TransportOptions
from simulator.fleet.device.request_template import RequestTemplate
from simulator.fleet.engine.ports import Headers, HttpAnswer, HttpEngine
from simulator.fleet.engine.wheel import Timer, Wheel
from simulator.fleet.outcomes import Attempt, OutcomeClass, class_of
from simulator.fleet.scenario.model import Arrivals, ClosedArrivals
from simulator.fleet.signals import DeviceRandom

_COMMAND_TTL_S: Final = 60
_GOOD_BEGINNINGS: Final = frozenset({b"", b"{", b"["})
_CLEAR: Final = frozenset({OutcomeClass.OK, OutcomeClass.REFUSED, OutcomeClass.LIMITED})
"""Outcomes after which it is known whether the service has what was sent."""

RequestKind = Literal["sensor_data", "poll", "send_command"]
OnEnd = Callable[[float], None]


class RequestDriver(Linked):
    """Makes requests for a range of devices; all calls come from the loop's thread.

    Args:
        engine: carries the requests.
        wheel: for the pauses of closed users.
        templates: heads of requests, one for each member.
        members: the devices.
        fleet: what they have in common; the ledger gets every reading and command.
        arrivals: the scenario's.
        share: which part of all closed users this worker has.
        options: see there.
    """

    def __init__(
        self,
        engine: HttpEngine,
        wheel: Wheel,
        templates: Sequence[RequestTemplate],
        members: Sequence[Member],
        fleet: SharedSettings,
        arrivals: Sequence[Arrivals],
        share: float,
        **options: Unpack[TransportOptions],
    ) -> None:
        self.links = engine if isinstance(engine, Links) else None
        self.wheel = wheel
        self.fleet = fleet
        first = options.get("first_index", 0)
        self.devices = range(first, first + len(members))
        self.observer = options.get("observer") or Observer()
        self.clocks = options.get("clocks") or Clocks()
        self.is_over = False
        self.undelivered = 0
        """Open arrivals that were under way when the run was over."""
        self.under_way: set[_Sending] = set()
        self._engine = engine
        self._templates = templates
        self._arrivals = arrivals
        self._share = share
        self._timeout_s = options.get("timeout_s", TIMEOUT_S)
        self._on_news = options.get("on_news")
        self._online: set[int] = set()
        self._users: list[_User] = []
        self._is_draining = False
        self._is_dated = sends_time(fleet.offers, fleet.dialect)
        self._codecs = [HttpCodec(member.device_id, "", fleet.offers, fleet.dialect) for member in members]
        self._signals = [member.model.signals for member in members]
        self._individuals = [DeviceRandom.at(fleet.seed, device) for device in self.devices]
        self._sequences = array("L", bytes(array("L").itemsize * len(members)))
        self._taken_s: dict[tuple[int, int], float] = {}  # of readings under way, by device and number

    # --- as drivers of devices have it --------------------------------------------------------------------------------

    def switch_on(self, device: int) -> None:
        """A device counts from now on; the plan's arrivals go by it. The first one brings the closed users."""
        self._online.add(device)
        if not self._is_draining:
            self.sample(on=True)

    def switch_off(self, device: int) -> None:
        """Take a device out of those that are on."""
        self._online.discard(device)

    def arrive(self, stream: int, device: int, due_s: float) -> None:
        """A request of one of the scenario's open arrivals, due at that time on the worker's clock."""
        self.send(self._arrivals[stream].operation, device, due_s)

    def sample(self, *, on: bool) -> None:
        """Begin or end the closed users; what is under way still ends."""
        if not on:
            for user in self._users:
                user.stop()
            self._users.clear()
        elif not self._users:
            now_s = self.clocks.monotonic()
            for arrivals in self._arrivals:
                if isinstance(arrivals, ClosedArrivals):
                    count = max(1, round(arrivals.users * self._share))
                    users = [_User(self, arrivals, number, count) for number in range(count)]
                    self._users += users
                    for each in users:
                        self.wheel.at(now_s, each)

    def unsettled(self) -> list[int]:
        """Devices whose requests are under way, which end by themselves."""
        return list({sending.device for sending in self.under_way})

    def has_settled(self) -> bool:
        """Whether no request is under way."""
        return not self.under_way

    def await_requests(self, before_s: float) -> None:
        """Begin no users any more; requests under way are waited for whenever they fell due."""
        del before_s
        self._is_draining = True

    def had_contact(self, device: int) -> bool:
        """Always: no device carries anything out here."""
        del device
        return True

    def figures(self) -> Mapping[str, float]:
        """What is the case now."""
        return {
            "online": float(len(self._online)),
            "waiting_readings": float(len(self.under_way)),
            "connections": float(self._engine.connections),
        }

    async def close(self) -> int:
        """Close every connection; how many open arrivals were still without an answer."""
        self.sample(on=False)
        self.is_over = True
        await self._engine.close()
        return self.undelivered

    # --- requests -----------------------------------------------------------------------------------------------------

    def send(self, kind: RequestKind, device: int, due_s: float, on_end: OnEnd | None = None) -> None:
        """Send one request now.

        Args:
            kind: what for.
            device: index in the fleet.
            due_s: when it was to be sent, on the monotonic clock: what was waited is counted from here.
            on_end: called with the time of the end.
        """
        place, sequence = device - self.devices.start, 0
        codec = self._codecs[place]
        if kind == "sensor_data":
            reading = self._reading(place, device)
            sequence = reading.key
            request = codec.readings((reading,), f"{self.fleet.run}-{device}", due_s, due_s)
        elif kind == "poll":
            request = codec.poll(0.0, None, due_s)
        else:
            ttl_s = _COMMAND_TTL_S if COMMAND_TTL in self.fleet.offers else None
            order = SendCommand(device_id=codec.device_id, command_payload={"command": "ping"}, ttl_seconds=ttl_s)
            body = encode_json(order.to_wire())
            request = Request(Operation.ORDER, "POST", paths.SEND_COMMAND, body, intended_s=due_s, ready_s=due_s)
        sending = _Sending(self, request, device, sequence, on_end)
        self.under_way.add(sending)
        self._engine.send(device, self._templates[place].message(request), sending, self._timeout_s)

    def ended(
        self, sending: _Sending, outcome: OutcomeClass, fault: str, body: bytes, sent_s: float | None, now_s: float
    ) -> None:
        """Write down what became of a request, measure it, and forget it."""
        request, device = sending.request, sending.device
        self._write_down(sending, outcome, body, sent_s, now_s)
        self.under_way.discard(sending)
        self.observer.exchanged(
            request.operation,
            outcome,
            device,
            intended_s=request.intended_s,
            ready_s=request.ready_s,
            sent_s=sent_s,
            now_s=now_s,
            attempt=Attempt.FIRST,
        )
        if fault:
            self.observer.faulted(request.operation, device, fault)
        if sending.on_end is not None:
            sending.on_end(now_s)
        if self._on_news is not None:
            self._on_news()

    def _reading(self, place: int, device: int) -> TimedReading:
        """The next reading of a device, which is written down as sent; its key is its number on this device."""
        fleet, now = self.fleet, self.clocks.now()
        self._sequences[place] += 1
        sequence = self._sequences[place]
        values = self._signals[place].read(self._individuals[place], now.wall_s)
        digest = digest_values(values)
        if fleet.numbered:
            values[SEQUENCE_NAME] = fleet.first_number + sequence
        recorded_ms = round(now.wall_s * 1000)
        at_s = now.monotonic_s - fleet.began_s
        self._taken_s[device, sequence] = now.monotonic_s
        carried_ms = recorded_ms if self._is_dated else None
        fleet.ledger.reading_sent(device, sequence, digest, carried_ms, at_s, at_s)
        return TimedReading(sequence, values_text(values), recorded_ms)

    def _write_down(
        self, sending: _Sending, outcome: OutcomeClass, body: bytes, sent_s: float | None, now_s: float
    ) -> None:
        ledger, device, at_s = self.fleet.ledger, sending.device, now_s - self.fleet.began_s
        is_open = outcome not in _CLEAR and sent_s is not None
        if sequence := sending.sequence:
            self.fleet.ages.given_up((self._taken_s.pop((device, sequence)),), outcome, now_s)
            if outcome is OutcomeClass.OK:
                ledger.readings("accepted", device, (sequence,), at_s)
            elif outcome is OutcomeClass.REFUSED:
                ledger.readings("refused", device, (sequence,), at_s)
            elif is_open:
                ledger.readings("unanswered", device, (sequence,), at_s)
        elif sending.request.operation is Operation.ORDER:
            command_id = command_id_of(body) if outcome is OutcomeClass.OK else ""
            if command_id:
                ledger.command("ordered", device, command_id, at_s)
            elif outcome is OutcomeClass.OK or is_open:
                ledger.command("order_unanswered", device, "", at_s)


class _User(Timer):
    """One closed user: a request, its answer, a pause, the next request; they take turns at devices."""

    __slots__ = ("_arrivals", "_driver", "_number", "_step", "_stopped", "_wanted_s")

    def __init__(self, driver: RequestDriver, arrivals: ClosedArrivals, number: int, step: int) -> None:
        super().__init__()
        self._driver = driver
        self._arrivals = arrivals
        self._number = number
        self._step = step
        self._stopped = False
        self._wanted_s = driver.clocks.monotonic()

    def stop(self) -> None:
        """Begin no further request."""
        self._stopped = True
        self._driver.wheel.cancel(self)

    def fire(self) -> None:
        """Begin the next request: the pause is over."""
        devices = self._driver.devices
        device = devices[self._number % len(devices)]
        self._number += self._step
        self._driver.send(self._arrivals.operation, device, self._wanted_s, self._ended)

    def _ended(self, now_s: float) -> None:
        if not self._stopped:
            self._wanted_s = now_s + self._arrivals.pause_s
            self._driver.wheel.at(self._wanted_s, self)


class _Sending:
    """A request on its way: the engine's :class:`~simulator.fleet.engine.ports.Caller`."""

    __slots__ = ("_driver", "device", "on_end", "request", "sequence")

    def __init__(
        self, driver: RequestDriver, request: Request, device: int, sequence: int, on_end: OnEnd | None
    ) -> None:
        self._driver = driver
        self.request = request
        self.device = device
        self.sequence = sequence
        self.on_end = on_end

    def answered(self, status: int, headers: Headers, body: bytes, sent_s: float, now_s: float) -> None:
        """The answer came."""
        outcome, fault = class_of(status), ""
        if outcome is not OutcomeClass.OK or body[:1] not in _GOOD_BEGINNINGS:
            try:
                judge(HttpAnswer(status, headers, body))
            except ServiceError as error:
                outcome, fault = outcome_of(error), str(error)
        self._driver.ended(self, outcome, fault, body, sent_s, now_s)

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """No answer; one that ends with the run counts as a timeout."""
        driver = self._driver
        if driver.is_over:
            driver.undelivered += self.on_end is None
            outcome, reason = OutcomeClass.TIMEOUT, RUN_OVER
        driver.ended(self, outcome, reason, b"", sent_s, now_s)


def command_id_of(body: bytes) -> str:
    """The id that the service gave a command; empty where the answer names none."""
    answer = Answer(200, httpx.Headers(), body, SOURCE)
    return read_written(CommandRecord, answer, "command", {"command_payload": {}}).id or ""
