"""The level ``wire`` over MQTT: sensor data with QoS 1 in sessions of their own, without devices behind them.

As :mod:`simulator.fleet.device.http_load`: every message is made for its moment and nothing is sent twice. A message
ends with the gateway's receipt, since a PUBACK says only that the broker has it: until then a closed user waits, and
the audit counts nothing as accepted. Sessions come back with the agent's own back-off; what is due meanwhile is not
sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Unpack

from agent.core.backoff import Backoff
from agent.errors import InvalidMessage, Offline
from agent.wire import topics
from agent.wire.mqtt_messages import Refusal, read_receipt
from agent.wire.secret import Secret
from simulator.fleet.device.hashed_random import HashedRandom
from simulator.fleet.device.http_codec import Request
from simulator.fleet.device.load_base import LoadBase, LoadDevice, OnEnd, ReadingMaker, RequestKind
from simulator.fleet.device.model import SharedSettings, TransportOptions
from simulator.fleet.device.mqtt_attempts import Attempts
from simulator.fleet.device.mqtt_codec import MqttCodec, MqttOperation
from simulator.fleet.device.mqtt_device import RECEIPT_TIMEOUT_S, error_of, no_receipt
from simulator.fleet.engine.mqtt import faults
from simulator.fleet.engine.mqtt.ports import Arrival, Established, MqttEngine, Opening
from simulator.fleet.engine.wheel import NEVER, Timer, Wheel
from simulator.fleet.outcomes import OutcomeClass

_BACKOFF: Final = Backoff()
_NO_TIME: Final = "the connection was not there in time"


class MqttLoad(LoadBase):
    """Makes messages for a range of devices; all calls come from the loop's thread.

    Args:
        engine: carries them.
        wheel: for time limits, back-off and pauses.
        subjects: the devices.
        fleet: what they have in common; the ledger gets every reading.
        tokens: a device's password; None for a broker that asks for none.
        receipt_timeout_s: from the broker's acknowledgement until the gateway's receipt.
        options: see there; ``timeout_s`` is until the acknowledgement, the wait for the connection included.

    Attributes:
        under_way: messages that have not ended.
        connections: sessions that stand.
    """

    def __init__(
        self,
        engine: MqttEngine,
        wheel: Wheel,
        subjects: Sequence[LoadDevice],
        fleet: SharedSettings,
        *,
        tokens: Callable[[int], Secret | None] = lambda _index: None,
        receipt_timeout_s: float = RECEIPT_TIMEOUT_S,
        **options: Unpack[TransportOptions],
    ) -> None:
        super().__init__(wheel, fleet, len(subjects), **options)
        self.engine = engine
        self.tokens = tokens
        self.receipt_timeout_s = receipt_timeout_s
        self.readings = ReadingMaker(fleet, self.devices.start, subjects)
        self.under_way: set[_Sending] = set()
        self.connections = 0
        self._lines = [_Line(self, device, each) for device, each in zip(self.devices, subjects, strict=True)]

    def switch_on(self, device: int) -> None:
        """Connect; nothing happens where there is a session."""
        self._line(device).switch_on()

    def switch_off(self, device: int) -> None:
        """The session is cut, and what is under way ends without an answer."""
        self._line(device).switch_off()

    def send(self, kind: RequestKind, device: int, due_s: float, on_end: OnEnd | None = None) -> None:
        """Send one request now.

        See :class:`~simulator.fleet.device.load_base.LoadBase`; only sensor data goes over MQTT.
        """
        if kind is not RequestKind.SENSOR_DATA:
            raise ValueError(f"{kind}: the scenario's check lets only sensor_data go over MQTT")
        line, name = self._line(device), f"{self.fleet.run}-{device}"
        reading = self.readings.make(device, self.clocks.now())
        request = line.codec.readings((reading,), name, due_s, due_s)
        [key] = line.codec.awaited(request, name)
        sending = _Sending(line, request, key, on_end)
        self.under_way.add(sending)
        line.take(sending)

    def end(self) -> None:
        """The run is over: every session is cut, and whatever is under way was never answered."""
        self.stop_users()
        self.is_over = True
        for line in self._lines:
            line.switch_off()

    def can_send(self, device: int) -> bool:
        """Whether a closed user can make a request for this device now.

        See :class:`~simulator.fleet.device.load_base.LoadBase`: there is a session.
        """
        return self._line(device).is_up

    def _line(self, device: int) -> _Line:
        return self._lines[device - self.devices.start]


class _Line(Timer):
    """One device's session, and the messages that are under way in it: its engine's listener."""

    __slots__ = ("_attempts", "_awaited", "_is_on", "_waiting", "codec", "device", "load")

    def __init__(self, load: MqttLoad, device: int, subject: LoadDevice) -> None:
        super().__init__()
        self.device = device
        self.codec = MqttCodec(subject.device_id, "", load.fleet.offers)
        self.load = load
        self._attempts = Attempts(load.observer, device, _BACKOFF, HashedRandom(load.fleet.seed, device))
        self._waiting: dict[_Sending, None] = {}  # for the connection
        self._awaited: dict[str, _Sending] = {}  # by key, oldest first: published, and no receipt yet
        self._is_on = False

    @property
    def is_up(self) -> bool:
        """Whether there is a session to publish in."""
        return self._attempts.is_up

    def switch_on(self) -> None:
        if not self._is_on:
            self._is_on = True
            self._attempts.begin(self.load.clocks.monotonic())
            self._turn()

    def switch_off(self) -> None:
        if not self._is_on:
            return
        self._is_on = False
        load = self.load
        load.engine.cut(self.device)
        load.wheel.cancel(self)
        self._went_down()
        self._attempts.stop()
        self._give_up(OutcomeClass.TRANSPORT, "the power went", load.clocks.monotonic())

    def take(self, sending: _Sending) -> None:
        """Publish the message, or let it wait for the connection that is being made."""
        if self._is_on and self._attempts.is_connecting:
            self._waiting[sending] = None
            self.wake(sending.give_up_s)
        else:
            self.publish(sending)

    def publish(self, sending: _Sending) -> None:
        """Hand the message to the engine; without a connection it fails, unsent."""
        load, request = self.load, sending.request
        self._awaited[sending.key] = sending
        load.engine.publish(self.device, request.target, request.body or b"", sending, load.timeout_s)

    def ended(self, sending: _Sending) -> None:
        """Forget a message that ended."""
        self._awaited.pop(sending.key, None)
        self.load.under_way.discard(sending)

    # --- SessionListener ----------------------------------------------------------------------------------------------

    def connected(self, standing: Established, now_s: float) -> None:
        """The broker took the device, and the subscriptions stand."""
        self.load.connections += 1
        self._attempts.stood(standing.began_s, now_s)
        waiting, self._waiting = self._waiting, {}
        for sending in waiting:
            sending.request = sending.request._replace(ready_s=max(sending.request.ready_s, now_s))
            self.publish(sending)
        self.load.notify()

    def arrived(self, arrival: Arrival, now_s: float) -> None:
        """A message came. QoS 1: :meth:`MqttEngine.acknowledge` it once it is safe, or it comes again.

        See :class:`~simulator.fleet.engine.mqtt.ports.SessionListener`: a receipt; nothing else is asked for.
        """
        load = self.load
        load.engine.acknowledge(self.device, arrival)
        try:
            receipt = read_receipt(arrival.payload)
        except InvalidMessage as error:
            load.observer.faulted(MqttOperation.RECEIPT, self.device, f"no receipt: {error}")
            return
        for key in receipt.stored:
            self._receipted(key, None, now_s)
        for refusal in receipt.refused:
            self._receipted(refusal.key or "", refusal, now_s)
        load.notify()

    def lost(self, error: Offline, outcome: OutcomeClass, began_s: float | None, now_s: float) -> None:
        """Note that there is no connection any more, or that it was never made."""
        self._went_down()
        self._attempts.ended(error, outcome, began_s, now_s)
        self._give_up(OutcomeClass.TRANSPORT, str(error), now_s)
        self.wake(self._attempts.due_s)
        self.load.notify()

    # --- inside -------------------------------------------------------------------------------------------------------

    def fire(self) -> None:
        """A connection is due, or a message has waited long enough."""
        self._turn()

    def _turn(self) -> None:
        load, attempts = self.load, self._attempts
        now_s = load.clocks.monotonic()
        if now_s >= attempts.due_s:
            attempts.take()
            receipts = ((topics.receipts(self.codec.device_id), 1),)
            name = topics.user_name(self.codec.device_id)
            # Nobody is behind it, so the broker need not keep anything for it, nor publish a will.
            opening = Opening(name, load.tokens(self.device), receipts, clean_start=True, session_expiry_s=0)
            load.engine.open(self.device, opening, self)
        for sending in [each for each in self._waiting if each.give_up_s <= now_s]:
            del self._waiting[sending]
            sending.failed(OutcomeClass.TIMEOUT, _NO_TIME, None, now_s)
        for sending in [each for each in self._awaited.values() if each.receipt_due_s <= now_s]:
            sending.give_up(OutcomeClass.TIMEOUT, str(no_receipt(load.receipt_timeout_s)), now_s)
        waiting_s = min((each.give_up_s for each in self._waiting), default=NEVER)
        awaited_s = min((each.receipt_due_s for each in self._awaited.values()), default=NEVER)
        due_s = min(attempts.due_s, waiting_s, awaited_s)
        if due_s < NEVER:
            load.wheel.at(due_s, self)
        else:
            load.wheel.put_off(self)

    def wake(self, due_s: float) -> None:
        """Let the timer fire at this time, at the latest."""
        if due_s < self.due_s:
            self.load.wheel.at(due_s, self)

    def _receipted(self, key: str, refusal: Refusal | None, now_s: float) -> None:
        sending = self._awaited.get(key)
        if sending is not None:
            sending.receipted(refusal, now_s)
        elif refusal is not None:
            self.load.observer.faulted(MqttOperation.RECEIPT, self.device, f"{refusal.error}: {refusal.message}")

    def _went_down(self) -> None:
        if self._attempts.is_up:
            self.load.connections -= 1

    def _give_up(self, outcome: OutcomeClass, reason: str, now_s: float) -> None:
        waiting, self._waiting = self._waiting, {}
        for sending in waiting:
            sending.failed(outcome, reason, None, now_s)
        for sending in list(self._awaited.values()):
            sending.give_up(outcome, reason, now_s)


class _Sending:
    """A message on its way: the engine's :class:`~simulator.fleet.engine.mqtt.ports.Publisher`."""

    __slots__ = ("_is_over", "_line", "_on_end", "_overtook", "key", "receipt_due_s", "request", "sent_s")

    def __init__(self, line: _Line, request: Request, key: str, on_end: OnEnd | None) -> None:
        self._line = line
        self._on_end = on_end
        self._overtook: tuple[Refusal | None] | None = None  # a receipt that came before the acknowledgement
        self._is_over = False
        self.request = request
        self.key = key
        self.sent_s: float | None = None  # once the broker has it
        self.receipt_due_s = NEVER

    @property
    def give_up_s(self) -> float:
        """When the wait for a connection ends, on the monotonic clock."""
        return self.request.intended_s + self._line.load.timeout_s

    def acknowledged(self, code: int, sent_s: float, now_s: float) -> None:
        """PUBACK came. See :class:`~simulator.fleet.engine.mqtt.ports.Publisher`."""
        if self._is_over:
            return
        outcome = faults.class_of_reason(code)
        error = error_of(code)
        self._measure(MqttOperation.READINGS, outcome, sent_s, now_s)
        if error is not None:
            # Nobody listens is no refusal: whether a gateway gets it yet is not known.
            self._end(OutcomeClass.UNEXPECTED if outcome is OutcomeClass.OK else outcome, str(error), sent_s, now_s)
            return
        self.sent_s = sent_s
        if self._overtook is not None:
            self.receipted(self._overtook[0], now_s)
        else:
            self.receipt_due_s = now_s + self._line.load.receipt_timeout_s
            self._line.wake(self.receipt_due_s)
        self._line.load.notify()

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """No acknowledgement. See :class:`~simulator.fleet.engine.mqtt.ports.Publisher`."""
        if not self._is_over:
            outcome, reason = self._end_of(outcome, reason)
            self._measure(MqttOperation.READINGS, outcome, sent_s, now_s)
            self._end(outcome, reason, sent_s, now_s)

    def receipted(self, refusal: Refusal | None, now_s: float) -> None:
        """The gateway's receipt names this message; ``refusal`` is None where it was stored."""
        if self.sent_s is None:
            self._overtook = (refusal,)
            return
        outcome = OutcomeClass.OK if refusal is None else OutcomeClass.REFUSED
        self._measure(MqttOperation.RECEIPT, outcome, self.sent_s, now_s)
        self._end(outcome, "" if refusal is None else f"{refusal.error}: {refusal.message}", self.sent_s, now_s)

    def give_up(self, outcome: OutcomeClass, reason: str, now_s: float) -> None:
        """Nothing will come any more: no acknowledgement, or no receipt."""
        if self.sent_s is None:
            self.failed(outcome, reason, now_s, now_s)
        elif not self._is_over:
            outcome, reason = self._end_of(outcome, reason)
            self._measure(MqttOperation.RECEIPT, outcome, self.sent_s, now_s)
            self._end(outcome, reason, self.sent_s, now_s)

    @property
    def device(self) -> int:
        """Index of its device in the fleet."""
        return self._line.device

    def _end_of(self, outcome: OutcomeClass, reason: str) -> tuple[OutcomeClass, str]:
        return self._line.load.end_of(outcome, reason, is_open=self._on_end is None)

    def _measure(self, operation: str, outcome: OutcomeClass, sent_s: float | None, now_s: float) -> None:
        line = self._line
        line.load.measure(operation, self.request, outcome, line.device, sent_s=sent_s, now_s=now_s)

    def _end(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        self._is_over = True
        line = self._line
        load = line.load
        load.readings.write_down(line.device, self.request.keys[0], outcome, sent_s, now_s)
        if reason:
            operation = MqttOperation.READINGS if self.sent_s is None else MqttOperation.RECEIPT
            load.observer.faulted(operation, line.device, reason)
        line.ended(self)
        if self._on_end is not None:
            self._on_end(now_s)
        load.notify()
