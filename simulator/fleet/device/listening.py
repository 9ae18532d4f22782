"""The way in of a virtual device: asking for commands, deciding on them, asking again in time. No I/O."""

from __future__ import annotations

from collections.abc import Callable

from agent.core.backoff import Backoff
from agent.core.commands import CommandRules, Verdict, triage
from agent.core.polling import PollIntervals, PollPace
from agent.core.schedule import phase_s
from agent.core.values import CommandPoll, Moment
from agent.errors import ServiceError
from simulator.fleet.device.exchange import Ask, Speaker, read_listing
from simulator.fleet.device.known_time import KnownTime
from simulator.fleet.device.lanes import Lanes
from simulator.fleet.device.ledger import DeviceLedger
from simulator.fleet.device.patience import Patience
from simulator.fleet.device.store import MemoryJournal
from simulator.fleet.engine.pool import HttpAnswer


class Listening:
    """The commands' channel.

    Args:
        speaker: builds the requests.
        journal, lanes, ledger: the device's.
        rules: what triage goes by.
        intervals: how often to ask where the service cannot hold a poll.
        wait_s: how long the service is asked to hold one.
        backoff: the pace of retries.
        fraction: random numbers in [0, 1).
        time: what the device knows of the service's clock.
        now: the instant of power-on; the first poll follows within ``fast_s``, each device at its own place in it.
    """

    def __init__(
        self,
        speaker: Speaker,
        journal: MemoryJournal,
        lanes: Lanes,
        ledger: DeviceLedger,
        *,
        rules: CommandRules,
        intervals: PollIntervals,
        wait_s: float,
        backoff: Backoff,
        fraction: Callable[[], float],
        time: KnownTime,
        now: Moment,
    ) -> None:
        self._speaker = speaker
        self._journal = journal
        self._lanes = lanes
        self._ledger = ledger
        self._rules = rules
        self._wait_s = wait_s
        self._fraction = fraction
        self._pace = PollPace(intervals)
        self._patience = Patience(backoff, fraction)
        self._etag: str | None = None
        self._time = time
        self.due_s = now.monotonic_s + phase_s(speaker.device_id, "poll", intervals.fast_s)

    def ask(self, now: Moment) -> Ask | None:
        """The next poll; None when it is not due."""
        return self._speaker.poll(self._wait_s, self._etag) if now.monotonic_s >= self.due_s else None

    def answered(self, ask: Ask, answer: HttpAnswer, sent: Moment, now: Moment) -> None:
        """Take a poll's answer, good or not."""
        try:
            listing = read_listing(answer, ask, self._speaker.device_id)
        except ServiceError as error:
            self.failed(error, now)
            return
        poll = listing.poll
        self._patience.succeeded()
        self._time.observe(poll.server_time, now)
        news = not poll.unchanged and self._take(poll, now)
        self._etag = listing.etag or (self._etag if poll.unchanged else None)
        self._pace, wait_s = self._pace.polled(
            active=news or self._lanes.busy,
            held=poll.held,
            took_s=now.monotonic_s - sent.monotonic_s,
            fraction=self._fraction(),
        )
        self.due_s = now.monotonic_s + wait_s

    def failed(self, error: ServiceError, now: Moment) -> None:
        """No good answer came."""
        self._ledger.fault(f"poll: {error}")
        self.due_s = now.monotonic_s + self._patience.failed(error)

    def _take(self, poll: CommandPoll, now: Moment) -> bool:
        """Decide on a list, commit, queue; whether it brought something new."""
        ids = [command.id for command in poll.commands]
        decided = triage(
            poll.commands,
            self._journal.known(ids),
            self._rules,
            received=now,
            service_now_s=self._time.at(now),
            first_contact=self._journal.is_empty,
        )
        self._journal.admit(decided.entries)
        self._journal.forget(ids)
        for decision in decided.of(Verdict.ADMIT):
            if decision.entry is not None:
                self._lanes.queue(decision.entry)
        for sentence in poll.malformed:
            self._ledger.fault(f"poll: {sentence}")
        return bool(decided.entries)
