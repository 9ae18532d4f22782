"""Takes listed commands in: decision, journal, then their lanes.

Also how long the ids of commands that are over are remembered: as long as the service lists them, and a day more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from agent.core.admission import CommandRules, Decisions, Verdict, decide_commands
from agent.core.commands import OVER_STATES
from agent.core.listed import OPEN_STATUSES
from agent.core.values import Admission, Command, CommandPoll, CommandState, JournalEntry, JournalLookup
from agent.runtime.engine import CommandEngine
from agent.runtime.failure_log import LineRate
from agent.wire.limits import TTL_MAX_S

if TYPE_CHECKING:
    from agent.ports import Clock
    from agent.store.journal import Journal

_log = logging.getLogger(__name__)

LIST_CUT: Final = "list_cut"
"""Name of the journal's setting that is there once a list was too long to be looked at as a whole. From then on a
command without a time and a state is not run: it may be an old one that was not looked at before."""

# Where no list ever comes, nothing may be pushed again that is older than this: no command lives as long.
_REMEMBER_PUSHED_S: Final = TTL_MAX_S + 86_400.0
_FORGET_EVERY_S: Final = 3600.0
_DAY_S: Final = 86_400.0
_NEWS: Final = frozenset({Verdict.ADMIT, Verdict.REFUSE, Verdict.VERIFY, Verdict.CANCEL})


@dataclass(slots=True)
class _Day:
    """The ids of commands that are over and were listed since ``began_s`` (monotonic), ``wall_s`` (true time)."""

    began_s: float
    wall_s: float
    listed: set[str] = field(default_factory=set)


class Intake:
    """Decides about listed commands and hands the new ones to their lanes. Used from one thread.

    Args:
        journal: commits what was decided.
        rules: by which it is decided.
        engine: takes what is to run.
        clock: both clocks.
        service_now: the service's clock, epoch seconds; None when it is not known.
        post_result: called with a command that was refused: its result waits to be reported.
        only_pushed: no poll ever lists what is open, so only its age says when a command may be forgotten.
    """

    def __init__(
        self,
        *,
        journal: Journal,
        rules: CommandRules,
        engine: CommandEngine,
        clock: Clock,
        service_now: Callable[[], float | None],
        post_result: Callable[[JournalEntry], object],
        only_pushed: bool = False,
    ) -> None:
        self._journal = journal
        self._rules = rules
        self._engine = engine
        self._clock = clock
        self._service_now = service_now
        self._post_result = post_result
        self._only_pushed = only_pushed
        self._forget_at_s = 0.0
        self._day: _Day | None = None
        self._rejections = LineRate(_log, lambda: clock.now().monotonic_s, logging.WARNING)
        self._receptions = LineRate(_log, lambda: clock.now().monotonic_s, logging.INFO, most=200)

    def take(self, poll: CommandPoll) -> int:
        """Decide about every command in the list, commit, and only then dispatch; how many were news.

        A command that is refused is news as one that will run is: its sender waits for the next one all the same.

        Raises:
            StorageError: nothing was committed, so nothing may be acknowledged.
        """
        result = self._decide(poll)
        for decision in result.decisions:
            entry = decision.entry
            if entry is None:
                continue
            match decision.verdict:
                case Verdict.ADMIT:
                    self._engine.dispatch(entry)
                case Verdict.VERIFY:
                    self._engine.dispatch(entry, verify=True)
                case Verdict.CANCEL:
                    self._engine.cancel(decision.command_id, "by the service")
                case Verdict.REFUSE:
                    self._post_result(entry)
                case Verdict.DUPLICATE if entry.state is CommandState.RECEIVED:
                    # It may wait in no lane: its commit was reported as failed, and is there after all.
                    self._engine.dispatch(entry)
                case _:
                    pass
        self._log_decisions(result)
        if self._only_pushed:
            self._forget_old()
        elif not poll.pushed and not poll.omitted and poll.is_whole:
            self._forget_unlisted(poll, result)
        return sum(decision.verdict in _NEWS for decision in result.decisions)

    def _decide(self, poll: CommandPoll) -> Decisions:
        """Decide about the list by the journal while that has the store to itself, and admit what comes of it."""
        now, service_now_s, is_cut = self._clock.now(), self._service_now(), poll.omitted > 0
        waiting = self._engine.waiting()
        results: list[Decisions] = []

        def choose(found: JournalLookup) -> Admission | None:
            # What was in the middle of a list that was cut may be in this one now.
            was_cut = LIST_CUT in found.settings
            result = decide_commands(
                [each for each in poll.commands if _has_age(each, found)] if was_cut else poll.commands,
                found.known,
                self._rules,
                received=now,
                service_now_s=service_now_s,
                first_contact=found.is_empty,
                history_lost=found.history_lost,
                settings=found.settings,
                waiting=waiting,
            )
            results.append(result)
            settings = {**result.settings, LIST_CUT: "1"} if is_cut and not was_cut else result.settings
            is_worth_it = result.must_be_stored or LIST_CUT in settings
            return Admission(result.entries, settings) if is_worth_it else None

        ids = [command.id for command in poll.commands]
        self._journal.decide(ids, choose, (*self._rules.settings, LIST_CUT))
        return results[-1]

    # --- what may be forgotten ----------------------------------------------------------------------------------------

    def _forget_old(self) -> None:
        now_s, service_now_s = self._clock.now().monotonic_s, self._service_now()
        if now_s < self._forget_at_s or service_now_s is None:
            return
        self._forget_at_s = now_s + _FORGET_EVERY_S
        gone = self._journal.forget((), service_now_s - _REMEMBER_PUSHED_S)
        if gone:
            _log.info("journal=tidied forgotten=%d commands that are too old to come again", gone)

    def _forget_unlisted(self, poll: CommandPoll, result: Decisions) -> None:
        """Forget an id once every list of a whole day lacked it.

        A list may be cut short by mistake, and a service may be away for hours behind a page that looks like an empty
        list: what is missing from one list is not gone.
        """
        now_s, wall_s = self._clock.now().monotonic_s, self._service_now()
        if wall_s is None:
            return
        over = {each.command_id for each in result.decisions if each.entry and each.entry.state in OVER_STATES}
        day = self._day
        if day is None or day.wall_s > wall_s:
            self._day = _Day(now_s, wall_s, over)
            return
        day.listed |= over
        if now_s - day.began_s < _DAY_S:
            return
        gone = self._journal.forget([*day.listed, *(command.id for command in poll.commands)], day.wall_s)
        if gone:
            _log.info("journal=tidied forgotten=%d commands that the service no longer lists", gone)
        self._day = _Day(now_s, wall_s, over)

    def _log_decisions(self, result: Decisions) -> None:
        for decision in result.of(Verdict.REFUSE):
            entry = decision.entry
            reason = entry.outcome.error if entry is not None and entry.outcome is not None else ""
            signer = _signer(result, decision.command_id)
            self._rejections.write("command=%s state=rejected reason=%r%s", decision.command_id, reason, signer)
        for decision in result.of(Verdict.ADMIT):
            handler = decision.entry.handler if decision.entry is not None else ""
            signer = _signer(result, decision.command_id)
            self._receptions.write("command=%s handler=%s state=received%s", decision.command_id, handler, signer)
        skipped = len(result.of(Verdict.SKIP))
        if skipped:
            why = "they were sent before this device's first contact; see commands.first_contact"
            _log.info("commands=skipped count=%d: %s", skipped, why)


def _has_age(command: Command, found: JournalLookup) -> bool:
    """Whether it is known how old the command is: by time, by state, or since the journal has it."""
    is_open = (command.status or "").lower() in OPEN_STATUSES
    return command.created_at is not None or is_open or command.id in found.known


def _signer(result: Decisions, command_id: str) -> str:
    signer = result.signers.get(command_id)
    return f" signed by {signer}" if signer else ""
