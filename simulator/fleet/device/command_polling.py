"""Command polling of a virtual device: requests, decisions on what is listed, and the pace. No I/O."""

from __future__ import annotations

from agent.core.poll_interval import PollPace
from agent.core.schedule import phase_s
from agent.core.values import Moment
from agent.errors import ServiceError
from simulator.fleet.device.answers import outcome_of
from simulator.fleet.device.fast_path import AnswerHeaders, stamps_of
from simulator.fleet.device.http_codec import Listing, PagedPoll, Request
from simulator.fleet.device.retry_policy import RetryPolicy
from simulator.fleet.device.runtime import DeviceRuntime, take_in
from simulator.fleet.engine.ports import HttpAnswer
from simulator.fleet.engine.wheel import NEVER
from simulator.fleet.outcomes import OutcomeClass


class CommandPolling:
    """The channel over which commands come.

    Args:
        runtime: the device's.
        now: the instant of power-on; the first poll follows within ``fast_s``, each device at its own place in it.

    Attributes:
        due_s: when to ask again, on the monotonic clock; infinity while a poll is on its way.
        fault: why the last answer was no good one, for a person.
    """

    __slots__ = ("_etag", "_pace", "_reading", "_retry_policy", "_runtime", "due_s", "fault")

    def __init__(self, runtime: DeviceRuntime, now: Moment) -> None:
        intervals = runtime.model.polling
        self._runtime = runtime
        self._pace = PollPace(intervals)
        self._retry_policy = RetryPolicy(runtime.model.backoff, runtime.chance, defies_limit=runtime.model.defies_limit)
        self._etag: str | None = None
        self._reading: PagedPoll | None = None  # a list that has more pages
        self.fault = ""
        self.due_s = now.monotonic_s + phase_s(runtime.codec.device_id, "poll", intervals.fast_s)

    def next_request(self, now: Moment) -> Request | None:
        """The next poll; None when it is not due."""
        due_s = self.due_s
        if now.monotonic_s < due_s:
            return None
        self.due_s = NEVER
        runtime = self._runtime
        if self._reading is not None:
            return self._reading.next_page(due_s)
        return runtime.codec.poll(runtime.model.wait_s, self._etag, due_s)

    def answered(self, request: Request, answer: HttpAnswer, sent_s: float, now: Moment) -> OutcomeClass:
        """Take a poll's answer, good or not; the class that it counts in."""
        unchanged = None if self._reading is not None else self._runtime.known_answers.unchanged(answer)
        stamps = None if unchanged is None else stamps_of(answer.headers)
        if stamps is not None:
            if not unchanged:
                self._runtime.disk.journal.admit(())
                self._runtime.disk.journal.forget(())
            self._heard(stamps, unchanged=bool(unchanged), news=False, held=request.wait_s > 0, sent_s=sent_s, now=now)
            return OutcomeClass.OK
        reading = self._reading or PagedPoll(self._runtime.codec, request, self._runtime.fleet.base_url)
        try:
            listing = reading.take(answer)
        except ServiceError as error:
            if reading.has_begun:
                self._take_in(reading.listing(is_whole=False), sent_s, now)
            self.failed(error, now)
            return outcome_of(error)
        if listing is None:
            self._reading = reading
            self.due_s = now.monotonic_s
            return OutcomeClass.OK
        is_one_page, self._reading = self._reading is None, None
        poll = listing.poll
        news = self._take_in(listing, sent_s, now)
        if is_one_page and not (poll.unchanged or poll.commands or poll.malformed):
            self._runtime.known_answers.learn_empty(answer.body)
        stamps = AnswerHeaders(None, listing.etag)  # its time is observed already: the decisions above went by it
        self._heard(stamps, unchanged=poll.unchanged, news=news, held=poll.held, sent_s=sent_s, now=now)
        self.fault = "; ".join(poll.malformed)
        return OutcomeClass.OK

    def failed(self, error: ServiceError, now: Moment) -> None:
        """No good answer came."""
        self._reading = None
        self.fault = str(error)
        self.due_s = now.monotonic_s + self._retry_policy.failed(error)

    def _take_in(self, listing: Listing, sent_s: float, now: Moment) -> bool:
        """Decide on what is listed; whether it brought something new."""
        poll = listing.poll
        self._runtime.time.observe(poll.server_time, now, now.monotonic_s - sent_s)
        return not poll.unchanged and take_in(self._runtime, poll, now)

    def _heard(
        self, stamps: AnswerHeaders, *, unchanged: bool, news: bool, held: bool, sent_s: float, now: Moment
    ) -> None:
        runtime = self._runtime
        self._retry_policy.succeeded()
        self.fault = ""
        took_s = now.monotonic_s - sent_s
        runtime.time.observe(stamps.server_time, now, took_s)
        if stamps.etag or not unchanged:
            self._etag = stamps.etag
        self._pace, wait_s = self._pace.polled(
            active=news,
            busy=runtime.lanes is not None and runtime.lanes.busy,
            held=held,
            took_s=took_s,
            fraction=runtime.chance(),
        )
        self.due_s = now.monotonic_s + wait_s
