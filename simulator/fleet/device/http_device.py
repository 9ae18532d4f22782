"""A virtual device over HTTP: it polls for commands and posts what it has; each channel has one request on its way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent.core.timekeeping import PollPace, phase_s
from agent.core.values import Moment
from agent.errors import ServiceError, TransportError, UnexpectedAnswer
from simulator.fleet.device.answers import Retries, outcome_of
from simulator.fleet.device.commands import take_in
from simulator.fleet.device.device import AT_ONCE_S, Device
from simulator.fleet.device.http_messages import (
    HELD_POLL,
    HttpMessages,
    Listing,
    Operation,
    PagedPoll,
    Request,
    read_settled,
)
from simulator.fleet.device.links import DOWN
from simulator.fleet.device.model import RUN_OVER, Member
from simulator.fleet.engine.addresses import RequestHead
from simulator.fleet.engine.http_answers import Headers, HttpAnswer
from simulator.fleet.engine.timers import NEVER
from simulator.fleet.outcomes import OutcomeClass

if TYPE_CHECKING:  # import cycle
    from simulator.fleet.device.driver import HttpDriver

_POLL: Final = Operation.POLL
_OK: Final = OutcomeClass.OK


class HttpDevice(Device):
    """One device over HTTP.

    Args:
        driver: of this device among others.
        messages: what it sends, as bytes.
        index: in the fleet.
        member: what it is.
        head: of its requests.

    Attributes:
        polled: the poll on its way.
    """

    __slots__ = ("_etag", "_head", "_list", "_pace", "_poll_due_s", "_poll_fault", "_poll_retries", "_target", "polled")

    driver: HttpDriver

    def __init__(
        self, driver: HttpDriver, messages: HttpMessages, index: int, member: Member, head: RequestHead
    ) -> None:
        super().__init__(driver, messages, index, member)
        self._head = head
        self._target = messages.poll_target(member.device_id, member.model.wait_s)
        self.polled: Request | None = None

    def boot(self, now: Moment) -> None:
        model = self.member.model
        self._pace = PollPace(model.polling)
        self._poll_retries: Retries | None = None  # None while all is well
        self._poll_fault = ""
        self._etag: str | None = None
        self._list: PagedPoll | None = None  # a list that has more pages
        # The first poll follows within fast_s, each device at its own place in it.
        self._poll_due_s = now.monotonic_s + phase_s(self.member.device_id, "poll", model.polling.fast_s)

    def power_gone(self) -> None:
        self.polled = None

    def link_lost(self, now_s: float) -> None:
        self.driver.engine.cut(self.index)
        self._fail_all(OutcomeClass.TRANSPORT, DOWN, now_s)

    def end(self) -> None:
        self._fail_all(OutcomeClass.TIMEOUT, RUN_OVER, self.fleet.monotonic())

    def _fail_all(self, outcome: OutcomeClass, reason: str, now_s: float) -> None:
        for request in (self.posted, self.polled):
            if request is not None:  # it counts as sent
                self.failed(request, outcome, reason, now_s, now_s)

    @property
    def is_settled(self) -> bool:
        """Also: no poll from before the drain is under way, unless the service was asked to hold it."""
        poll = self.polled
        is_owed = poll is not None and poll.held_s <= 0 and poll.intended_s < self.driver.phases_end_s < NEVER
        return super().is_settled and not is_owed

    def turn(self, now_s: float) -> None:
        """Send what is due, and set the timer for what comes next."""
        now = None
        if now_s >= self.own_due_s:
            now = self.moment(now_s)
            self.advance(now)
        post_due_s = self.post_due_s
        if post_due_s <= now_s:
            request = self.next_post(now or self.moment(now_s))
            post_due_s = NEVER if request is not None else self.post_due_s
            if request is not None:
                self._send(request)
        if self._poll_due_s <= now_s:
            self._send(self._next_poll())
        self.wait_until(min(self.own_due_s, post_due_s, self._poll_due_s))

    def _send(self, request: Request) -> None:
        message = self._head.message(request.method, request.target, request.headers, request.body)
        self.driver.send(self.index, message, _Sent(self, request), self.fleet.timeout_s + request.held_s)
        for _ in range(request.copies):
            self.driver.send(self.index, message, _Nobody(), self.fleet.timeout_s)

    # --- polls --------------------------------------------------------------------------------------------------------

    def _next_poll(self) -> Request:
        due_s, self._poll_due_s = self._poll_due_s, NEVER
        poll = self.polled = Request(_POLL, "GET", self._target, intended_s=due_s, ready_s=due_s)
        if self._list is not None:
            poll.target = self._list.next_target()
        else:
            poll.held_s = self.messages.held_s(self.member.model.wait_s)
            if self._etag:
                poll.headers = {"if-none-match": self._etag}
        return poll

    def poll_answered(self, request: Request, answer: HttpAnswer, sent_s: float, now: Moment) -> OutcomeClass:
        """Process the answer to a poll; returns its outcome."""
        listing = self.messages.empty_listing(answer) if self._list is None else None
        if listing is None:
            base_url, is_held = self.fleet.base_url, request.held_s > 0
            reading = self._list or PagedPoll(self.messages, self.member.device_id, base_url, is_held=is_held)
            try:
                listing = reading.take(answer)
            except ServiceError as error:
                if reading.has_begun:
                    self._take_in(reading.listing(is_whole=False), sent_s, now)
                self._poll_failed(error, now)
                return outcome_of(error)
            if listing is None:  # there are more pages
                self._list = reading
                self._poll_due_s = now.monotonic_s
                return _OK
            self._list = None
        poll, commands = listing.poll, self.commands
        has_news = self._take_in(listing, sent_s, now)
        self._poll_retries = None
        self._poll_fault = "; ".join(poll.malformed)
        if listing.etag or not poll.unchanged:
            self._etag = listing.etag
        self._pace, wait_s = self._pace.polled(
            active=has_news,
            busy=commands is not None and commands.is_busy,
            held=poll.held or request.held_s > 0,
            took_s=now.monotonic_s - sent_s,
            fraction=self.fleet.chance(),
        )
        self._poll_due_s = now.monotonic_s + wait_s
        return _OK

    def _poll_failed(self, error: ServiceError, now: Moment) -> None:
        self._list = None
        self._poll_fault = str(error)
        self._poll_retries = self._poll_retries or Retries(self.member.model.backoff, self.fleet.chance)
        self._poll_due_s = now.monotonic_s + self._poll_retries.failed(error)

    def _take_in(self, listing: Listing, sent_s: float, now: Moment) -> bool:
        """Process a list of commands; returns whether any is new."""
        poll = listing.poll
        self.time = self.time.observe(listing.server_time, now, now.monotonic_s - sent_s)
        has_news = not poll.unchanged and take_in(self, poll, now)
        if has_news:
            self.own_due_s = AT_ONCE_S
        return has_news

    # --- the end of a request -----------------------------------------------------------------------------------------

    def failed(self, request: Request, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """No answer came: retry after a pause."""
        now = self.moment(now_s)
        if self.driver.is_over:
            outcome, reason = OutcomeClass.TIMEOUT, RUN_OVER
        error = UnexpectedAnswer(reason) if outcome is OutcomeClass.UNEXPECTED else TransportError(reason)
        if request.operation is _POLL:
            self._poll_failed(error, now)
        else:
            self.unsettled(request, error, now, left=sent_s is not None)
        self.ended(request, outcome, sent_s, now_s)

    def post_answered(self, request: Request, answer: HttpAnswer, sent_s: float, now: Moment) -> OutcomeClass:
        """Process the answer to a report or to readings; returns its outcome."""
        try:
            refused, server_time = read_settled(answer, request.keys)
        except ServiceError as error:
            self.unsettled(request, error, now)
            return outcome_of(error)
        self.settled(request, refused, server_time, sent_s, now)
        return _OK

    def ended(self, request: Request, outcome: OutcomeClass, sent_s: float | None, now_s: float) -> None:
        """Measure a request that has ended, and send what is due next."""
        is_poll, is_over, fault = request.operation is _POLL, self.driver.is_over, self.fault
        if is_poll:
            self.polled, fault = None, self._poll_fault
        if is_over and not self._is_overdue(request, now_s):
            return
        # How long the service holds a poll says nothing of how fast it answers.
        name = HELD_POLL if request.held_s > 0 else request.operation
        observer, intended_s, ready_s = self.fleet.observer, request.intended_s, request.ready_s
        observer.exchanged(name, outcome, self.index, intended_s, ready_s, sent_s, now_s, request.attempt)
        if fault:
            observer.faulted(name, self.index, fault)
        if is_over:
            return
        poll_due_s = self._poll_due_s
        if is_poll and now_s < poll_due_s and now_s < self.own_due_s:  # nothing else was changed by a poll
            self.wait_until(poll_due_s if poll_due_s < self.due_s else self.due_s)
        else:
            self.turn(now_s)

    def _is_overdue(self, request: Request, now_s: float) -> bool:
        """Whether a request without an answer at the run's end counts as a timeout."""
        if request.operation is not _POLL:
            return True
        if request.held_s > 0:
            return now_s - request.intended_s > request.held_s
        return request.intended_s < self.driver.phases_end_s


class _Sent:
    """A request on its way: the engine's :class:`~simulator.fleet.engine.http_answers.Caller`."""

    __slots__ = ("_device", "_request")

    def __init__(self, device: HttpDevice, request: Request) -> None:
        self._device = device
        self._request = request

    @property
    def is_wanted(self) -> bool:
        """True until the device loses its power or link."""
        return self._request is self._device.posted or self._request is self._device.polled

    def answered(self, status: int, headers: Headers, body: bytes, sent_s: float, now_s: float) -> None:
        device, request, answer = self._device, self._request, HttpAnswer(status, headers, body)
        take = device.poll_answered if request.operation is _POLL else device.post_answered
        device.ended(request, take(request, answer, sent_s, device.moment(now_s)), sent_s, now_s)

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        self._device.failed(self._request, outcome, reason, sent_s, now_s)


class _Nobody:
    """The caller of a duplicate, whose answer does not matter."""

    is_wanted = True

    def answered(self, *_answer: object) -> None: ...

    def failed(self, *_failure: object) -> None: ...
