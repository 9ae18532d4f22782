"""A virtual device: the agent's own core between two channels, from power-on to power-off, without any I/O.

The caller owns time and transport. It asks each channel what to send, sends it, and hands back the answer or the error;
``due_s`` says when to ask again. The two channels are those of the real agent: commands come through one, reports and
readings leave through the other, and neither waits for the other. Each has at most one request on its way, so the
caller must hand back the answer or the error of each, and let the device :meth:`VirtualDevice.advance` whenever
something is due or came back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent.core.admission import Verdict, decide_commands
from agent.core.commands import OPEN_STATES, HandlerRule, recover, refuse_at_start
from agent.core.poll_interval import PollPace
from agent.core.schedule import Schedule, phase_s
from agent.core.timekeeping import ServiceTime
from agent.core.values import CommandPoll, CommandState, JournalEntry, Moment, Outcome, Report
from agent.errors import ServiceError
from simulator.fleet.audit.digest import digest_document, digest_values
from simulator.fleet.audit.ledger import SEQUENCE_NAME
from simulator.fleet.device.answers import outcome_of
from simulator.fleet.device.fast_path import AnswerHeaders, stamps_of
from simulator.fleet.device.handlers import RULES, VOCABULARY, HandlerContext, Work, parse_payload
from simulator.fleet.device.http_codec import IN_PROGRESS, Listing, Operation, PagedPoll, Request, values_text
from simulator.fleet.device.retry_policy import RetryPolicy
from simulator.fleet.device.uplink import DeviceUplink
from simulator.fleet.engine.ports import HttpAnswer
from simulator.fleet.engine.wheel import NEVER
from simulator.fleet.outcomes import Attempt, OutcomeClass
from simulator.fleet.signals import READING, DeviceRandom, device_key

if TYPE_CHECKING:
    from simulator.fleet.device.fast_path import KnownAnswers
    from simulator.fleet.device.hashed_random import HashedRandom
    from simulator.fleet.device.http_codec import HttpCodec
    from simulator.fleet.device.model import DeviceModel, SharedSettings
    from simulator.fleet.device.store import Disk

_VERSION: Final = "firmware"
"""The setting on the disk that holds the version after an update."""
_INTERVAL: Final = "interval_s"
_AT_ONCE_S: Final = float("-inf")
# Shorter works are over before anybody could look.
_PROGRESS_FROM_S: Final = 0.5
_PROGRESS_KEPT: Final = 16


class VirtualDevice:
    """One life of a device; the next one has the same disk and chance.

    Args:
        index: in the fleet.
        codec: who it is for the service.
        model: what it is.
        fleet: what it has in common with all others.
        disk: what it remembers.
        chance: its random numbers; they go on over restarts.
        known_answers: bodies that need not be parsed.
        now: the instant of power-on.

    Attributes:
        time: what it knows of the service's clock.
        lanes: its handlers at work; None while there never was a command.
        commands, uplink: the channels.
        own_due_s: when time alone brings something, on the monotonic clock: the sensor, or the end of a command's work.
    """

    __slots__ = (
        "_sample_due_s",
        "_sampling",
        "_schedule",
        "began_s",
        "chance",
        "codec",
        "commands",
        "disk",
        "fleet",
        "index",
        "individual",
        "known_answers",
        "lanes",
        "model",
        "own_due_s",
        "time",
        "uplink",
    )

    def __init__(
        self,
        index: int,
        codec: HttpCodec,
        model: DeviceModel,
        fleet: SharedSettings,
        disk: Disk,
        *,
        chance: HashedRandom,
        known_answers: KnownAnswers,
        now: Moment,
    ) -> None:
        self.index = index
        self.codec = codec
        self.model = model
        self.fleet = fleet
        self.disk = disk
        self.chance = chance
        self.known_answers = known_answers
        self.time = ServiceTime(trust_wall=True)
        self.individual = DeviceRandom.at(fleet.seed, index)
        self.began_s = now.monotonic_s
        self._sampling = True
        self.own_due_s = _AT_ONCE_S
        self._schedule = self._scheduled()
        self._sample_due_s = self._schedule.next_after(now.monotonic_s)
        self.commands = CommandPolling(self, now)
        self.uplink = DeviceUplink(self)
        self.lanes: Lanes | None = None
        if disk.journal.entries:
            self.lanes = Lanes(self)
            self.lanes.resume(now)

    # --- what the caller does -----------------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Nothing runs, and everything that was to be handed over is."""
        return not (self.lanes is not None and self.lanes.busy) and not self.uplink.has_work

    def answered(self, request: Request, answer: HttpAnswer, sent_s: float, now: Moment) -> OutcomeClass:
        """Take the answer to a request, good or not; the class that the exchange counts in.

        Args:
            request: what was sent.
            answer: what came.
            sent_s: when it was sent, on the monotonic clock.
            now: when the answer came.
        """
        if request.operation is Operation.POLL:
            outcome = self.commands.answered(request, answer, sent_s, now)
            if self.lanes is not None:
                self.own_due_s = _AT_ONCE_S  # it may have brought a command
            return outcome
        return self.uplink.answered(request, answer, sent_s, now)

    def failed(self, request: Request, error: ServiceError, now: Moment, *, left: bool = True) -> None:
        """No answer came: the same is asked again after a while; ``left``: the request went out."""
        if request.operation is Operation.POLL:
            self.commands.failed(error, now)
        else:
            self.uplink.failed(request, error, now, left=left)

    def power_lost(self, now: Moment) -> None:
        """This life ends here."""
        in_flight = self.disk.in_flight
        if self.uplink.is_waiting and in_flight is not None:
            self.disk.in_flight = in_flight._replace(attempt=Attempt.AMBIGUOUS)
            self.fleet.ledger.readings("unanswered", self.index, in_flight.keys, self.run_s(now))

    def sample(self, *, on: bool) -> None:
        """Read the sensor, or stop reading it, to let everything drain."""
        self._sampling = on
        self.uplink.drain(on=not on)
        self.own_due_s = _AT_ONCE_S

    def advance(self, now: Moment) -> None:
        """Do what time brings by itself: the sensor, and handlers that begin and end."""
        if now.monotonic_s < self.own_due_s:
            return
        lanes = self.lanes
        if lanes is not None and lanes.busy:
            for work in lanes.advance(now, self.time.at(now)):
                if work.version is not None:
                    self.disk.journal.put_setting(_VERSION, work.version)
                if work.interval_s is not None:
                    self.disk.journal.put_setting(_INTERVAL, repr(work.interval_s))
                    self._schedule = self._scheduled()
                    self._sample_due_s = self._schedule.next_after(now.monotonic_s)
        if self._sampling and now.monotonic_s >= self._sample_due_s:
            self._sample(now)
        due_s = self._sample_due_s if self._sampling else NEVER
        self.own_due_s = due_s if lanes is None else min(due_s, lanes.due_s)

    # --- what its parts share -----------------------------------------------------------------------------------------

    def run_s(self, now: Moment) -> float:
        """Seconds since the run's begin, as the audit's ledger counts them."""
        return now.monotonic_s - self.fleet.began_s

    def values(self, now: Moment) -> dict[str, float]:
        """The values of its sensors now, by reading name."""
        faults = self.fleet.faults
        if faults is not None:
            return faults.read(self.individual, self.model.signals, now)
        return self.model.signals.read(self.individual, now.wall_s)

    def context(self, now: Moment) -> HandlerContext:
        """What a handler may see."""
        firmware = self.model.firmware
        factory = "" if firmware is None else firmware.factory_version(self.individual)
        return HandlerContext(
            device_id=self.codec.device_id,
            now=now,
            values=self.values(now),
            interval_s=self.model.interval_s,
            version=self.disk.journal.settings.get(_VERSION, factory),
            firmware=firmware,
        )

    def take_in(self, poll: CommandPoll, now: Moment) -> bool:
        """Decide on commands, commit, queue; whether they brought something new.

        What is over is forgotten when a list comes without it. Pushed commands are no list.
        """
        journal = self.disk.journal
        ids = [command.id for command in poll.commands]
        decided = decide_commands(
            poll.commands,
            journal.known(ids),
            RULES,
            received=now,
            service_now_s=self.time.at(now),
            first_contact=journal.is_empty,
        )
        journal.admit(decided.entries)
        if not poll.pushed:
            journal.forget(ids)
        for entry in decided.entries:
            self._note(entry, now)
        for decision in decided.of(Verdict.ADMIT):
            if decision.entry is not None:
                self.lanes = self.lanes or Lanes(self)
                self.lanes.queue(decision.entry)
        return bool(decided.entries)

    def _note(self, entry: JournalEntry, now: Moment) -> None:
        """Count a new entry and write it down for the audit."""
        if entry.state not in OPEN_STATES:
            return
        fleet, command, at_s = self.fleet, entry.command, self.run_s(now)
        fleet.gauges.open_commands += 1
        # What is over at once is kept without its payload.
        payload = digest_document(command.payload) if entry.outcome is None else None
        fleet.ledger.command("received", self.index, command.id, at_s, digest=payload, created_at=command.created_at)
        if entry.outcome is not None:
            fleet.ledger.command(
                "finished", self.index, command.id, at_s, detail=entry.outcome.status, error=entry.outcome.error
            )

    def _sample(self, now: Moment) -> None:
        fleet, outbox, due_s = self.fleet, self.disk.outbox, self._sample_due_s
        missed = int((now.monotonic_s - due_s) / self._schedule.period_s)
        if missed > 0:
            fleet.ages.missed(missed)
        self._sample_due_s = self._schedule.next_after(now.monotonic_s)
        values = self.values(now)
        if not values:  # none of its sensors has a value
            return
        digest = digest_values(values)
        if fleet.numbered:
            values[SEQUENCE_NAME] = fleet.first_number + outbox.next_key
        dropped = outbox.put(values_text(values), digest, now, due_s)
        fleet.gauges.waiting_readings += 1 - len(dropped)
        if dropped:
            fleet.ages.given_up(dropped, OutcomeClass.TIMEOUT, now.monotonic_s)
        if fleet.faults is not None:
            self.uplink.hold(fleet.faults.held_until_s(self.individual, now))

    def _scheduled(self) -> Schedule:
        model, fleet = self.model, self.fleet
        interval_s = float(self.disk.journal.settings.get(_INTERVAL, model.interval_s))
        own_s = 0.0 if model.in_step else phase_s(device_key(fleet.seed, self.index), READING, interval_s)
        # The plan counts from the run's begin, the schedule on the machine's clock.
        return Schedule(interval_s, (own_s + fleet.began_s) % interval_s)


@dataclass(frozen=True, slots=True)
class _Running:
    command_id: str
    work: Work
    ends_s: float


class Lanes:
    """Runs what the journal has admitted; every step is in the journal before it counts. Each handler is a lane."""

    __slots__ = ("_device", "_progress", "_running", "_waiting")

    def __init__(self, device: VirtualDevice) -> None:
        self._device = device
        self._waiting: dict[str, list[str]] = {}
        self._running: dict[str, _Running] = {}
        self._progress: list[Report] = []

    @property
    def busy(self) -> bool:
        """Whether a command is running or waits for its lane."""
        return bool(self._running or self._waiting)

    @property
    def due_s(self) -> float:
        """When the next running command ends, on the monotonic clock; infinity when none runs."""
        return min([running.ends_s for running in self._running.values()], default=NEVER)

    @property
    def has_progress(self) -> bool:
        """Whether :meth:`next_progress` may have something."""
        return bool(self._progress)

    def resume(self, started: Moment) -> None:
        """Judge after a power-on at ``started`` what the last life left, and queue what it left waiting."""
        journal = self._device.disk.journal
        for entry in journal.in_state(CommandState.STARTED):
            handler = VOCABULARY.get(entry.handler)
            rule = HandlerRule(handler.contract, entry.handler) if handler else None
            recovery = recover(entry, rule, started)
            if recovery.outcome is not None:
                self._finish(entry.command.id, recovery.outcome, started)
            else:
                self.queue(entry)
        for entry in journal.in_state(CommandState.RECEIVED):
            self.queue(entry)

    def queue(self, entry: JournalEntry) -> None:
        """Let an admitted command wait for its lane."""
        self._waiting.setdefault(entry.handler, []).append(entry.command.id)

    def advance(self, now: Moment, service_now_s: float | None) -> list[Work]:
        """End what is due and begin what can; the works that ended."""
        ended: list[Work] = []
        self._begin(now, service_now_s)
        # Works without a duration end in the instant they begin, and the next one of their lane begins then.
        while due := [lane for lane, running in self._running.items() if running.ends_s <= now.monotonic_s]:
            for lane in due:
                running = self._running.pop(lane)
                self._finish(running.command_id, running.work.outcome, now)
                ended.append(running.work)
            self._begin(now, service_now_s)
        return ended

    def next_progress(self) -> Report | None:
        """That a command is under way, for the service; None when there is nothing to report. Not repeated."""
        while self._progress:
            report = self._progress.pop(0)
            if any(running.command_id == report.command_id for running in self._running.values()):
                return report
        return None

    def _begin(self, now: Moment, service_now_s: float | None) -> None:
        for lane in list(self._waiting):
            while lane in self._waiting and lane not in self._running:
                command_id = self._waiting[lane].pop(0)
                if not self._waiting[lane]:
                    del self._waiting[lane]
                entry = self._device.disk.journal.known([command_id])[command_id]
                refusal = refuse_at_start(entry, service_now_s)
                if refusal is not None:
                    self._finish(command_id, refusal, now)
                else:
                    self._running[lane] = self._start(entry, now)

    def _start(self, entry: JournalEntry, now: Moment) -> _Running:
        device, command_id = self._device, entry.command.id
        started = device.disk.journal.start(command_id, now)
        handler = VOCABULARY[entry.handler]
        device.fleet.ledger.command(
            "started", device.index, command_id, device.run_s(now), detail=handler.contract, attempt=started.attempts
        )
        work = handler.handle(parse_payload(handler, entry.command.payload), device.context(now))
        if work.duration_s >= _PROGRESS_FROM_S:
            self._progress.append(Report(command_id, IN_PROGRESS, started_at=now.wall_s))
            del self._progress[:-_PROGRESS_KEPT]
        return _Running(command_id, work, now.monotonic_s + work.duration_s)

    def _finish(self, command_id: str, outcome: Outcome, now: Moment) -> None:
        device = self._device
        device.disk.journal.finish(command_id, outcome, now)
        result = None if outcome.result is None else digest_document(outcome.result)
        device.fleet.ledger.command(
            "finished",
            device.index,
            command_id,
            device.run_s(now),
            detail=outcome.status,
            digest=result,
            error=outcome.error,
        )


class CommandPolling:
    """The channel over which commands come: polls, and their pace.

    Args:
        device: whose.
        now: the instant of power-on; the first poll follows within ``fast_s``, each device at its own place in it.

    Attributes:
        due_s: when to ask again, on the monotonic clock; infinity while a poll is on its way.
        fault: why the last answer was no good one, for a person.
    """

    __slots__ = ("_device", "_etag", "_pace", "_reading", "_retry_policy", "due_s", "fault")

    def __init__(self, device: VirtualDevice, now: Moment) -> None:
        model = device.model
        self._device = device
        self._pace = PollPace(model.polling)
        self._retry_policy = RetryPolicy(model.backoff, device.chance, defies_limit=model.defies_limit)
        self._etag: str | None = None
        self._reading: PagedPoll | None = None  # a list that has more pages
        self.fault = ""
        self.due_s = now.monotonic_s + phase_s(device.codec.device_id, "poll", model.polling.fast_s)

    def next_request(self, now: Moment) -> Request | None:
        """The next poll; None when it is not due."""
        due_s = self.due_s
        if now.monotonic_s < due_s:
            return None
        self.due_s = NEVER
        if self._reading is not None:
            return self._reading.next_page(due_s)
        return self._device.codec.poll(self._device.model.wait_s, self._etag, due_s)

    def answered(self, request: Request, answer: HttpAnswer, sent_s: float, now: Moment) -> OutcomeClass:
        """Take a poll's answer, good or not; the class that it counts in."""
        device = self._device
        unchanged = None if self._reading is not None else device.known_answers.unchanged(answer)
        stamps = None if unchanged is None else stamps_of(answer.headers)
        if stamps is not None:
            if not unchanged:
                device.disk.journal.admit(())
                device.disk.journal.forget(())
            self._heard(stamps, unchanged=bool(unchanged), news=False, held=request.wait_s > 0, sent_s=sent_s, now=now)
            return OutcomeClass.OK
        reading = self._reading or PagedPoll(device.codec, request, device.fleet.base_url)
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
            device.known_answers.learn_empty(answer.body)
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
        poll, device = listing.poll, self._device
        device.time = device.time.observe(poll.server_time, now, now.monotonic_s - sent_s)
        return not poll.unchanged and device.take_in(poll, now)

    def _heard(
        self, stamps: AnswerHeaders, *, unchanged: bool, news: bool, held: bool, sent_s: float, now: Moment
    ) -> None:
        device = self._device
        self._retry_policy.succeeded()
        self.fault = ""
        took_s = now.monotonic_s - sent_s
        device.time = device.time.observe(stamps.server_time, now, took_s)
        if stamps.etag or not unchanged:
            self._etag = stamps.etag
        self._pace, wait_s = self._pace.polled(
            active=news,
            busy=device.lanes is not None and device.lanes.busy,
            held=held,
            took_s=took_s,
            fraction=device.chance(),
        )
        self.due_s = now.monotonic_s + wait_s
