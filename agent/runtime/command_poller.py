"""The command source's service: polls at the pace that the answers call for; commands that vanish from the list."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from agent.core.listed import OPEN_STATUSES
from agent.core.poll_interval import MIN_GAP_S, PollIntervals, PollPace
from agent.core.values import CommandPoll
from agent.errors import InvalidMessage, Offline, ServiceError, StorageError
from agent.runtime.controls import IntervalChanged
from agent.runtime.engine import CommandEngine
from agent.runtime.failure_log import FailureLog
from agent.runtime.health import Health
from agent.runtime.retry_policy import HOURLY_S, RetryPolicy, describe
from agent.runtime.service import Actor

if TYPE_CHECKING:
    from agent.ports import Clock, CommandSource

_log = logging.getLogger(__name__)

PART: Final = "commands"
_STORE_RETRY_S: Final = 5.0
_MALFORMED_SHOWN: Final = 3


class RemoteCancels:
    """Cancels here what the service has canceled. Used from one thread.

    A command leaves the list of open ones for more reasons than that: it expired, its time was up, another device
    concluded it. So the service is asked, once, which ones it has canceled; and only a service with states is
    asked, since on a plain server nothing ever leaves the list.

    Args:
        source: asked about commands under way that it no longer lists.
        engine: knows what is under way, and cancels.
    """

    def __init__(self, source: CommandSource, engine: CommandEngine) -> None:
        self._source = source
        self._engine = engine
        # Missing from the last list; False once the service was asked about it.
        self._missing: dict[str, bool] = {}

    def look(self, poll: CommandPoll) -> None:
        """Compare an answer of the source, whose commands are in the journal, with what is under way."""
        if poll.pushed or poll.omitted or not poll.is_whole:
            return
        if not poll.unchanged:
            listed = {command.id for command in poll.commands}
            self._missing = {
                command_id: self._missing.get(command_id, True)
                for command_id, status in self._engine.under_way().items()
                if command_id not in listed and (status or "").lower() in OPEN_STATUSES
            }
        doubtful = [command_id for command_id, is_new in self._missing.items() if is_new]
        if doubtful:
            self._ask(doubtful)

    def _ask(self, command_ids: list[str]) -> None:
        try:
            canceled = self._source.canceled(command_ids)
        except (ServiceError, InvalidMessage) as error:
            _log.info("commands=unsure whether %d were canceled is asked again: %s", len(command_ids), error)
            return
        for command_id in command_ids:
            self._missing[command_id] = False
            if command_id in canceled:
                try:
                    self._engine.cancel(command_id, "by the service")
                except StorageError as error:
                    _log.error("journal=failing: a cancel could not be written: %s", error)


class CommandPoller(Actor):
    """Polls and hands each answer to the intake.

    Args:
        take: decides about a poll's commands and commits them to the journal; returns how many are new. May raise
            :class:`~agent.errors.StorageError`: then nothing is acknowledged and the same list is asked for again.
        look: called with each answer once it is in the journal.
        intervals: the bounds in force now.
        wait_s: how long the service may hold a poll now, seconds; 0 forbids it.
        is_busy: a command is under way.
        first_s: how long after the start the first poll comes, seconds.
        fraction: random numbers in [0, 1).
    """

    CONNECTED: Final = "connected"

    def __init__(
        self,
        *,
        source: CommandSource,
        take: Callable[[CommandPoll], int],
        intervals: Callable[[], PollIntervals],
        wait_s: Callable[[], float],
        is_busy: Callable[[], bool],
        clock: Clock,
        retry_policy: RetryPolicy,
        health: Health,
        fraction: Callable[[], float],
        first_s: float = 0.0,
        repeat_after_s: float = 300.0,
        look: Callable[[CommandPoll], None] = lambda _poll: None,
    ) -> None:
        super().__init__(PART)
        self._source = source
        self._take = take
        self._look = look
        self._intervals = intervals
        self._wait_s = wait_s
        self._is_busy = is_busy
        self._clock = clock
        self._retry_policy = retry_policy
        self._health = health
        self._fraction = fraction
        self._pace = PollPace(intervals())
        self._failure_log = FailureLog(_log, lambda: clock.now().monotonic_s, repeat_after_s)
        self._due_s = self._clock.now().monotonic_s + first_s
        self._is_stopping = False

    def due_at(self) -> float:
        """When to ask next; never again once the stop has begun."""
        return float("inf") if self._is_stopping else self._due_s

    def step(self) -> None:
        """Ask the source for commands once."""
        begun_s = self._clock.now().monotonic_s
        try:
            poll = self._source.poll(self._wait_s())
        except StorageError as error:
            self._journal_failed(error)
            return
        except (ServiceError, InvalidMessage) as error:
            if self._is_stopping:
                return
            self._back_off(error)
            return
        if self._is_stopping:
            return
        took_s = self._clock.now().monotonic_s - begun_s
        self._answered(poll)
        try:
            new = 0 if poll.unchanged else self._take(poll)
        except StorageError as error:
            self._journal_failed(error)
            return
        if not poll.unchanged:
            self._source.acknowledge([command.id for command in poll.commands])
            self._health.put("journal", "ok")
            self._failure_log.recovered("journal", "commands=ok: the journal can be written again")
        self._look(poll)
        if poll.pushed:
            # Waiting for a push makes no request; only a wait that returned at once must not follow itself at once.
            delay_s = 0.0 if poll.commands or took_s >= MIN_GAP_S else MIN_GAP_S
        else:
            self._pace, delay_s = self._pace.polled(
                active=new > 0, held=poll.held, took_s=took_s, fraction=self._fraction(), busy=self._is_busy()
            )
        self._due_s = self._clock.now().monotonic_s + delay_s

    def receive(self, message: IntervalChanged | str) -> None:
        """The poll interval was set: it counts from now. Or :data:`CONNECTED`: the next poll comes at once."""
        if message == self.CONNECTED:
            self._due_s = self._clock.now().monotonic_s
            return
        self._pace = PollPace(self._intervals())
        self._due_s = min(self._due_s, self._clock.now().monotonic_s + self._intervals().idle_s)

    def interrupt(self) -> None:
        """The stop: end a held poll, and take no commands from it."""
        self._is_stopping = True
        self._source.interrupt()

    def _answered(self, poll: CommandPoll) -> None:
        """Note that the service answered, and log what is odd about its list."""
        self._retry_policy.succeeded()
        self._failure_log.recovered(PART, "commands=ok: the service answers again")
        self._health.put(PART, "ok")
        for sentence in poll.malformed[:_MALFORMED_SHOWN]:
            self._failure_log.report(f"malformed {sentence}", f"commands=malformed: {sentence}", every_s=HOURLY_S)
        if len(poll.malformed) > _MALFORMED_SHOWN:
            text = f"commands=malformed: {len(poll.malformed) - _MALFORMED_SHOWN} more in the same list are skipped"
            self._failure_log.report("malformed more", text, every_s=HOURLY_S)
        if poll.omitted:
            text = (
                f"commands=too_many: of a list of {len(poll.commands) + poll.omitted} or more commands only "
                f"{len(poll.commands)}, from both of its ends, are looked at; let the service list open commands alone"
            )
            self._failure_log.report("too many", text, every_s=HOURLY_S)
        elif not poll.unchanged:
            self._failure_log.recovered("too many", "commands=ok: the whole list is looked at again")

    def _journal_failed(self, error: StorageError) -> None:
        text = f"commands=waiting: they cannot be written to the journal, so they stay with the service: {error}"
        self._failure_log.report("journal", text, level=logging.ERROR)
        self._health.put("journal", "failing", str(error))
        self._due_s = self._clock.now().monotonic_s + _STORE_RETRY_S

    def _back_off(self, error: ServiceError | InvalidMessage) -> None:
        delay_s = self._retry_policy.failed(error)
        self._due_s = self._clock.now().monotonic_s + delay_s
        state, text, every_s = describe(error)
        if not isinstance(error, Offline):  # the part that keeps the connection logs it
            self._failure_log.report(PART, f"commands={state}: {text}; next try in {delay_s:.0f} s", every_s=every_s)
        self._health.put(PART, state, text)
