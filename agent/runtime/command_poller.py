"""Commands come in: the source is polled; what is new is decided on, committed to the journal and given to its lane.

Only then is it acknowledged. Here is also how long the ids of commands that are over are remembered, and which of the
commands under way the service has canceled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from agent.core.admission import Decisions, Verdict, decide_commands
from agent.core.commands import HISTORY_LOST, OPEN_STATUSES, OVER_STATES
from agent.core.timekeeping import MIN_GAP_S, PollIntervals, PollPace
from agent.core.values import CommandPoll, CommandState
from agent.errors import InvalidMessage, Offline, ServiceError, StorageError
from agent.health import FLOOD_S, HOURLY_S, REPEAT_AFTER_S, FailureLog, RetryPolicy, describe
from agent.ports import CommandSource
from agent.runtime.actor import Actor, Context
from agent.runtime.engine import CommandEngine
from agent.wire.limits import TTL_MAX_S

_log = logging.getLogger(__name__)

LIST_CUT: Final = "list_cut"
"""Name of the journal's setting that is there once a list was too long to be looked at as a whole. From then on a
command without a time and a state is not run: it may be an old one that was not looked at before."""

_DAY_S: Final = 86_400.0
# Where no list ever comes, nothing may be pushed again that is older than this: no command lives as long.
_REMEMBER_PUSHED_S: Final = TTL_MAX_S + _DAY_S
_STORE_RETRY_S: Final = 5.0
_MALFORMED_SHOWN: Final = 3
_NEWS: Final = frozenset({Verdict.ADMIT, Verdict.REFUSE, Verdict.VERIFY, Verdict.CANCEL})


class CommandPoller(Actor):
    """Polls at the pace that the answers call for.

    Messages: :data:`CONNECTED`: the next poll comes at once. Any other one: the poll interval was set, and counts from
    now.

    Args:
        context: what it shares with the other parts.
        source: lists commands. When a list cannot be committed, the same one is asked for again.
        engine: takes what is to run, knows what is under way, and cancels.
        intervals: the bounds in force now.
        wait_s: how long the service may hold a poll now, seconds; 0 forbids it.
        has_lists: polls list what is open; else commands are only pushed, and just their age says when they may be
            forgotten.
    """

    CONNECTED: Final = "connected"

    def __init__(
        self,
        context: Context,
        source: CommandSource,
        engine: CommandEngine,
        *,
        intervals: Callable[[], PollIntervals],
        wait_s: Callable[[], float],
        has_lists: bool = True,
    ) -> None:
        super().__init__("commands", context)
        self._source = source
        self._engine = engine
        self._intervals = intervals
        self._wait_s = wait_s
        self._has_lists = has_lists
        self._pace = PollPace(intervals())
        self._retry_policy = RetryPolicy(context.fraction)
        self._failure_log = FailureLog(_log, self.now_s, REPEAT_AFTER_S)
        self._due_s = self.now_s() + context.first_s
        self._is_stopping = False
        # Under way, called open once, and missing from the last list; those of them that the service was asked about.
        self._missing: set[str] = set()
        self._asked: set[str] = set()
        # The ids of commands that are over and were listed since a moment: monotonic, and on the service's clock.
        self._listed: set[str] = set()
        self._listed_since: tuple[float, float] | None = None

    def due_at(self) -> float:
        """When to ask next; never again once the stop has begun."""
        return float("inf") if self._is_stopping else self._due_s

    def receive(self, message: str) -> None:
        """See the class."""
        if message == self.CONNECTED:
            self._due_s = self.now_s()
        else:
            self._pace = PollPace(self._intervals())
            self._due_s = min(self._due_s, self.now_s() + self._intervals().idle_s)

    def interrupt(self) -> None:
        """The stop: end a held poll, and take no commands from it."""
        self._is_stopping = True
        self._source.interrupt()

    def step(self) -> None:
        """Ask the source for commands once."""
        begun_s, health = self.now_s(), self.context.health
        try:
            poll = self._source.poll(self._wait_s())
            if self._is_stopping:
                return
            took_s = self.now_s() - begun_s
            self._note_answer(poll)
            new = 0 if poll.unchanged else self.take(poll)
        except StorageError as error:
            text = f"commands=waiting: they cannot be written to the journal, so they stay with the service: {error}"
            self._failure_log.report("journal", text, level=logging.ERROR)
            health.put("journal", "failing", str(error))
            self._due_s = self.now_s() + _STORE_RETRY_S
            return
        except (ServiceError, InvalidMessage) as error:
            if not self._is_stopping:
                self._back_off(error)
            return
        if not poll.unchanged:
            self._source.acknowledge([command.id for command in poll.commands])
            health.put("journal", "ok")
            self._failure_log.recovered("journal", "commands=ok: the journal can be written again")
        self._cancel_what_the_service_canceled(poll)
        if poll.pushed:
            # Waiting for a push makes no request; only a wait that returned at once must not follow itself at once.
            delay_s = 0.0 if poll.commands or took_s >= MIN_GAP_S else MIN_GAP_S
        else:
            fraction, is_busy = self.context.fraction(), self._engine.is_busy()
            self._pace, delay_s = self._pace.polled(
                active=new > 0, held=poll.held, took_s=took_s, fraction=fraction, busy=is_busy
            )
        self._due_s = self.now_s() + delay_s

    # --- what is listed -----------------------------------------------------------------------------------------------

    def take(self, poll: CommandPoll) -> int:
        """Decide on every command in the list, commit, and only then dispatch; how many were news.

        A command that is refused is news as one that will run is: its sender waits for the next one all the same.

        Raises:
            StorageError: nothing was committed, so nothing may be acknowledged.
        """
        result = self._decide(poll)
        for decision in result.decisions:
            entry = decision.entry
            if entry is None:
                continue
            signed = f" signed by {decision.signer}" if decision.signer else ""
            match decision.verdict:
                case Verdict.ADMIT:
                    _log.info("command=%s handler=%s state=received%s", entry.command.id, entry.handler, signed)
                    self._engine.dispatch(entry)
                case Verdict.VERIFY:
                    self._engine.dispatch(entry, verify=True)
                case Verdict.CANCEL:
                    self._engine.cancel(entry.command.id, "by the service")
                case Verdict.REFUSE:
                    reason = (entry.outcome and entry.outcome.error) or ""
                    line = f"command={entry.command.id} state=rejected reason={reason!r}{signed}"
                    self._failure_log.report(f"rejected {reason.partition(':')[0]}", line, every_s=FLOOD_S)
                    self.context.post_result(entry)
                case Verdict.DUPLICATE if entry.state is CommandState.RECEIVED:
                    # It may wait in no lane: its commit was reported as failed, and is there after all.
                    self._engine.dispatch(entry)
                case _:
                    pass
        if skipped := len(result.of(Verdict.SKIP)):
            why = "they were sent before this device's first contact; see commands.first_contact"
            _log.info("commands=skipped count=%d: %s", skipped, why)
        if not self._has_lists or (poll.is_whole and not poll.pushed):
            self._forget(poll, result)
        return sum(decision.verdict in _NEWS for decision in result.decisions)

    def _decide(self, poll: CommandPoll) -> Decisions:
        """Decide by the journal and admit what comes of it, in one transaction."""
        journal, rules = self.context.store.journal, self._engine.rules
        # Asked before, since nothing may wait for a lock while it holds the store's thread.
        now, service_now_s, waiting = self.context.clock.now(), self.context.time.now(), self._engine.waiting()

        def decide() -> Decisions:
            settings = journal.settings(*rules.settings, HISTORY_LOST, LIST_CUT)
            known, commands = journal.known([command.id for command in poll.commands]), poll.commands
            if LIST_CUT in settings:
                # What was in the middle of a list that was cut may be in this one now: its age must be known.
                commands = tuple(
                    each
                    for each in commands
                    if each.created_at is not None or _is_open(each.status) or each.id in known
                )
            result = decide_commands(
                commands,
                known,
                rules,
                received=now,
                service_now_s=service_now_s,
                first_contact=journal.is_empty(),
                history_lost=HISTORY_LOST in settings,
                settings=settings,
                waiting=waiting,
            )
            is_newly_cut = poll.omitted > 0 and LIST_CUT not in settings
            if result.entries or result.settings or is_newly_cut:
                journal.admit(result.entries, {**result.settings, **({LIST_CUT: "1"} if is_newly_cut else {})})
            return result

        return self.context.store.call(decide, writes=True)

    def _forget(self, poll: CommandPoll, result: Decisions) -> None:
        """Once a day: forget the ids of commands that are over and cannot come again.

        Every list of the whole day lacked them: one list may be cut short by mistake, and a service may be away for
        hours behind a page that looks like an empty list. Without lists, they are older than any command lives.
        """
        now_s, service_now_s = self.now_s(), self.context.time.now()
        if service_now_s is None:
            return
        over = {each.command_id for each in result.decisions if each.entry and each.entry.state in OVER_STATES}
        if self._listed_since is None or self._listed_since[1] > service_now_s:
            self._listed_since, self._listed = (now_s, service_now_s), over
            return
        self._listed |= over
        began_s, before_s = self._listed_since
        if now_s - began_s < _DAY_S:
            return
        if not self._has_lists:
            before_s = service_now_s - _REMEMBER_PUSHED_S
        listed = [*self._listed, *(command.id for command in poll.commands)]
        if gone := self.context.store.journal.forget(listed, before_s):
            _log.info("journal=tidied forgotten=%d commands that are over and cannot come again", gone)
        self._listed_since, self._listed = (now_s, service_now_s), over

    def _cancel_what_the_service_canceled(self, poll: CommandPoll) -> None:
        """Cancel here what left the list because the service canceled it.

        A command leaves the list of open ones for more reasons than that: it expired, its time was up, another device
        concluded it. So the service is asked, once, which ones it has canceled; and only a service with states is
        asked, since on a plain server nothing ever leaves the list.
        """
        if poll.pushed or not poll.is_whole:
            return
        if not poll.unchanged:
            listed = {command.id for command in poll.commands}
            under_way = self._engine.under_way().items()
            self._missing = {each for each, status in under_way if each not in listed and _is_open(status)}
            self._asked &= self._missing
        new = self._missing - self._asked
        if not new:
            return
        try:
            canceled = self._source.canceled(sorted(new))
        except (ServiceError, InvalidMessage) as error:
            _log.info("commands=unsure whether %d were canceled is asked again: %s", len(new), error)
            return
        self._asked |= new
        for command_id in canceled:
            try:
                self._engine.cancel(command_id, "by the service")
            except StorageError as error:
                _log.error("journal=failing: a cancel could not be written: %s", error)

    # --- how it goes --------------------------------------------------------------------------------------------------

    def _note_answer(self, poll: CommandPoll) -> None:
        """Note that the service answered, and log what is odd about its list."""
        self._retry_policy.succeeded()
        self._failure_log.recovered(self.name, "commands=ok: the service answers again")
        self.context.health.put(self.name, "ok")
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

    def _back_off(self, error: ServiceError | InvalidMessage) -> None:
        delay_s = self._retry_policy.failed(error)
        self._due_s = self.now_s() + delay_s
        state, text, every_s = describe(error)
        if not isinstance(error, Offline):  # the part that keeps the connection logs it
            line = f"commands={state}: {text}; next try in {delay_s:.0f} s"
            self._failure_log.report(self.name, line, every_s=every_s)
        self.context.health.put(self.name, state, text)


def _is_open(status: str | None) -> bool:
    return (status or "").lower() in OPEN_STATUSES
