"""Any number of virtual devices over one HTTP engine and one timer wheel: calls, no tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Unpack

from agent.core.values import Moment
from agent.errors import ServiceError, TransportError, UnexpectedAnswer
from simulator.fleet.device.copies import MeasuredOnly, send_copies
from simulator.fleet.device.device import CommandPolling, VirtualDevice
from simulator.fleet.device.driver import DeviceDriver, DeviceSlot, Member
from simulator.fleet.device.http_codec import HELD_POLL, HttpCodec, Operation, Request
from simulator.fleet.device.model import RUN_OVER, SharedSettings, TransportOptions
from simulator.fleet.device.request_template import RequestTemplate
from simulator.fleet.device.uplink import DeviceUplink
from simulator.fleet.engine.ports import Headers, HttpAnswer, HttpEngine
from simulator.fleet.engine.wheel import Wheel
from simulator.fleet.outcomes import Attempt, OutcomeClass

_POLL: Final = Operation.POLL
_ONCE: Final = "idempotency-key"


class HttpDriver(DeviceDriver["_HttpSlot"]):
    """Runs devices over HTTP; each channel of a device has at most one request on its way.

    Args:
        engine: carries the requests.
        wheel: on the same clock as ``clocks``.
        templates: heads of requests, one for each member.
        members: the devices.
        fleet: what they have in common.
        options: see there; ``timeout_s`` is for one request as a whole, beside the wait that it asks for.
    """

    engine: HttpEngine

    def __init__(
        self,
        engine: HttpEngine,
        wheel: Wheel,
        templates: Sequence[RequestTemplate],
        members: Sequence[Member],
        fleet: SharedSettings,
        **options: Unpack[TransportOptions],
    ) -> None:
        super().__init__(engine, wheel, fleet, **options)
        self._awaited: set[int] = set()  # whose poll was due while the phases lasted and has no answer yet
        self.slots = [
            _HttpSlot(self, self.first_index + number, member, template)
            for number, (member, template) in enumerate(zip(members, templates, strict=True))
        ]

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self.engine.connections

    @property
    def online(self) -> int:
        """Devices that are switched on and have a link."""
        return self.gauges.online - (self.links.state.down if self.links is not None else 0)

    def has_settled(self) -> bool:
        """Whether every device that is on has handed over everything; looks at none of them.

        See :class:`~simulator.fleet.device.driver.DeviceDriver`; and no poll of the phases is without an answer.
        """
        return not self._awaited and super().has_settled()

    def _reach(self, slot: _HttpSlot) -> None:
        super()._reach(slot)
        if math.isfinite(self.phases_end_s) and slot.owes_poll(self.phases_end_s):
            self._awaited.add(slot.index)

    def poll_ended(self, index: int) -> None:
        """A poll of this device came to its end, or its power went."""
        self._awaited.discard(index)


class _HttpSlot(DeviceSlot[VirtualDevice]):
    """One device over HTTP."""

    __slots__ = ("_codec", "_poll", "_template")

    driver: HttpDriver

    def __init__(self, driver: HttpDriver, index: int, member: Member, template: RequestTemplate) -> None:
        super().__init__(driver, index, member)
        self._template = template
        self._codec = HttpCodec(member.device_id, member.product_id, driver.fleet.offers, driver.fleet.dialect)
        self._poll: Request | None = None  # what is on its way

    def owes_poll(self, before_s: float) -> bool:
        """Whether a poll is on its way that was due before this time and that the service does not hold."""
        return self._poll is not None and self._poll.wait_s <= 0 and self._poll.intended_s < before_s

    def begin_life(self, now: Moment) -> VirtualDevice:
        return self.live(VirtualDevice, self._codec, now)

    def life_ended(self) -> None:
        self._poll = None
        self.driver.poll_ended(self.index)

    def ended(self, exchange: _Exchange, outcome: OutcomeClass, sent_s: float | None, now: Moment) -> None:
        """Measure a request that the device has handled, and send what is due next."""
        device, driver = self.device, self.driver
        if device is None:
            return
        request = exchange.request
        if request.operation is _POLL:
            self._poll = None
            driver.poll_ended(self.index)
        if driver.is_over and not self._is_overdue(request, now.monotonic_s):
            return
        # How long the service holds a poll says nothing of how fast it answers.
        name = HELD_POLL if request.wait_s > 0 else request.operation
        self.measure(name, outcome, request, sent_s, now)
        fault = device.commands.fault if request.operation is _POLL else device.uplink.fault
        if fault:
            driver.observer.faulted(name, self.index, fault)
        if driver.is_over:
            return
        self.turn(device, now)
        driver.notify()

    def _is_overdue(self, request: Request, now_s: float) -> bool:
        """Whether an answer that has not come when the run is over ought to have come."""
        if request.operation is not _POLL:
            return True
        if request.wait_s > 0:
            return now_s - request.intended_s > request.wait_s
        return request.intended_s < self.driver.phases_end_s

    def turn(self, device: VirtualDevice, now: Moment) -> None:
        """Send what is due, and wake up for what is not."""
        now_s = now.monotonic_s
        if now_s >= device.own_due_s:
            device.advance(now)
        due_s = device.own_due_s
        uplink_s = device.uplink.due_s
        if uplink_s <= now_s:
            uplink_s = self._send_due(device.uplink, now)
        due_s = min(due_s, uplink_s)
        commands_s = device.commands.due_s
        if commands_s <= now_s:
            commands_s = self._send_due(device.commands, now)
        due_s = min(due_s, commands_s)
        if due_s != self.due_s:
            self.driver.wheel.at(due_s, self)
        self.driver.note(self.index, settled=device.settled)

    def _send_due(self, channel: CommandPolling | DeviceUplink, now: Moment) -> float:
        """Send what this channel has; return when it is due again."""
        request = channel.next_request(now)
        if request is not None:
            self._send(request)
        return channel.due_s

    def _send(self, request: Request) -> None:
        driver = self.driver
        if request.operation is _POLL:
            self._poll = request
        template = self._template
        driver.engine.send(
            self.index, template.message(request), _Exchange(self, request), driver.timeout_s + request.wait_s
        )
        if request.copies:

            def send(copy: Request, due_s: float) -> None:
                caller = MeasuredOnly(driver.observer, Operation.READINGS, self.index, due_s, Attempt.AMBIGUOUS)
                driver.engine.send(self.index, template.message(copy), caller, driver.timeout_s)

            now_s = driver.clocks.monotonic()
            send_copies(request, self.index, driver.fleet, driver.wheel, now_s, renamed=_renamed, send=send)


class _Exchange:
    """A request on its way: the engine's :class:`~simulator.fleet.engine.ports.Caller`."""

    __slots__ = ("request", "slot")

    def __init__(self, slot: _HttpSlot, request: Request) -> None:
        self.slot = slot
        self.request = request

    def answered(self, status: int, headers: Headers, body: bytes, sent_s: float, now_s: float) -> None:
        """The answer came. See :class:`~simulator.fleet.engine.ports.Caller`."""
        slot = self.slot
        if slot.device is None:
            return
        now = slot.at(now_s)
        outcome = slot.device.answered(self.request, HttpAnswer(status, headers, body), sent_s, now)
        slot.ended(self, outcome, sent_s, now)

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """No answer. See :class:`~simulator.fleet.engine.ports.Caller`."""
        slot = self.slot
        if slot.device is not None:
            now = slot.at(now_s)
            if slot.driver.is_over:
                outcome, reason = OutcomeClass.TIMEOUT, RUN_OVER
            error: ServiceError = (
                UnexpectedAnswer(reason) if outcome is OutcomeClass.UNEXPECTED else TransportError(reason)
            )
            slot.device.failed(self.request, error, now, left=sent_s is not None)
            slot.ended(self, outcome, sent_s, now)


def _renamed(request: Request, suffix: str) -> Request:
    """The same request with a key of its own, where it has one."""
    if _ONCE not in request.headers:
        return request
    return request._replace(headers={**request.headers, _ONCE: request.headers[_ONCE] + suffix})
