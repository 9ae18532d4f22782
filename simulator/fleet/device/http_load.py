"""The level ``wire`` over HTTP: pure load. Requests as devices make them, without devices: no retry, no outbox.

Every body is made for its request (device id, sequence number, time, signals); nothing is sent twice. Open arrivals
come at times that somebody else plans, whatever the target does; closed users send the next request after the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Unpack

import httpx

from agent.errors import ServiceError
from agent.wire import paths
from agent.wire.answers import Answer
from agent.wire.commands import CommandRecord
from agent.wire.extensions import COMMAND_TTL
from agent.wire.json_text import encode_json
from agent.wire.sending import SendCommand
from simulator.fleet.device.answers import SOURCE, judge, outcome_of, read_written
from simulator.fleet.device.http_codec import HttpCodec, Operation, Request, sends_time
from simulator.fleet.device.load_base import CLEAR, LoadBase, LoadDevice, OnEnd, ReadingMaker, RequestKind
from simulator.fleet.device.model import SharedSettings, TransportOptions
from simulator.fleet.device.request_template import RequestTemplate
from simulator.fleet.engine.ports import Headers, HttpAnswer, HttpEngine
from simulator.fleet.engine.wheel import Wheel
from simulator.fleet.outcomes import OutcomeClass, class_of

_COMMAND_TTL_S: Final = 60
_GOOD_BEGINNINGS: Final = frozenset({b"", b"{", b"["})


class HttpLoad(LoadBase):
    """Makes requests for a range of devices; all calls come from the loop's thread.

    Args:
        engine: carries the requests.
        wheel: for the pauses of closed users.
        templates: heads of requests, one for each subject.
        subjects: the devices.
        fleet: what they have in common; the ledger gets every reading and command.
        options: see there.

    Attributes:
        under_way: requests that have no answer yet.
    """

    def __init__(
        self,
        engine: HttpEngine,
        wheel: Wheel,
        templates: Sequence[RequestTemplate],
        subjects: Sequence[LoadDevice],
        fleet: SharedSettings,
        **options: Unpack[TransportOptions],
    ) -> None:
        super().__init__(wheel, fleet, len(subjects), **options)
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
        """Send one request now. See :class:`~simulator.fleet.device.load_base.LoadBase`."""
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
