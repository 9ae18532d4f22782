"""Any number of virtual devices over one MQTT engine and one timer wheel: a session for each, calls, no tasks.

A device has one place here for ever, and a life while its power is on. Each place is one timer on the wheel, and has at
most one message on its way, as the real agent's uplink.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from agent.core.schedule import phase_s
from agent.core.values import Moment
from agent.errors import Offline
from agent.wire.extensions import BATCH_SENSOR_DATA
from agent.wire.secret import Secret
from simulator.fleet.device.copies import Unawaited, send_copies
from simulator.fleet.device.fast_path import KnownAnswers
from simulator.fleet.device.http_codec import Request
from simulator.fleet.device.http_driver import Member
from simulator.fleet.device.model import Clocks, Fleetwide
from simulator.fleet.device.mqtt_attempts import Attempts
from simulator.fleet.device.mqtt_codec import OPERATIONS, MqttCodec, MqttOperation, renamed
from simulator.fleet.device.mqtt_device import VirtualMqttDevice, no_receipt, why_unsent
from simulator.fleet.device.observer import NoObserver, Observer
from simulator.fleet.device.slots import DeviceSlots, SlotBase
from simulator.fleet.engine.mqtt.faults import class_of_reason
from simulator.fleet.engine.mqtt.ports import Arrival, Established, MqttEngine
from simulator.fleet.engine.wheel import Wheel
from simulator.fleet.outcomes import Attempt, OutcomeClass

RECEIPT_TIMEOUT_S: Final = 30.0
SPREAD_S: Final = 2.0
"""After the power came a device connects within this, each at its own place: the real agent's default."""
_NEVER_S: Final = float("inf")


class MqttDriver(DeviceSlots["_Place"]):
    """Runs devices; all calls come from the loop's thread. A device connects within ``SPREAD_S`` of its power.

    Args:
        engine: carries the messages.
        wheel: on the same clock as ``clocks``.
        members: the devices.
        fleet: what they have in common; over MQTT readings go as arrays, whatever the service behind it takes.
        tokens: a device's password; None for a broker that asks for none.
        first_index: of the first of them, in the fleet: another worker has the others.
        observer: called with each exchange.
        clocks: time.
        timeout_s: until the broker's acknowledgement.
        receipt_timeout_s: from then until the gateway's receipt.
        on_news: called after each exchange.
    """

    def __init__(
        self,
        engine: MqttEngine,
        wheel: Wheel,
        members: Sequence[Member],
        fleet: Fleetwide,
        *,
        tokens: Callable[[int], Secret | None] = lambda _index: None,
        first_index: int = 0,
        observer: Observer | None = None,
        clocks: Clocks | None = None,
        timeout_s: float = 10.0,
        receipt_timeout_s: float = RECEIPT_TIMEOUT_S,
        on_news: Callable[[], None] | None = None,
    ) -> None:
        self.engine = engine
        self.wheel = wheel
        self.fleet = replace(fleet, offers=fleet.offers | {BATCH_SENSOR_DATA})
        self.tokens = tokens
        self.observer = observer or NoObserver()
        self.clocks = clocks or Clocks()
        self.timeout_s = timeout_s
        self.receipt_timeout_s = receipt_timeout_s
        self.known_answers = KnownAnswers()
        self.connections = 0
        """Sessions whose subscriptions stand."""
        places = [_Place(self, first_index + number, member) for number, member in enumerate(members)]
        super().__init__(places, first_index, fleet.gauges, wheel, on_news)

    def end(self) -> None:
        """The run is over: what is under way never ended, and counts as a timeout with what it has waited.

        See :class:`~simulator.fleet.device.slots.DeviceSlots`: messages, receipts and connections under way.
        """
        super().end()
        for place in self._places:
            place.end(self.phases_end_s)


class _Place(SlotBase):
    """One device's place: its disk for ever, its life while the power is on. Listener of its engine's session."""

    __slots__ = (
        "_attempts",
        "_busy",
        "_receipt_due_s",
        "_sent_s",
        "_speaker",
        "device",
        "driver",
    )

    def __init__(self, driver: MqttDriver, index: int, member: Member) -> None:
        super().__init__(driver.fleet, index, member.model)
        self.driver = driver
        self.device: VirtualMqttDevice | None = None
        self._speaker = MqttCodec(member.device_id, member.product_id, driver.fleet.offers)
        self._attempts = Attempts(driver.observer, index, member.model.backoff, self._chance)
        self._busy: Request | None = None  # what was published and is not settled
        self._sent_s = 0.0
        self._receipt_due_s = _NEVER_S

    # --- power --------------------------------------------------------------------------------------------------------

    def switch_on(self, *, sampling: bool) -> None:
        if self.device is not None:
            return
        driver = self.driver
        now = self.moment(driver.clocks.now())
        self.device = VirtualMqttDevice(self.body(self._speaker, driver.known_answers, now), self._speaker, now)
        if not sampling:
            self.device.sample(on=False)
        driver.fleet.gauges.online += 1
        self._attempts.begin(now.monotonic_s + phase_s(self._speaker.device_id, "first contact", SPREAD_S))
        self._turn(self.device, now)

    def switch_off(self) -> None:
        if self.device is None:
            return
        driver = self.driver
        driver.engine.cut(self.index)
        driver.wheel.cancel(self)
        self.device.power_lost(self.moment(driver.clocks.now()))
        self.device = None
        self._went_down()
        self._attempts.stop()
        driver.fleet.gauges.online -= 1

    def end(self, phases_end_s: float) -> None:
        """The run is over: count what is under way."""
        if self.device is None:
            return
        now = self.moment(self.driver.clocks.now())
        self._attempts.give_up(phases_end_s, now.monotonic_s)
        request = self._busy
        if request is not None:
            operation = OPERATIONS[request.operation] if self._receipt_due_s == _NEVER_S else MqttOperation.RECEIPT
            self._count(operation, OutcomeClass.TIMEOUT, request, self._sent_s, now)

    def sample(self, *, on: bool) -> None:
        if self.device is not None:
            self.device.sample(on=on)
            self._turn(self.device, self.moment(self.driver.clocks.now()))

    # --- the session (SessionListener) --------------------------------------------------------------------------------

    def connected(self, standing: Established, now_s: float) -> None:
        """The broker took the device, and the subscriptions stand."""
        device, driver = self.device, self.driver
        if device is None:
            return
        driver.connections += 1
        self._attempts.stood(standing.began_s, now_s)
        status = self._speaker.status(online=True)
        # It is said again at the next connection, so nobody waits for its end.
        greeting = Unawaited(driver.observer, MqttOperation.STATUS, self.index, None, Attempt.FIRST)
        driver.engine.publish(self.index, status.topic, status.payload, greeting, driver.timeout_s, retain=True)
        now = self.moment(driver.clocks.moment(now_s))
        device.connected(now)
        self._turn(device, now)
        self._notify()

    def arrived(self, arrival: Arrival, now_s: float) -> None:
        """A message came. QoS 1: :meth:`MqttEngine.acknowledge` it once it is safe, or it comes again."""
        device, driver = self.device, self.driver
        if device is None:
            return
        now = self.moment(driver.clocks.moment(now_s))
        fault = device.arrived(arrival.topic, arrival.payload, now)
        driver.engine.acknowledge(self.index, arrival)
        if fault:
            driver.observer.faulted(MqttOperation.RECEIPT, self.index, fault)
        if self._busy is not None and self._receipt_due_s != _NEVER_S and not device.awaited:
            self._receipted(device, self._busy, now)
        self._turn(device, now)

    def lost(self, error: Offline, outcome: OutcomeClass, began_s: float | None, now_s: float) -> None:
        """There is no connection any more, or it was never made."""
        device, driver = self.device, self.driver
        if device is None:
            return
        now = self.moment(driver.clocks.moment(now_s))
        if self._busy is not None:  # its receipt was awaited; what had no PUBACK has failed before
            self._count(MqttOperation.RECEIPT, OutcomeClass.TRANSPORT, self._busy, self._sent_s, now)
            device.gone_wrong(self._busy, error, now)
        self._went_down()
        self._attempts.ended(error, outcome, began_s, now_s)
        self._turn(device, now)
        self._notify()

    # --- a message (through _Publication) -----------------------------------------------------------------------------

    def acknowledged(self, request: Request, code: int, sent_s: float, now_s: float) -> None:
        """PUBACK came. See :class:`~simulator.fleet.engine.mqtt.ports.Publisher`: PUBACK came."""
        device, driver = self.device, self.driver
        if device is None or self._busy is not request:
            return
        now = self.moment(driver.clocks.moment(now_s))
        operation = OPERATIONS[request.operation]
        self._count(operation, class_of_reason(code), request, sent_s, now)
        if device.puback(request, code, now):
            self._sent_s = sent_s
            self._receipt_due_s = now_s + driver.receipt_timeout_s
            if not device.awaited:
                self._receipted(device, request, now)
        else:
            self._settle_fault(device, operation)
        self._turn(device, now)
        self._notify()

    def failed(self, request: Request, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """No acknowledgement. See :class:`~simulator.fleet.engine.mqtt.ports.Publisher`: no PUBACK came."""
        device, driver = self.device, self.driver
        if device is None or self._busy is not request:
            return
        now = self.moment(driver.clocks.moment(now_s))
        operation = OPERATIONS[request.operation]
        self._count(operation, outcome, request, sent_s, now)
        device.gone_wrong(request, why_unsent(outcome, reason), now, left=sent_s is not None)
        self._settle_fault(device, operation)
        if outcome is not OutcomeClass.TRANSPORT:  # else the session is over, and the next word is that
            self._turn(device, now)
            self._notify()

    # --- time ---------------------------------------------------------------------------------------------------------

    def fire(self) -> None:
        """Do what is due: the timer fired."""
        device = self.device
        if device is None:
            return
        now = self.moment(self.driver.clocks.now())
        if self._busy is not None and now.monotonic_s >= self._receipt_due_s:
            self._count(MqttOperation.RECEIPT, OutcomeClass.TIMEOUT, self._busy, self._sent_s, now)
            device.gone_wrong(self._busy, no_receipt(self.driver.receipt_timeout_s), now)
            self._settle_fault(device, MqttOperation.RECEIPT)
            self._notify()
        self._turn(device, now)

    def _turn(self, device: VirtualMqttDevice, now: Moment) -> None:
        """Do what is due, and wake up for what is not."""
        device.advance(now)
        attempts = self._attempts
        if now.monotonic_s >= attempts.due_s:
            attempts.take()
            driver = self.driver
            driver.engine.open(self.index, self._speaker.opening(driver.tokens(self.index)), self)
        if attempts.is_up and self._busy is None:
            request = device.out(now)
            if request is not None:
                self._publish(request)
        out_s = device.out_due_s if attempts.is_up and self._busy is None else device.own_due_s
        due_s = min(out_s, attempts.due_s, self._receipt_due_s)
        if due_s != self.due_s:
            if due_s == _NEVER_S:
                self.driver.wheel.put_off(self)
            else:
                self.driver.wheel.at(due_s, self)
        self.driver.note(self.index, settled=device.settled)

    def _went_down(self) -> None:
        if self._attempts.is_up:
            self.driver.connections -= 1
        self._busy = None
        self._receipt_due_s = _NEVER_S

    def _publish(self, request: Request) -> None:
        self._busy = request
        driver = self.driver
        self._sent_s = driver.clocks.monotonic()
        body = request.body or b""
        driver.engine.publish(self.index, request.target, body, _Publication(self, request), driver.timeout_s)
        if request.copies:

            def send(copy: Request, due_s: float) -> None:
                nobody = Unawaited(driver.observer, MqttOperation.READINGS, self.index, due_s, Attempt.AMBIGUOUS)
                driver.engine.publish(self.index, copy.target, copy.body or b"", nobody, driver.timeout_s)

            now_s = driver.clocks.monotonic()
            send_copies(request, self.index, driver.fleet, driver.wheel, now_s, renamed=renamed, send=send)

    def _receipted(self, device: VirtualMqttDevice, request: Request, now: Moment) -> None:
        outcome = OutcomeClass.REFUSED if device.not_understood or any(device.confirmed.values()) else OutcomeClass.OK
        self._count(MqttOperation.RECEIPT, outcome, request, self._sent_s, now)
        device.receipted(request, now)
        self._settle_fault(device, MqttOperation.RECEIPT)
        self._notify()

    # --- measuring ---------------------------------------------------------------------------------------------------

    def _settle_fault(self, device: VirtualMqttDevice, operation: MqttOperation) -> None:
        """End the message under way, and report what was wrong with it."""
        self._busy = None
        self._receipt_due_s = _NEVER_S
        fault = device.uplink.fault
        if fault:
            self.driver.observer.faulted(operation, self.index, fault)

    def _count(
        self, operation: str, outcome: OutcomeClass, request: Request, sent_s: float | None, now: Moment
    ) -> None:
        self.driver.observer.exchanged(
            operation,
            outcome,
            self.index,
            intended_s=request.intended_s,
            ready_s=request.ready_s,
            sent_s=sent_s,
            now_s=now.monotonic_s,
            attempt=request.attempt,
        )

    def _notify(self) -> None:
        if self.driver.on_news is not None:
            self.driver.on_news()


class _Publication:
    """A message on its way: the engine's :class:`~simulator.fleet.engine.mqtt.ports.Publisher`."""

    __slots__ = ("_place", "_request")

    def __init__(self, place: _Place, request: Request) -> None:
        self._place = place
        self._request = request

    def acknowledged(self, code: int, sent_s: float, now_s: float) -> None:
        """PUBACK came. See :class:`~simulator.fleet.engine.mqtt.ports.Publisher`."""
        self._place.acknowledged(self._request, code, sent_s, now_s)

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """No acknowledgement. See :class:`~simulator.fleet.engine.mqtt.ports.Publisher`."""
        self._place.failed(self._request, outcome, reason, sent_s, now_s)
