"""Takes listed commands in: triage, journal, then their lanes; takes up again what a crash interrupted.

Also how long the ids of commands that are over are remembered: as long as the service lists them, and a day more.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from agent.core.commands import OVER_STATES, recover, start_entry
from agent.core.listed import OPEN_STATUSES
from agent.core.timekeeping import age_s, is_plausible
from agent.core.triage import CommandRules, Triage, TriageVerdict, triage
from agent.core.values import (
    Admission,
    Command,
    CommandPoll,
    CommandState,
    Contract,
    JournalEntry,
    JournalLookup,
    Moment,
)
from agent.errors import StorageError
from agent.runtime.dispatcher import Dispatcher
from agent.runtime.failure_log import LineRate
from agent.wire.limits import TTL_MAX_S

if TYPE_CHECKING:
    from agent.ports import Clock
    from agent.store.journal import Journal

_log = logging.getLogger(__name__)

# Where no list ever comes, nothing may be pushed again that is older than this: no command lives as long.
_REMEMBER_PUSHED_S: Final = TTL_MAX_S + 86_400.0
_FORGET_EVERY_S: Final = 3600.0
_NEWS: Final = frozenset({TriageVerdict.ADMIT, TriageVerdict.REFUSE, TriageVerdict.VERIFY, TriageVerdict.CANCEL})


LIST_CUT: Final = "list_cut"
"""Name of the journal's setting that is there once a list was too long to be looked at as a whole. From then on a
command without a time and a state is not run: it may be an old one that was not looked at before."""


class Intake:
    """Decides about listed commands and hands the new ones to their lanes. Used from one thread.

    Args:
        service_now: the service's clock, epoch seconds; None when it is not known.
        on_finished: a result waits to be reported.
        only_pushed: no poll ever lists what is open, so only its age says when a command may be forgotten.
    """

    def __init__(
        self,
        *,
        journal: Journal,
        rules: CommandRules,
        dispatcher: Dispatcher,
        clock: Clock,
        service_now: Callable[[], float | None],
        on_finished: Callable[[], object],
        only_pushed: bool = False,
    ) -> None:
        self._journal = journal
        self._rules = rules
        self._dispatcher = dispatcher
        self._clock = clock
        self._service_now = service_now
        self._on_finished = on_finished
        self._only_pushed = only_pushed
        self._forget_at_s = 0.0
        self._listed = ListedWindow(journal)
        self._rejections = LineRate(_log, lambda: clock.now().monotonic_s, logging.WARNING)
        self._receptions = LineRate(_log, lambda: clock.now().monotonic_s, logging.INFO, most=200)

    def take(self, poll: CommandPoll) -> int:
        """Decide about every command in the list, commit, and only then dispatch; how many were news.

        A command that is refused is news as one that will run is: its sender waits for the next one all the same.

        Raises:
            StorageError: nothing was committed, so nothing may be acknowledged.
        """
        ids = [command.id for command in poll.commands]
        pass_ = _ListTriage(
            poll.commands,
            self._rules,
            self._dispatcher,
            self._clock.now(),
            self._service_now(),
            is_cut=poll.omitted > 0,
        )
        try:
            self._journal.decide(ids, pass_.choose, (*self._rules.settings, LIST_CUT))
        except BaseException:
            pass_.is_over = True
            self._dispatcher.release(pass_.claimed)
            raise
        result = pass_.result
        self._resume_forgotten(result)
        admitted = result.of(TriageVerdict.ADMIT)
        for decision in admitted:
            if decision.entry is not None:
                self._dispatcher.dispatch(decision.entry, claimed=decision.command_id in pass_.claimed)
        for decision in result.of(TriageVerdict.VERIFY):
            if decision.entry is not None:
                self._dispatcher.dispatch(decision.entry, verify=True)
        for decision in result.of(TriageVerdict.CANCEL):
            self._dispatcher.cancel(decision.command_id, "by the service")
        if result.of(TriageVerdict.REFUSE):
            self._on_finished()
        self._log_decisions(result)
        if self._only_pushed:
            self._forget_old()
        elif not poll.pushed and not poll.omitted and poll.is_whole:
            # By the true time; 0 where it is not known, and then nothing is forgotten.
            now = replace(self._clock.now(), wall_s=self._service_now() or 0.0)
            self._listed.saw(ids, result, now)
        return sum(decision.verdict in _NEWS for decision in result.decisions)

    def _log_decisions(self, result: Triage) -> None:
        for decision in result.of(TriageVerdict.REFUSE):
            entry: JournalEntry | None = decision.entry
            reason = entry.outcome.error if entry is not None and entry.outcome is not None else ""
            signer = _signer(result, decision.command_id)
            self._rejections.write("command=%s state=rejected reason=%r%s", decision.command_id, reason, signer)
        self._rejections.sum_up("commands=rejected count=%d more: their results say why")
        for decision in result.of(TriageVerdict.ADMIT):
            handler = decision.entry.handler if decision.entry is not None else ""
            signer = _signer(result, decision.command_id)
            self._receptions.write("command=%s handler=%s state=received%s", decision.command_id, handler, signer)
        self._receptions.sum_up("commands=received count=%d more")
        skipped = len(result.of(TriageVerdict.SKIP))
        if skipped:
            why = "they were sent before this device's first contact; see commands.first_contact"
            _log.info("commands=skipped count=%d: %s", skipped, why)

    def _resume_forgotten(self, result: Triage) -> None:
        """Dispatch what is listed again and waits in no lane: its write was committed and reported as failed."""
        for decision in result.of(TriageVerdict.DUPLICATE):
            entry = decision.entry
            if entry is None or entry.state not in {CommandState.RECEIVED, CommandState.STARTED}:
                continue
            rule = self._rules.handlers.get(entry.handler)
            is_idempotent = rule is not None and rule.contract is Contract.IDEMPOTENT
            if entry.state is CommandState.RECEIVED or is_idempotent:
                self._dispatcher.dispatch(entry)

    def _forget_old(self) -> None:
        now_s, service_now_s = self._clock.now().monotonic_s, self._service_now()
        if now_s < self._forget_at_s or service_now_s is None:
            return
        self._forget_at_s = now_s + _FORGET_EVERY_S
        gone = self._journal.forget((), service_now_s - _REMEMBER_PUSHED_S)
        if gone:
            _log.info("journal=tidied forgotten=%d commands that are too old to come again", gone)


@dataclass(slots=True)
class _ListTriage:
    """The triage of one list, which the journal asks for while it has the store to itself.

    Attributes:
        claimed: commands that are ``started`` with the commit that admits them, since their lanes are free.
        is_cut: the list was longer than what is looked at.
        is_over: the caller has given up: a disk that comes back after that shall not begin anything.
    """

    commands: Sequence[Command]
    rules: CommandRules
    dispatcher: Dispatcher
    now: Moment
    service_now_s: float | None
    is_cut: bool = False
    result: Triage = field(default_factory=Triage)
    claimed: set[str] = field(default_factory=set)
    is_over: bool = False

    def choose(self, found: JournalLookup) -> Admission | None:
        """Triage the list against the journal: what to admit, or None when nothing has to be written."""
        if self.is_over:
            return None
        # What was in the middle of such a list at first contact may be in this one now.
        was_cut = LIST_CUT in found.settings
        self.result = result = triage(
            self._dated(found) if was_cut else self.commands,
            found.known,
            self.rules,
            received=self.now,
            service_now_s=self.service_now_s,
            first_contact=found.is_empty,
            history_lost=found.history_lost,
            settings=found.settings,
            waiting=self.dispatcher.waiting(),
        )
        if not (result.must_be_stored or (self.is_cut and not was_cut)):
            return None
        admitted = [decision.entry for decision in result.of(TriageVerdict.ADMIT) if decision.entry is not None]
        self.claimed.update(entry.command.id for entry in admitted if self.dispatcher.claim(entry))
        entries = [start_entry(each, self.now) if each.command.id in self.claimed else each for each in result.entries]
        settings = {**result.settings, LIST_CUT: "1"} if self.is_cut and not was_cut else result.settings
        return Admission(entries, settings)

    def _dated(self, found: JournalLookup) -> list[Command]:
        """The commands whose age is known: by state, by time, or since the journal has them."""
        return [
            each
            for each in self.commands
            if each.created_at is not None or each.id in found.known or (each.status or "").lower() in OPEN_STATUSES
        ]


def resume(
    journal: Journal,
    rules: CommandRules,
    dispatcher: Dispatcher,
    clock: Clock,
    process_started: Moment,
    *,
    is_held: Callable[[JournalEntry], bool] = lambda _entry: False,
) -> int:
    """Take up the commands of an earlier process: conclude or run again what it had started, dispatch the others.

    Args:
        journal: what it left.
        rules: of the handlers.
        dispatcher: takes what is to run.
        clock: both clocks.
        process_started: when this process began.
        is_held: a started command that this start neither runs nor concludes.

    Returns:
        How many commands were concluded here, whose results wait to be reported.

    Raises:
        StorageError: the journal cannot be read or written.
    """
    concluded = 0
    taken_back = dispatcher.cancels.load()
    for entry in journal.in_state(CommandState.STARTED):
        if is_held(entry):
            continue
        command_id, why = entry.command.id, taken_back.pop(entry.command.id, None)
        recovery = recover(entry, rules.handlers.get(entry.handler), process_started, canceled_by=why)
        if recovery.outcome is not None:
            error = recovery.outcome.error
            _log.warning("command=%s handler=%s state=interrupted reason=%r", command_id, entry.handler, error)
            journal.finish(command_id, recovery.outcome, clock.now())
            dispatcher.cancels.drop(command_id)
            concluded += 1
            continue
        what = "its handler is asked how it ended" if recovery.verify else "it runs again"
        _log.info("command=%s handler=%s state=interrupted: %s", command_id, entry.handler, what)
        if recovery.verify and why is not None:
            dispatcher.resume_canceled(entry, why)
        else:
            dispatcher.dispatch(entry, verify=recovery.verify)
    for command_id in taken_back:
        dispatcher.cancels.drop(command_id)  # it had its outcome before the crash
    dispatcher.refill()
    return concluded


def _signer(result: Triage, command_id: str) -> str:
    signer = result.signers.get(command_id)
    return f" signed by {signer}" if signer else ""


LISTED_WINDOW: Final = "listed_window"
"""Name of the journal's setting: when the running day began, and which ids that are over were listed since."""

WINDOW_S: Final = 86_400.0
# A plain server lists everything for ever: then a restart begins a new day instead of writing all of it down.
_WRITTEN_MAX: Final = 200


class ListedWindow:
    """Which ids were listed in the running day: an id is forgotten once every list of a whole day lacked it.

    A list may be cut short by mistake, and a service may be away for hours behind a page that looks like an empty list:
    what is missing from one list is not gone. What was listed in the running day is remembered over restarts, since
    many devices are switched off every night. Used from one thread.

    Args:
        journal: forgets what was not listed for a whole day.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._began: Moment | None = None
        self._listed: set[str] = set()
        self._is_read = False
        self._written: str | None = None

    def saw(self, listed_ids: Sequence[str], result: Triage, now: Moment) -> None:
        """The service answered with this list.

        Args:
            listed_ids: every id in it.
            result: what was decided about it.
            now: this instant, with the true time for a wall clock; while it is not known nothing is forgotten.

        Raises:
            StorageError: nothing was forgotten; the next list tries again.
        """
        if not is_plausible(now.wall_s):
            return
        if not self._is_read:
            self._read()
        over = {
            each.command_id for each in result.decisions if each.entry is not None and each.entry.state in OVER_STATES
        }
        self._listed |= over
        age = None if self._began is None else age_s(self._began, now)
        if self._began is None or age is None or self._began.wall_s > now.wall_s:
            self._begin(now, over)
        elif age < WINDOW_S:
            self._write()
        else:
            gone = self._journal.forget([*self._listed, *listed_ids], self._began.wall_s)
            if gone:
                _log.info("journal=tidied forgotten=%d commands that the service no longer lists", gone)
            self._begin(now, over)

    def _begin(self, now: Moment, listed: set[str]) -> None:
        self._began, self._listed = now, listed
        self._write()

    def _read(self) -> None:
        self._is_read = True
        self._written = text = self._journal.setting(LISTED_WINDOW)
        try:
            kept = json.loads(text or "null")
            began = Moment(float(kept["mono"]), float(kept["wall"]), str(kept["boot"]))
            listed = {str(each) for each in kept["listed"]}
        except (ValueError, TypeError, KeyError):
            return
        self._began, self._listed = began, listed

    def _write(self) -> None:
        began = self._began
        text = None
        if began is not None and len(self._listed) <= _WRITTEN_MAX:
            members = {"mono": began.monotonic_s, "wall": began.wall_s, "boot": began.boot_id}
            text = json.dumps({**members, "listed": sorted(self._listed)})
        if text == self._written:
            return
        try:
            self._journal.put_setting(LISTED_WINDOW, text)
        except StorageError as error:
            # Only this process knows better now, so the next list tries again.
            _log.error("journal=failing: what the service lists is not remembered beyond a restart: %s", error)
        else:
            self._written = text
