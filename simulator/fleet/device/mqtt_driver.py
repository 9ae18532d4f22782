"""Any number of virtual devices over one MQTT engine and one timer wheel: a session for each, calls, no tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Unpack

from agent.core.schedule import phase_s
from agent.core.values import Moment
from agent.errors import Offline
from agent.wire.extensions import BATCH_SENSOR_DATA
from agent.wire.secret import Secret
from simulator.fleet.device.copies import MeasuredOnly, send_copies
from simulator.fleet.device.driver import DeviceDriver, DeviceSlot, Member
from simulator.fleet.device.http_codec import Request
from simulator.fleet.device.model import SharedSettings, TransportOptions
from simulator.fleet.device.mqtt_codec import OPERATIONS, MqttCodec, MqttOperation, renamed
from simulator.fleet.device.mqtt_device import RECEIPT_TIMEOUT_S, VirtualMqttDevice, no_receipt, why_unsent
from simulator.fleet.device.retry_policy import RetryPolicy
from simulator.fleet.engine.mqtt import Arrival, Established, MqttEngine, class_of_reason
from simulator.fleet.engine.wheel import NEVER, Wheel
from simulator.fleet.outcomes import Attempt, OutcomeClass

STABLE_S: Final = 10.0
"""A connection that stood this long shows that all is well: the next failure is the first of its row."""
SPREAD_S: Final = 2.0
"""After the power came a device connects within this, each at its own place: the real agent's default."""


class MqttDriver(DeviceDriver["_MqttSlot"]):
    """Runs devices over MQTT; a device connects within ``SPREAD_S`` of its power.

    Args:
        engine: carries the messages.
        wheel: on the same clock as ``clocks``.
        members: the devices.
        fleet: what they have in common; over MQTT readings go as arrays, whatever the service behind it takes.
        tokens: a device's password; None for a broker that asks for none.
        receipt_timeout_s: from the broker's acknowledgement until the gateway's receipt.
        options: see there; ``timeout_s`` is until the broker's acknowledgement.
    """

    engine: MqttEngine

    def __init__(
        self,
        engine: MqttEngine,
        wheel: Wheel,
        members: Sequence[Member],
        fleet: SharedSettings,
        *,
        tokens: Callable[[int], Secret | None] = lambda _index: None,
        receipt_timeout_s: float = RECEIPT_TIMEOUT_S,
        **options: Unpack[TransportOptions],
    ) -> None:
        super().__init__(engine, wheel, replace(fleet, offers=fleet.offers | {BATCH_SENSOR_DATA}), **options)
        self.tokens = tokens
        self.receipt_timeout_s = receipt_timeout_s
        self.standing = 0
        self.slots = [_MqttSlot(self, self.first_index + number, member) for number, member in enumerate(members)]

    @property
    def connections(self) -> int:
        """Sessions whose subscriptions stand."""
        return self.standing

    def end(self) -> None:
        """The run is over: what is under way never ended, and counts as a timeout with what it has waited.

        See :class:`~simulator.fleet.device.driver.DeviceDriver`: messages, receipts and connections under way.
        """
        super().end()
        for slot in self.slots:
            slot.end(self.phases_end_s)


class _MqttSlot(DeviceSlot[VirtualMqttDevice]):
    """One device over MQTT, with at most one message under way; its engine's session listener."""

    __slots__ = (
        "_attempt_s",
        "_busy",
        "_codec",
        "_connect_due_s",
        "_is_up",
        "_receipt_due_s",
        "_retry_policy",
        "_sent_s",
        "_stood_s",
    )

    driver: MqttDriver

    def __init__(self, driver: MqttDriver, index: int, member: Member) -> None:
        super().__init__(driver, index, member)
        self._codec = MqttCodec(member.device_id, member.product_id, driver.fleet.offers)
        self._retry_policy = RetryPolicy(member.model.backoff, self._chance)
        self._connect_due_s = NEVER  # infinity while there is a connection, or one is being made
        self._attempt_s = self._stood_s = 0.0
        self._is_up = False  # the subscriptions stand
        self._busy: Request | None = None  # what was published and is not settled
        self._sent_s = 0.0
        self._receipt_due_s = NEVER

    # --- power --------------------------------------------------------------------------------------------------------

    def begin_life(self, now: Moment) -> VirtualMqttDevice:
        self._retry_policy = RetryPolicy(self._model.backoff, self._chance)
        self._connect_due_s = now.monotonic_s + phase_s(self._codec.device_id, "first contact", SPREAD_S)
        return self.live(VirtualMqttDevice, self._codec, now)

    def life_ended(self) -> None:
        self._went_down()
        self._connect_due_s = NEVER

    def end(self, phases_end_s: float) -> None:
        """The run is over: count what is under way."""
        if self.device is None:
            return
        now = self.now()
        if not self._is_up and self._connect_due_s == NEVER and self._attempt_s < phases_end_s:
            self._count_attempt(OutcomeClass.TIMEOUT, self._attempt_s, now.monotonic_s)
        request = self._busy
        if request is not None:
            operation = OPERATIONS[request.operation] if self._receipt_due_s == NEVER else MqttOperation.RECEIPT
            self.measure(operation, OutcomeClass.TIMEOUT, request, self._sent_s, now)

    # --- the session (SessionListener) --------------------------------------------------------------------------------

    def connected(self, standing: Established, now_s: float) -> None:
        """The broker took the device, and the subscriptions stand."""
        device, driver = self.device, self.driver
        if device is None:
            return
        driver.standing += 1
        self._is_up, self._stood_s = True, now_s
        self._count_attempt(OutcomeClass.OK, standing.began_s, now_s)
        status = self._codec.status(online=True)
        # It is said again at the next connection, so nobody waits for its end.
        greeting = MeasuredOnly(driver.observer, MqttOperation.STATUS, self.index, None, Attempt.FIRST)
        driver.engine.publish(self.index, status.topic, status.payload, greeting, driver.timeout_s, retain=True)
        now = self.at(now_s)
        device.connected(now)
        self.turn(device, now)
        driver.notify()

    def arrived(self, arrival: Arrival, now_s: float) -> None:
        """A message came. QoS 1: :meth:`MqttEngine.acknowledge` it once it is safe, or it comes again."""
        device, driver = self.device, self.driver
        if device is None:
            return
        now = self.at(now_s)
        fault = device.arrived(arrival.topic, arrival.payload, now)
        driver.engine.acknowledge(self.index, arrival)
        if fault:
            driver.observer.faulted(MqttOperation.RECEIPT, self.index, fault)
        if self._busy is not None and self._receipt_due_s != NEVER and not device.awaited:
            self._receipted(device, self._busy, now)
        self.turn(device, now)

    def lost(self, error: Offline, outcome: OutcomeClass, began_s: float | None, now_s: float) -> None:
        """Note that there is no connection any more, or that it was never made."""
        device, driver = self.device, self.driver
        if device is None:
            return
        now = self.at(now_s)
        if self._busy is not None:
            is_acknowledged = self._receipt_due_s != NEVER
            operation = MqttOperation.RECEIPT if is_acknowledged else OPERATIONS[self._busy.operation]
            self.measure(operation, OutcomeClass.TRANSPORT, self._busy, self._sent_s, now)
            device.gone_wrong(self._busy, error, now)
        if not self._is_up:
            self._count_attempt(outcome, began_s, now_s)
        elif now_s - self._stood_s >= STABLE_S:
            self._retry_policy.succeeded()
        driver.observer.faulted(MqttOperation.CONNECT, self.index, str(error))
        self._went_down()
        self._connect_due_s = now_s + self._retry_policy.failed(error)
        self.turn(device, now)
        driver.notify()

    # --- a message (through _Publication) -----------------------------------------------------------------------------

    def acknowledged(self, request: Request, code: int, sent_s: float, now_s: float) -> None:
        """PUBACK came. See :class:`~simulator.fleet.engine.mqtt.Publisher`: PUBACK came."""
        device, driver = self.device, self.driver
        if device is None or self._busy is not request:
            return
        now = self.at(now_s)
        operation = OPERATIONS[request.operation]
        self.measure(operation, class_of_reason(code), request, sent_s, now)
        if device.puback(request, code, now):
            self._sent_s = sent_s
            self._receipt_due_s = now_s + driver.receipt_timeout_s
            if not device.awaited:
                self._receipted(device, request, now)
        else:
            self._settle_fault(device, operation)
        self.turn(device, now)
        driver.notify()

    def failed(self, request: Request, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """No acknowledgement. See :class:`~simulator.fleet.engine.mqtt.Publisher`: no PUBACK came."""
        device, driver = self.device, self.driver
        if device is None or self._busy is not request:
            return
        now = self.at(now_s)
        operation = OPERATIONS[request.operation]
        self.measure(operation, outcome, request, sent_s, now)
        device.gone_wrong(request, why_unsent(outcome, reason), now, left=sent_s is not None)
        self._settle_fault(device, operation)
        if outcome is not OutcomeClass.TRANSPORT:  # else the session is over, and the next word is that
            self.turn(device, now)
            driver.notify()

    # --- time ---------------------------------------------------------------------------------------------------------

    def fire(self) -> None:
        """Do what is due: the timer fired."""
        device = self.device
        if device is None:
            return
        now = self.now()
        if self._busy is not None and now.monotonic_s >= self._receipt_due_s:
            self.measure(MqttOperation.RECEIPT, OutcomeClass.TIMEOUT, self._busy, self._sent_s, now)
            device.gone_wrong(self._busy, no_receipt(self.driver.receipt_timeout_s), now)
            self._settle_fault(device, MqttOperation.RECEIPT)
            self.driver.notify()
        self.turn(device, now)

    def turn(self, device: VirtualMqttDevice, now: Moment) -> None:
        """Do what is due, and wake up for what is not."""
        device.advance(now)
        if now.monotonic_s >= self._connect_due_s:
            self._attempt_s, self._connect_due_s = self._connect_due_s, NEVER
            driver = self.driver
            driver.engine.open(self.index, self._codec.opening(driver.tokens(self.index)), self)
        if self._is_up and self._busy is None:
            request = device.out(now)
            if request is not None:
                self._publish(request)
        out_s = device.out_due_s if self._is_up and self._busy is None else device.own_due_s
        due_s = min(out_s, self._connect_due_s, self._receipt_due_s)
        if due_s != self.due_s:
            if due_s == NEVER:
                self.driver.wheel.put_off(self)
            else:
                self.driver.wheel.at(due_s, self)
        self.driver.note(self.index, settled=device.settled)

    def _went_down(self) -> None:
        if self._is_up:
            self.driver.standing -= 1
        self._is_up = False
        self._busy = None
        self._receipt_due_s = NEVER

    def _publish(self, request: Request) -> None:
        self._busy = request
        driver = self.driver
        self._sent_s = driver.clocks.monotonic()
        body = request.body or b""
        driver.engine.publish(self.index, request.target, body, _Publication(self, request), driver.timeout_s)
        if request.copies:

            def send(copy: Request, due_s: float) -> None:
                nobody = MeasuredOnly(driver.observer, MqttOperation.READINGS, self.index, due_s, Attempt.AMBIGUOUS)
                driver.engine.publish(self.index, copy.target, copy.body or b"", nobody, driver.timeout_s)

            now_s = driver.clocks.monotonic()
            send_copies(request, self.index, driver.fleet, driver.wheel, now_s, renamed=renamed, send=send)

    def _receipted(self, device: VirtualMqttDevice, request: Request, now: Moment) -> None:
        outcome = OutcomeClass.REFUSED if device.not_understood or any(device.confirmed.values()) else OutcomeClass.OK
        self.measure(MqttOperation.RECEIPT, outcome, request, self._sent_s, now)
        device.receipted(request, now)
        self._settle_fault(device, MqttOperation.RECEIPT)
        self.driver.notify()

    def _count_attempt(self, outcome: OutcomeClass, began_s: float | None, now_s: float) -> None:
        due_s = self._attempt_s
        self.driver.observer.exchanged(
            MqttOperation.CONNECT,
            outcome,
            self.index,
            intended_s=due_s,
            ready_s=due_s,
            sent_s=began_s,
            now_s=now_s,
            attempt=Attempt.FIRST,
        )

    # --- measuring ---------------------------------------------------------------------------------------------------

    def _settle_fault(self, device: VirtualMqttDevice, operation: MqttOperation) -> None:
        """End the message under way, and report what was wrong with it."""
        self._busy = None
        self._receipt_due_s = NEVER
        fault = device.uplink.fault
        if fault:
            self.driver.observer.faulted(operation, self.index, fault)


class _Publication:
    """A message on its way: the engine's :class:`~simulator.fleet.engine.mqtt.Publisher`."""

    __slots__ = ("_request", "_slot")

    def __init__(self, slot: _MqttSlot, request: Request) -> None:
        self._slot = slot
        self._request = request

    def acknowledged(self, code: int, sent_s: float, now_s: float) -> None:
        """PUBACK came. See :class:`~simulator.fleet.engine.mqtt.Publisher`."""
        self._slot.acknowledged(self._request, code, sent_s, now_s)

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """No acknowledgement. See :class:`~simulator.fleet.engine.mqtt.Publisher`."""
        self._slot.failed(self._request, outcome, reason, sent_s, now_s)
