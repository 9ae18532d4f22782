"""The level ``wire`` over HTTP: pure load. Requests as devices make them, without devices: no retry, no outbox.

Every body is made for its request (device id, sequence number, time, signals); nothing is sent twice. Open arrivals
come at times that somebody else plans, whatever the target does; closed users send the next request after the answer.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import httpx

from agent.core.values import Moment
from agent.errors import ServiceError
from agent.wire import paths
from agent.wire.answers import Answer
from agent.wire.commands import CommandRecord
from agent.wire.extensions import COMMAND_TTL
from agent.wire.json_text import encode_json
from agent.wire.sending import SendCommand
from simulator.fleet.audit.digest import digest_values
from simulator.fleet.audit.fleet_ledger import SEQUENCE_NAME
from simulator.fleet.device.answers import SOURCE, judge, outcome_of, read_written
from simulator.fleet.device.http_codec import HttpCodec, Operation, Request, TimedReading, sends_time, values_text
from simulator.fleet.device.model import RUN_OVER, TIMEOUT_S, Clocks, Observer, SharedSettings
from simulator.fleet.device.request_template import RequestTemplate
from simulator.fleet.engine.ports import Headers, HttpAnswer, HttpEngine
from simulator.fleet.engine.wheel import Timer, Wheel
from simulator.fleet.outcomes import Attempt, OutcomeClass, class_of
from simulator.fleet.signals import CLIMATE, DeviceRandom, SignalSet

CLEAR: Final = frozenset({OutcomeClass.OK, OutcomeClass.REFUSED, OutcomeClass.LIMITED})
"""Outcomes after which it is known whether the service has what was sent."""


class RequestKind(StrEnum):
    """What is asked for; the words of a scenario's ``arrivals``."""

    SENSOR_DATA = "sensor_data"
    POLL = "poll"
    SEND_COMMAND = "send_command"


@dataclass(frozen=True, slots=True)
class LoadDevice:
    """A device that requests are made for.

    Attributes:
        device_id: the service's.
        signals: what its readings hold; shared with all of its model.
    """

    device_id: str
    signals: SignalSet = field(default_factory=lambda: CLIMATE)


class ReadingMaker:
    """Makes readings, each for its request, and records what becomes of them.

    Args:
        fleet: what the devices have in common; its ledger gets every reading.
        first_index: of the first of them, in the fleet.
        subjects: the devices.
    """

    def __init__(
        self, fleet: SharedSettings, first_index: int, subjects: Sequence[LoadDevice], *, is_dated: bool = True
    ) -> None:
        self._fleet = fleet
        self._first = first_index
        self._is_dated = is_dated
        self._signals = [subject.signals for subject in subjects]
        self._individuals = [DeviceRandom.at(fleet.seed, first_index + place) for place in range(len(subjects))]
        self._sequences = array("L", bytes(array("L").itemsize * len(subjects)))
        self._taken_s: dict[tuple[int, int], float] = {}  # of those under way, by device and number

    def make(self, device: int, now: Moment) -> TimedReading:
        """The next reading of a device, which is written down as sent; its key is its number on this device."""
        fleet, place = self._fleet, device - self._first
        sequence = self._sequences[place] + 1
        self._sequences[place] = sequence
        values = self._signals[place].read(self._individuals[place], now.wall_s)
        digest = digest_values(values)
        if fleet.numbered:
            values[SEQUENCE_NAME] = fleet.first_number + sequence
        recorded_ms = round(now.wall_s * 1000)
        carried_ms = recorded_ms if self._is_dated else None
        at_s = now.monotonic_s - fleet.began_s
        self._taken_s[device, sequence] = now.monotonic_s
        fleet.ledger.reading_made(device)
        fleet.ledger.reading_sent(device, sequence, digest, recorded_ms=carried_ms, made_s=at_s, at_s=at_s)
        return TimedReading(sequence, values_text(values), recorded_ms)

    def write_down(self, device: int, sequence: int, outcome: OutcomeClass, sent_s: float | None, now_s: float) -> None:
        """Write down what became of a reading.

        Args:
            device: whose, its index in the fleet.
            sequence: its number.
            outcome: how its request ended.
            sent_s: None when nothing went out.
            now_s: when it ended, on the monotonic clock.
        """
        ledger, at_s = self._fleet.ledger, now_s - self._fleet.began_s
        taken_s = self._taken_s.pop((device, sequence))
        self._fleet.ages.given_up((taken_s,), outcome, now_s)
        if outcome is OutcomeClass.OK:
            ledger.readings_accepted(device, (sequence,), at_s)
        elif outcome is OutcomeClass.REFUSED:
            ledger.readings_refused(device, (sequence,), at_s)
        elif outcome not in CLEAR and sent_s is not None:
            ledger.readings_unanswered(device, (sequence,), at_s)


OnEnd = Callable[[float], None]
Sender = Callable[[RequestKind, int, float, OnEnd], None]
"""Sends a request for a device that was due at a time, and calls with the time of its end."""


class Users:
    """Closed users: each sends the next request a pause after the answer; they take turns at devices.

    Args:
        wheel: for the pauses.
        time: the wheel's clock.
        devices: their places in the fleet.
        send: see :data:`Sender`.
    """

    def __init__(
        self,
        wheel: Wheel,
        time: Callable[[], float],
        devices: range,
        send: Sender,
    ) -> None:
        self.wheel = wheel
        self.time = time
        self.devices = devices
        self.send = send
        self._users: list[_User] = []

    def start(self, kind: RequestKind, users: int, pause_s: float = 0.0) -> None:
        """Start so many more users."""
        now_s = self.time()
        for number in range(users):
            user = _User(self, kind, number, users, pause_s)
            self._users.append(user)
            self.wheel.at(now_s, user)

    def stop(self) -> None:
        """No user begins another request; what is under way still ends."""
        for user in self._users:
            user.stop()
        self._users.clear()


class _User(Timer):
    """One closed user: a request, its answer, a pause, the next request."""

    __slots__ = ("_device", "_kind", "_pause_s", "_step", "_stopped", "_users", "_wanted_s")

    def __init__(self, users: Users, kind: RequestKind, number: int, step: int, pause_s: float) -> None:
        super().__init__()
        self._wanted_s = users.time()
        self._users = users
        self._kind = kind
        self._pause_s = pause_s
        self._step = step
        self._device = number
        self._stopped = False

    def stop(self) -> None:
        """Begin no further request."""
        self._stopped = True
        self._users.wheel.cancel(self)

    def fire(self) -> None:
        """Begin the next request: the pause is over."""
        users = self._users
        device = users.devices[self._device % len(users.devices)]
        self._device += self._step
        users.send(self._kind, device, self._wanted_s, self._ended)

    def _ended(self, now_s: float) -> None:
        if not self._stopped:
            self._wanted_s = now_s + self._pause_s
            self._users.wheel.at(self._wanted_s, self)


_COMMAND_TTL_S: Final = 60
_GOOD_BEGINNINGS: Final = frozenset({b"", b"{", b"["})


class HttpLoad:
    """Makes requests for a range of devices; all calls come from the loop's thread.

    Args:
        engine: carries the requests.
        wheel: for the pauses of closed users.
        templates: heads of requests, one for each subject.
        subjects: the devices.
        fleet: what they have in common; the ledger gets every reading and command.
        first_index, observer, clocks, timeout_s, on_news: see
            :class:`~simulator.fleet.device.model.TransportOptions`.

    Attributes:
        devices: their places in the fleet.
        is_over: the run is over; what ends from now on has not come to an end by itself.
        undelivered: open arrivals that were under way then.
        under_way: requests that have no answer yet.
    """

    def __init__(
        self,
        engine: HttpEngine,
        wheel: Wheel,
        templates: Sequence[RequestTemplate],
        subjects: Sequence[LoadDevice],
        fleet: SharedSettings,
        *,
        first_index: int = 0,
        observer: Observer | None = None,
        clocks: Clocks | None = None,
        timeout_s: float = TIMEOUT_S,
        on_news: Callable[[], None] | None = None,
    ) -> None:
        self.wheel = wheel
        self.fleet = fleet
        self.devices = devices = range(first_index, first_index + len(subjects))
        self.observer = observer or Observer()
        self.clocks = clocks or Clocks()
        self.timeout_s = timeout_s
        self.is_over = False
        self.undelivered = 0
        self._on_news = on_news
        users = Users(wheel, self.clocks.monotonic, devices, self.send)
        self.start_users = users.start
        self.stop_users = users.stop
        self.engine = engine
        self.under_way: set[_Sending] = set()
        self._templates = templates
        is_dated = sends_time(fleet.offers, fleet.dialect)
        self._readings = ReadingMaker(fleet, self.devices.start, subjects, is_dated=is_dated)
        self._codecs = [HttpCodec(subject.device_id, "", fleet.offers, fleet.dialect) for subject in subjects]
        self._makers = {
            RequestKind.SENSOR_DATA: self._reading,
            RequestKind.POLL: self._poll,
            RequestKind.SEND_COMMAND: self._command,
        }

    def send(self, kind: RequestKind, device: int, due_s: float, on_end: OnEnd | None = None) -> None:
        """Send one request now.

        Args:
            kind: what for.
            device: index in the fleet.
            due_s: when it was to be sent, on the monotonic clock: what was waited is counted from here.
            on_end: called with the time of the end.
        """
        request, sequence = self._makers[kind](device - self.devices.start, device, due_s)
        sending = _Sending(self, request, device, sequence, on_end)
        self.under_way.add(sending)
        template = self._templates[device - self.devices.start]
        self.engine.send(device, template.message(request), sending, self.timeout_s)

    def end(self) -> None:
        """The run is over: whatever the engine ends from now on was never answered."""
        self.stop_users()
        self.is_over = True

    # --- bodies -------------------------------------------------------------------------------------------------------

    def _reading(self, place: int, device: int, due_s: float) -> tuple[Request, int]:
        reading = self._readings.make(device, self.clocks.now())
        return self._codecs[place].readings((reading,), f"{self.fleet.run}-{device}", due_s, due_s), reading.key

    def _poll(self, place: int, _device: int, due_s: float) -> tuple[Request, int]:
        return self._codecs[place].poll(0.0, None, due_s), 0

    def _command(self, place: int, _device: int, due_s: float) -> tuple[Request, int]:
        order = SendCommand(
            device_id=self._codecs[place].device_id,
            command_payload={"command": "ping"},
            ttl_seconds=_COMMAND_TTL_S if COMMAND_TTL in self.fleet.offers else None,
        )
        body = encode_json(order.to_wire())
        return Request(Operation.ORDER, "POST", paths.SEND_COMMAND, body, intended_s=due_s, ready_s=due_s), 0

    # --- ends ---------------------------------------------------------------------------------------------------------

    def notify(self) -> None:
        """Call ``on_news``: something changed."""
        if self._on_news is not None:
            self._on_news()

    def end_of(self, outcome: OutcomeClass, reason: str, *, is_open: bool) -> tuple[OutcomeClass, str]:
        """Outcome and reason of a request that failed; one that ends with the run counts as a timeout.

        Args:
            outcome: why the engine ended it.
            reason: the same, for a person.
            is_open: it is an open arrival, and no closed user waits for it.
        """
        if not self.is_over:
            return outcome, reason
        self.undelivered += is_open
        return OutcomeClass.TIMEOUT, RUN_OVER

    def measure(
        self,
        operation: str,
        request: Request,
        outcome: OutcomeClass,
        device: int,
        *,
        sent_s: float | None,
        now_s: float,
    ) -> None:
        """Hand an exchange that ended to the observer; nothing is sent twice here."""
        self.observer.exchanged(
            operation,
            outcome,
            device,
            intended_s=request.intended_s,
            ready_s=request.ready_s,
            sent_s=sent_s,
            now_s=now_s,
            attempt=Attempt.FIRST,
        )

    def settle(self, sending: _Sending, outcome: OutcomeClass, sent_s: float | None, now_s: float, fault: str) -> None:
        """Measure a request that ended, and forget it."""
        request = sending.request
        self.under_way.discard(sending)
        self.measure(request.operation, request, outcome, sending.device, sent_s=sent_s, now_s=now_s)
        if fault:
            self.observer.faulted(request.operation, sending.device, fault)
        if sending.on_end is not None:
            sending.on_end(now_s)
        self.notify()

    def write_down(
        self, sending: _Sending, outcome: OutcomeClass, body: bytes, sent_s: float | None, now_s: float
    ) -> None:
        """Write down what became of the reading or the command."""
        ledger, device, at_s = self.fleet.ledger, sending.device, now_s - self.fleet.began_s
        if sending.sequence:
            self._readings.write_down(device, sending.sequence, outcome, sent_s, now_s)
        elif sending.request.operation is Operation.ORDER:
            command_id = command_id_of(body) if outcome is OutcomeClass.OK else ""
            if command_id:
                ledger.command_ordered(device, command_id, at_s)
            elif outcome is OutcomeClass.OK or (outcome not in CLEAR and sent_s is not None):
                ledger.order_unanswered(device, at_s)


class _Sending:
    """A request on its way: the engine's :class:`~simulator.fleet.engine.ports.Caller`."""

    __slots__ = ("_load", "device", "on_end", "request", "sequence")

    def __init__(self, load: HttpLoad, request: Request, device: int, sequence: int, on_end: OnEnd | None) -> None:
        self._load = load
        self.request = request
        self.device = device
        self.sequence = sequence
        self.on_end = on_end

    def answered(self, status: int, headers: Headers, body: bytes, sent_s: float, now_s: float) -> None:
        """The answer came. See :class:`~simulator.fleet.engine.ports.Caller`."""
        outcome, fault = class_of(status), ""
        if outcome is not OutcomeClass.OK or body[:1] not in _GOOD_BEGINNINGS:
            try:
                judge(HttpAnswer(status, headers, body))
            except ServiceError as error:
                outcome, fault = outcome_of(error), str(error)
        self._load.write_down(self, outcome, body, sent_s, now_s)
        self._load.settle(self, outcome, sent_s, now_s, fault)

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """No answer. See :class:`~simulator.fleet.engine.ports.Caller`."""
        outcome, reason = self._load.end_of(outcome, reason, is_open=self.on_end is None)
        self._load.write_down(self, outcome, b"", sent_s, now_s)
        self._load.settle(self, outcome, sent_s, now_s, reason)


def command_id_of(body: bytes) -> str:
    """The id that the service gave a command; empty where the answer names none."""
    answer = Answer(200, httpx.Headers(), body, SOURCE)
    return read_written(CommandRecord, answer, "command", {"command_payload": {}}).id or ""
