"""Any number of virtual devices over one HTTP engine and one timer wheel: calls, no tasks.

A device has one place here for ever, and a life while its power is on. Each place is one timer on the wheel; each
channel of a device has at most one request on its way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from agent.core.values import Moment
from agent.errors import ServiceError, TransportError, UnexpectedAnswer
from agent.wire.identity import PROOF_PATH
from simulator.fleet.device.answers import HttpAnswer
from simulator.fleet.device.copies import Unawaited, send_copies
from simulator.fleet.device.fast_path import KnownAnswers
from simulator.fleet.device.http_codec import HELD_POLL, HttpCodec, Operation, Request
from simulator.fleet.device.load_base import RUN_OVER
from simulator.fleet.device.model import Clocks, DeviceModel, Fleetwide
from simulator.fleet.device.observer import NoObserver, Observer
from simulator.fleet.device.request_template import RequestTemplate
from simulator.fleet.device.slots import DeviceSlots, SlotBase
from simulator.fleet.device.virtual_device import Channel, VirtualDevice
from simulator.fleet.device.web_pages import ProofCaller, Proved, WebPages, is_page_answer
from simulator.fleet.engine.ports import Headers, HttpEngine
from simulator.fleet.engine.wheel import Wheel
from simulator.fleet.outcomes import Attempt, OutcomeClass

_POLL: Final = Operation.POLL
_ONCE: Final = "idempotency-key"
TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Member:
    """One device of a fleet: who it is, and what.

    Attributes:
        device_id, product_id: the service's ids.
        model: shared with all devices of its kind.
    """

    device_id: str
    product_id: str
    model: DeviceModel


class HttpDriver(DeviceSlots["_Place"]):
    """Runs devices; all calls come from the loop's thread.

    Args:
        engine: carries the requests.
        wheel: on the same clock as ``clocks``.
        templates: heads of requests, one for each key pair; device i uses number i modulo their count.
        members: the devices.
        fleet: what they have in common.
        first_index: of the first of them, in the fleet: another worker has the others.
        observer: called with each exchange.
        clocks: time.
        timeout_s: for one request as a whole, beside the wait that it asks for.
        on_news: called after each exchange.
    """

    def __init__(
        self,
        engine: HttpEngine,
        wheel: Wheel,
        templates: Sequence[RequestTemplate],
        members: Sequence[Member],
        fleet: Fleetwide,
        *,
        first_index: int = 0,
        observer: Observer | None = None,
        clocks: Clocks | None = None,
        timeout_s: float = TIMEOUT_S,
        on_news: Callable[[], None] | None = None,
    ) -> None:
        self.engine = engine
        self.wheel = wheel
        self.templates = templates
        self.fleet = fleet
        self.observer = observer or NoObserver()
        self.clocks = clocks or Clocks()
        self.timeout_s = timeout_s
        self.known_answers = KnownAnswers()
        self.pages = WebPages(self._prove, self.clocks.monotonic)
        self._asking = 0
        self._awaited: set[int] = set()  # whose poll was due while the phases lasted and has no answer yet
        self._proof: ProofCaller | None = None
        places = [_Place(self, first_index + number, member) for number, member in enumerate(members)]
        super().__init__(places, first_index, fleet.gauges, wheel, on_news)

    def has_settled(self) -> bool:
        """Whether every device that is on has handed over everything; looks at none of them.

        See :class:`~simulator.fleet.device.slots.DeviceSlots`; and no poll of the phases is without an answer.
        """
        return not self._awaited and super().has_settled()

    def _reach(self, place: _Place) -> None:
        super()._reach(place)
        if math.isfinite(self.phases_end_s) and place.owes_poll(self.phases_end_s):
            self._awaited.add(place.index)

    def poll_ended(self, index: int) -> None:
        """A poll of this device came to its end, or its power went."""
        self._awaited.discard(index)

    def judge(self, exchange: _Exchange, answer: HttpAnswer, then: Callable[[bool], None]) -> None:
        """Call ``then`` with whether the answer is the service's own web page; later, where a proof is needed."""
        request = exchange.request
        if not is_page_answer(answer):
            self.pages.note(request.operation, request.method, request.target, answer.status)
            then(False)
            return
        self._asking = exchange.place.index
        self.pages.sort(request.operation, request.method, request.target, answer, then)

    def proof_lost(self, index: int) -> None:
        """The device whose connection carries the proof has no power any more."""
        if self._proof is not None and self._proof.index == index:
            self._proof.end(good=False)

    def _prove(self, proved: Proved) -> None:
        """Ask once for the list of devices, over the link on which the web page came."""
        index = self._asking

        def ended(good: bool) -> None:  # noqa: FBT001 - a callback's answer
            self._proof = None
            proved(good)

        self._proof = ProofCaller(index, ended)
        template = self.templates[index % len(self.templates)]
        message = template.message(Request(_POLL, "GET", PROOF_PATH))
        self.engine.send(index, message, self._proof, self.timeout_s)


class _Place(SlotBase):
    """One device's place: its disk for ever, its life while the power is on; a timer for whatever is due next."""

    __slots__ = ("_poll", "_speaker", "device", "driver")

    def __init__(self, driver: HttpDriver, index: int, member: Member) -> None:
        super().__init__(driver.fleet, index, member.model)
        self.driver = driver
        self._speaker = HttpCodec(member.device_id, member.product_id, driver.fleet.offers, driver.fleet.dialect)
        self.device: VirtualDevice | None = None
        self._poll: Request | None = None  # what is on its way

    def owes_poll(self, before_s: float) -> bool:
        """Whether a poll is on its way that was due before this time and that the service does not hold."""
        return self._poll is not None and self._poll.wait_s <= 0 and self._poll.intended_s < before_s

    def switch_on(self, *, sampling: bool) -> None:
        if self.device is not None:
            return
        driver = self.driver
        now = self.moment(driver.clocks.now())
        self.device = VirtualDevice(self.body(self._speaker, driver.known_answers, now), now)
        if not sampling:
            self.device.sample(on=False)
        driver.fleet.gauges.online += 1
        self._turn(self.device, now)

    def switch_off(self) -> None:
        if self.device is None:
            return
        driver = self.driver
        driver.engine.cut(self.index)
        driver.wheel.cancel(self)
        self.device.power_lost(self.moment(driver.clocks.now()))
        self.device = None
        self._poll = None
        driver.poll_ended(self.index)
        driver.proof_lost(self.index)
        driver.fleet.gauges.online -= 1

    def sample(self, *, on: bool) -> None:
        if self.device is not None:
            self.device.sample(on=on)
            self._turn(self.device, self.moment(self.driver.clocks.now()))

    def fire(self) -> None:
        """Do what is due: the timer fired."""
        if self.device is not None:
            self._turn(self.device, self.moment(self.driver.clocks.now()))

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
        driver.observer.exchanged(
            name,
            outcome,
            self.index,
            intended_s=request.intended_s,
            ready_s=request.ready_s,
            sent_s=sent_s,
            now_s=now.monotonic_s,
            attempt=request.attempt,
        )
        channel: Channel = device.commands if request.operation is _POLL else device.uplink
        if channel.fault:
            driver.observer.faulted(name, self.index, channel.fault)
        if driver.is_over:
            return
        self._turn(device, now)
        if driver.on_news is not None:
            driver.on_news()

    def _is_overdue(self, request: Request, now_s: float) -> bool:
        """Whether an answer that has not come when the run is over ought to have come."""
        if request.operation is not _POLL:
            return True
        if request.wait_s > 0:
            return now_s - request.intended_s > request.wait_s
        return request.intended_s < self.driver.phases_end_s

    def _turn(self, device: VirtualDevice, now: Moment) -> None:
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

    def _send_due(self, channel: Channel, now: Moment) -> float:
        """Send what this channel has; return when it is due again."""
        request = channel.next_request(now)
        if request is not None:
            self._send(request)
        return channel.due_s

    def _send(self, request: Request) -> None:
        driver = self.driver
        if request.operation is _POLL:
            self._poll = request
        template = driver.templates[self.index % len(driver.templates)]
        driver.engine.send(
            self.index, template.message(request), _Exchange(self, request), driver.timeout_s + request.wait_s
        )
        if request.copies:

            def send(copy: Request, due_s: float) -> None:
                caller = Unawaited(driver.observer, Operation.READINGS, self.index, due_s, Attempt.AMBIGUOUS)
                driver.engine.send(self.index, template.message(copy), caller, driver.timeout_s)

            now_s = driver.clocks.monotonic()
            send_copies(request, self.index, driver.fleet, driver.wheel, now_s, renamed=_renamed, send=send)


class _Exchange:
    """A request on its way: the engine's :class:`~simulator.fleet.engine.ports.Caller`."""

    __slots__ = ("place", "request")

    def __init__(self, place: _Place, request: Request) -> None:
        self.place = place
        self.request = request

    def answered(self, status: int, headers: Headers, body: bytes, sent_s: float, now_s: float) -> None:
        """The answer came. See :class:`~simulator.fleet.engine.ports.Caller`."""
        device = self.place.device
        if device is None:
            return
        answer = HttpAnswer(status, headers, body)

        def judged(page_is_meant: bool) -> None:  # noqa: FBT001 - a callback's answer
            if self.place.device is device:  # the power may have gone while the proof was asked for
                self._take(device, answer._replace(page_is_meant=True) if page_is_meant else answer, sent_s, now_s)

        self.place.driver.judge(self, answer, judged)

    def _take(self, device: VirtualDevice, answer: HttpAnswer, sent_s: float, now_s: float) -> None:
        place = self.place
        now = place.moment(place.driver.clocks.moment(now_s))
        outcome = device.answered(self.request, answer, sent_s, now)
        place.ended(self, outcome, sent_s, now)

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """No answer. See :class:`~simulator.fleet.engine.ports.Caller`."""
        place = self.place
        if place.device is not None:
            now = place.moment(place.driver.clocks.moment(now_s))
            if place.driver.is_over:
                outcome, reason = OutcomeClass.TIMEOUT, RUN_OVER
            error: ServiceError = (
                UnexpectedAnswer(reason) if outcome is OutcomeClass.UNEXPECTED else TransportError(reason)
            )
            place.device.failed(self.request, error, now, left=sent_s is not None)
            place.ended(self, outcome, sent_s, now)


def _renamed(request: Request, suffix: str) -> Request:
    """The same request with a key of its own, where it has one."""
    if _ONCE not in request.headers:
        return request
    return request._replace(headers={**request.headers, _ONCE: request.headers[_ONCE] + suffix})
