"""A virtual device over HTTP: it polls for commands and posts what it has; each channel has one request on its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from simulator.fleet.engine.wheel import NEVER
from simulator.fleet.outcomes import OutcomeClass

if TYPE_CHECKING:  # a driver has devices, which are a driver's
    from simulator.fleet.device.driver import HttpDriver


class HttpDevice(Device):
    """One device over HTTP.

    Args:
        driver: of this device among others.
        messages: what it sends, as bytes.
        index: in the fleet.
        member: what it is.
        head: of its requests.
    """

    __slots__ = (
        "_etag",
        "_head",
        "_list",
        "_pace",
        "_poll",
        "_poll_due_s",
        "_poll_fault",
        "_poll_message",
        "_poll_retries",
        "_post",
    )

    driver: HttpDriver

    def __init__(
        self, driver: HttpDriver, messages: HttpMessages, index: int, member: Member, head: RequestHead
    ) -> None:
        super().__init__(driver, messages, index, member)
        self._head = head
        self._poll: _Poll | None = None  # the poll on its way
        self._post: _Post | None = None  # the report or the readings on their way
        self._poll_message = b""  # stays the same until the list's version changes; empty where it is to be made

    def boot(self, now: Moment) -> None:
        model = self.member.model
        self._pace = PollPace(model.polling)
        self._poll_retries = Retries(model.backoff, self.fleet.chance)
        self._poll_fault = ""
        self._know_version(None)
        self._list: PagedPoll | None = None  # a list that has more pages
        # The first poll follows within fast_s, each device at its own place in it.
        self._poll_due_s = now.monotonic_s + phase_s(self.member.device_id, "poll", model.polling.fast_s)

    def power_gone(self) -> None:
        for sent in (self._poll, self._post):
            if sent is not None:
                sent.is_wanted = False
        self._poll = self._post = None

    def link_lost(self, now_s: float) -> None:
        self.driver.engine.cut(self.index)
        for sent in (self._post, self._poll):
            if sent is not None:  # it counts as sent
                sent.is_wanted = False
                sent.failed(OutcomeClass.TRANSPORT, DOWN, now_s, now_s)

    def end(self) -> None:
        now_s = self.fleet.monotonic()
        for sent in (self._post, self._poll):
            if sent is not None:
                sent.failed(OutcomeClass.TIMEOUT, RUN_OVER, now_s, now_s)

    @property
    def is_settled(self) -> bool:
        """Also: no poll that was due while the phases lasted is without an answer, unless the service holds it."""
        poll = self._poll
        is_owed = poll is not None and poll.held_s <= 0 and poll.due_s < self.driver.phases_end_s < NEVER
        return super().is_settled and not is_owed

    def turn(self, now_s: float) -> None:
        """Send what is due, and wake up for what is not."""
        now = None
        if now_s >= self.own_due_s:
            now = self.moment(now_s)
            self.advance(now)
        post_due_s = self.post_due_s
        if post_due_s <= now_s:
            request = self.next_post(now or self.moment(now_s))
            post_due_s = self.post_due_s
            if request is not None:
                self._send_post(request)
        if self._poll_due_s <= now_s:
            self._send_poll()
        self.wait_until(min(self.own_due_s, post_due_s, self._poll_due_s))

    # --- polls --------------------------------------------------------------------------------------------------------

    def _send_poll(self) -> None:
        due_s, self._poll_due_s = self._poll_due_s, NEVER
        messages, held_s = self.messages, 0.0
        if self._list is not None:
            message = self._head.message("GET", self._list.next_target())
        else:
            held_s = messages.held_s(self.member.model.wait_s)
            message = self._poll_message
            if not message:
                target = messages.poll_target(self.member.device_id, held_s)
                headers = {"if-none-match": self._etag} if self._etag else {}
                message = self._poll_message = self._head.message("GET", target, headers)
        self._poll = poll = _Poll(self, due_s, held_s)
        self.driver.send(self.index, message, poll, self.fleet.timeout_s + held_s)

    def _know_version(self, etag: str | None) -> None:
        self._etag = etag
        self._poll_message = b""

    def poll_answered(
        self, poll: _Poll, status: int, headers: Headers, body: bytes, sent_s: float, now_s: float
    ) -> None:
        """Take a poll's answer, good or not."""
        self._poll = None
        now, outcome = self.moment(now_s), OutcomeClass.OK
        listing = None if self._list is not None else self.messages.empty_listing(status, headers, body)
        if listing is None:
            try:
                listing = self._read_page(poll, HttpAnswer(status, headers, body), sent_s, now)
            except ServiceError as error:
                self._poll_failed(error, now_s)
                outcome = outcome_of(error)
        if listing is not None:
            has_news = self._take_in(listing, sent_s, now)
            if self._poll_retries.failures:
                self._poll_retries.succeeded()
            self._poll_fault = "; ".join(listing.poll.malformed)
            if listing.etag != self._etag and (listing.etag or not listing.poll.unchanged):
                self._know_version(listing.etag)
            commands = self.commands
            self._pace, wait_s = self._pace.polled(
                active=has_news,
                busy=commands is not None and commands.is_busy,
                held=listing.poll.held or poll.held_s > 0,
                took_s=now_s - sent_s,
                fraction=self.fleet.chance(),
            )
            self._poll_due_s = now_s + wait_s
        self._poll_ended(poll, outcome, sent_s, now_s)
        if self.own_due_s == AT_ONCE_S or self._poll_due_s <= now_s:
            self.turn(now_s)
        else:
            self.wait_until(min(self.due_s, self._poll_due_s))

    def poll_unanswered(
        self, poll: _Poll, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float
    ) -> None:
        """No answer came: the same is asked again after a while."""
        self._poll = None
        outcome, error = self._error_of(outcome, reason)
        self._poll_failed(error, now_s)
        # When the run is over, only what ought to have come by now is counted.
        is_late = now_s - poll.due_s > poll.held_s if poll.held_s > 0 else poll.due_s < self.driver.phases_end_s
        is_over = self.driver.is_over
        if is_late or not is_over:
            self._poll_ended(poll, outcome, sent_s, now_s)
        if not is_over:
            self.turn(now_s)

    def _read_page(self, poll: _Poll, answer: HttpAnswer, sent_s: float, now: Moment) -> Listing | None:
        """The whole list, when this was its last page; None when there are more.

        Raises:
            ServiceError: it is no good answer.
        """
        reading = self._list
        if reading is None:
            base_url, is_held = self.fleet.base_url, poll.held_s > 0
            reading = PagedPoll(self.messages, self.member.device_id, base_url, is_held=is_held)
        try:
            listing = reading.take(answer)
        except ServiceError:
            if reading.has_begun:
                self._take_in(reading.listing(is_whole=False), sent_s, now)
            raise
        self._list = reading if listing is None else None
        if listing is None:
            self._poll_due_s = now.monotonic_s
        return listing

    def _poll_failed(self, error: ServiceError, now_s: float) -> None:
        """No good answer came."""
        self._list = None
        self._poll_fault = str(error)
        self._poll_due_s = now_s + self._poll_retries.failed(error)

    def _poll_ended(self, poll: _Poll, outcome: OutcomeClass, sent_s: float | None, now_s: float) -> None:
        # How long the service holds a poll says nothing of how fast it answers.
        name = HELD_POLL if poll.held_s > 0 else Operation.POLL
        self.fleet.observer.exchanged(name, outcome, self.index, poll.due_s, poll.due_s, sent_s, now_s)
        if self._poll_fault:
            self.fleet.observer.faulted(name, self.index, self._poll_fault)

    def _take_in(self, listing: Listing, sent_s: float, now: Moment) -> bool:
        """Decide on what is listed; whether it brought something new."""
        poll = listing.poll
        self.time = self.time.observe(listing.server_time, now, now.monotonic_s - sent_s)
        has_news = not poll.unchanged and take_in(self, poll, now)
        if has_news:
            self.own_due_s = AT_ONCE_S
        return has_news

    # --- reports and readings -----------------------------------------------------------------------------------------

    def _send_post(self, request: Request) -> None:
        message = self._head.message("POST", request.target, request.headers, request.body)
        self._post = post = _Post(self, request)
        self.driver.send(self.index, message, post, self.fleet.timeout_s)
        for _ in range(request.copies):
            self.driver.send(self.index, message, _Nobody(), self.fleet.timeout_s)

    def post_answered(
        self, request: Request, status: int, headers: Headers, body: bytes, sent_s: float, now_s: float
    ) -> None:
        """Take the answer to a report or to readings, good or not."""
        now, outcome = self.moment(now_s), OutcomeClass.OK
        try:
            refused, server_time = read_settled(status, headers, body, request.keys)
        except ServiceError as error:
            self.unsettled(request, error, now)
            outcome = outcome_of(error)
        else:
            self.settled(request, refused, server_time, sent_s, now)
        self._post_ended(request, outcome, sent_s, now_s)

    def post_unanswered(
        self, request: Request, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float
    ) -> None:
        """No answer came: the same is sent again after a while."""
        outcome, error = self._error_of(outcome, reason)
        self.unsettled(request, error, self.moment(now_s), left=sent_s is not None)
        self._post_ended(request, outcome, sent_s, now_s)

    def _post_ended(self, request: Request, outcome: OutcomeClass, sent_s: float | None, now_s: float) -> None:
        observer, name = self.fleet.observer, request.operation
        self._post = None
        observer.exchanged(
            name, outcome, self.index, request.intended_s, request.ready_s, sent_s, now_s, request.attempt
        )
        if self.fault:
            observer.faulted(name, self.index, self.fault)
        if not self.driver.is_over:
            self.turn(now_s)

    # --- both ---------------------------------------------------------------------------------------------------------

    def _error_of(self, outcome: OutcomeClass, reason: str) -> tuple[OutcomeClass, ServiceError]:
        if self.driver.is_over:
            outcome, reason = OutcomeClass.TIMEOUT, RUN_OVER
        error = UnexpectedAnswer(reason) if outcome is OutcomeClass.UNEXPECTED else TransportError(reason)
        return outcome, error


class _Poll:
    """A poll on its way: the engine's :class:`~simulator.fleet.engine.http_answers.Caller`.

    Attributes:
        due_s: when it was due.
        held_s: how long the service was asked to hold it.
    """

    __slots__ = ("_device", "due_s", "held_s", "is_wanted")

    def __init__(self, device: HttpDevice, due_s: float, held_s: float) -> None:
        self._device = device
        self.is_wanted = True
        self.due_s = due_s
        self.held_s = held_s

    def answered(self, status: int, headers: Headers, body: bytes, sent_s: float, now_s: float) -> None:
        self._device.poll_answered(self, status, headers, body, sent_s, now_s)

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        self._device.poll_unanswered(self, outcome, reason, sent_s, now_s)


class _Post:
    """A report or readings on their way, as :class:`_Poll`."""

    __slots__ = ("_device", "_request", "is_wanted")

    def __init__(self, device: HttpDevice, request: Request) -> None:
        self._device = device
        self.is_wanted = True
        self._request = request

    def answered(self, status: int, headers: Headers, body: bytes, sent_s: float, now_s: float) -> None:
        self._device.post_answered(self._request, status, headers, body, sent_s, now_s)

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        self._device.post_unanswered(self._request, outcome, reason, sent_s, now_s)


class _Nobody:
    """Who waits for the answer to a copy of a body."""

    is_wanted = True

    def answered(self, *_answer: object) -> None: ...

    def failed(self, *_failure: object) -> None: ...
