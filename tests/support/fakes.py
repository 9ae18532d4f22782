"""The ports, faked: in memory and deterministic."""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from agent.core.commands import (
    HISTORY_LOST,
    OVER_STATES,
    IllegalMove,
    finish_entry,
    report_entry,
    start_entry,
    undeliverable_entry,
)
from agent.core.values import (
    Admission,
    BatchKey,
    CommandPoll,
    CommandState,
    JournalEntry,
    JournalLookup,
    Moment,
    OutboxStats,
    Outcome,
    Reading,
    Report,
    SendOutcome,
    StoredReading,
)
from agent.errors import AgentError, StorageError

START_WALL_S = 1_767_225_600.0
"""2026-01-01T00:00:00Z, where every fake clock starts."""


class FakeClock:
    """A clock that moves when it is told to. Thread-safe."""

    def __init__(self, wall_s: float = START_WALL_S, monotonic_s: float = 1000.0, boot_id: str = "boot-1") -> None:
        self._lock = threading.Lock()
        self._moment = Moment(monotonic_s, wall_s, boot_id)

    def now(self) -> Moment:
        with self._lock:
            return self._moment

    def advance(self, seconds: float) -> Moment:
        """Both clocks go on."""
        with self._lock:
            now = self._moment
            self._moment = Moment(now.monotonic_s + seconds, now.wall_s + seconds, now.boot_id)
            return self._moment

    def set_wall(self, wall_s: float) -> Moment:
        """Somebody sets the wall clock."""
        with self._lock:
            self._moment = replace(self._moment, wall_s=wall_s)
            return self._moment

    def reboot(self, boot_id: str, monotonic_s: float = 10.0) -> Moment:
        """The device starts anew: another boot, the monotonic clock begins again."""
        with self._lock:
            self._moment = Moment(monotonic_s, self._moment.wall_s, boot_id)
            return self._moment


class _Failing:
    """Whoever sets ``fault`` makes every call that writes raise."""

    fault: str | None = None

    def _check(self) -> None:
        if self.fault is not None:
            raise StorageError(self.fault)


class FakeJournal(_Failing):
    """A journal in memory. Thread-safe.

    Attributes:
        entries: id -> entry, in the order of admission.
        writes: the names of the methods that wrote, in order.
        fault: set it to make every write raise a StorageError with this text.
    """

    def __init__(self) -> None:
        self.entries: dict[str, JournalEntry] = {}
        self.settings: dict[str, str] = {}
        self.writes: list[str] = []
        self._contacted = False
        self._lock = threading.RLock()

    def known(self, command_ids: Sequence[str]) -> dict[str, JournalEntry]:
        with self._lock:
            return {each: self.entries[each] for each in command_ids if each in self.entries}

    def decide(
        self,
        command_ids: Sequence[str],
        choose: Callable[[JournalLookup], Admission | None],
        settings: Sequence[str] = (),
    ) -> None:
        with self._lock:
            found = {name: self.settings[name] for name in settings if name in self.settings}
            admission = choose(
                JournalLookup(self.known(command_ids), self.is_empty(), HISTORY_LOST in self.settings, found)
            )
            if admission is not None:
                self.admit(admission.entries, admission.settings)

    def admit(self, entries: Sequence[JournalEntry], settings: Mapping[str, str] | None = None) -> None:
        with self._lock:
            self._check()
            self.writes.append("admit")
            for entry in entries:
                self.entries.setdefault(entry.command.id, entry)
            self._contacted = True
            self.settings.pop(HISTORY_LOST, None)
            self.settings.update(settings or {})

    def start(self, command_id: str, at: Moment) -> None:
        with self._lock:
            self._check()
            self._put("start", start_entry(self._one(command_id, CommandState.STARTED), at))

    def cancel(self, command_id: str, why: str) -> None:
        with self._lock:
            self._check()
            entry = self.entries.get(command_id)
            if entry is not None and entry.state is CommandState.STARTED:
                self._put("cancel", replace(entry, canceled_by=entry.canceled_by or why))

    def finish(self, command_id: str, outcome: Outcome, at: Moment) -> JournalEntry:
        with self._lock:
            self._check()
            self._put("finish", finish_entry(self._one(command_id, CommandState.FINISHED), outcome, at))
            return self.entries[command_id]

    def reported(self, command_ids: Sequence[str]) -> None:
        with self._lock:
            self._check()
            entries = [report_entry(self._one(each, CommandState.REPORTED)) for each in dict.fromkeys(command_ids)]
            for entry in entries:
                self._put("reported", entry)

    def undeliverable(self, command_id: str, reason: str) -> None:
        with self._lock:
            self._check()
            self._put("undeliverable", undeliverable_entry(self._one(command_id, CommandState.UNDELIVERABLE), reason))

    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(Counter(str(entry.state) for entry in self.entries.values()))

    def in_state(self, *states: str, limit: int = 1000) -> list[JournalEntry]:
        with self._lock:
            wanted = {CommandState(state) for state in states}
            return [entry for entry in self.entries.values() if entry.state in wanted][:limit]

    def forget(self, listed_ids: Sequence[str], older_than_wall_s: float) -> int:
        with self._lock:
            self._check()
            gone = [
                each
                for each, entry in self.entries.items()
                if entry.state in OVER_STATES
                and entry.state is not CommandState.UNDELIVERABLE
                and each not in listed_ids
                and entry.received.wall_s < older_than_wall_s
            ]
            for each in gone:
                del self.entries[each]
            return len(gone)

    def is_empty(self) -> bool:
        with self._lock:
            return not self._contacted

    def setting(self, name: str) -> str | None:
        with self._lock:
            return self.settings.get(name)

    def put_setting(self, name: str, value: str | None) -> None:
        with self._lock:
            self._check()
            self.writes.append("put_setting")
            if value is None:
                self.settings.pop(name, None)
            else:
                self.settings[name] = value

    def _one(self, command_id: str, after: CommandState) -> JournalEntry:
        if command_id not in self.entries:
            raise IllegalMove(None, after)
        return self.entries[command_id]

    def _put(self, method: str, entry: JournalEntry) -> None:
        self.writes.append(method)
        self.entries[entry.command.id] = entry


class FakeOutbox(_Failing):
    """An outbox in memory without bounds, which hands out the oldest first. Thread-safe.

    Attributes:
        rows: key -> reading, what waits.
        refused: key -> reason.
        fault: set it to make every write raise a StorageError with this text.
    """

    def __init__(self) -> None:
        self.rows: dict[int, Reading] = {}
        self.refused: dict[int, str] = {}
        self._last_key = 0
        self._lock = threading.RLock()

    def put(self, reading: Reading, *, wait: bool = False) -> None:
        with self._lock:
            self._check()
            json.dumps(reading.values, allow_nan=False)
            self._last_key += 1
            self.rows[self._last_key] = reading

    def next_batch(self, limit: int) -> list[StoredReading]:
        with self._lock:
            return self.again(list(self.rows)[:limit])

    def again(self, keys: Sequence[int]) -> list[StoredReading]:
        with self._lock:
            return [StoredReading(key, f"fake-{key}", self.rows[key]) for key in keys if key in self.rows]

    def settle(self, outcome: SendOutcome) -> None:
        with self._lock:
            self._check()
            for key, reason in outcome.refused.items():
                if self.rows.pop(key, None) is not None:
                    self.refused[key] = reason
            for key in outcome.delivered:
                self.rows.pop(key, None)

    def stats(self) -> OutboxStats:
        with self._lock:
            delivered = self._last_key - len(self.rows) - len(self.refused)
            return OutboxStats(len(self.rows), 0, None, len(self.refused), 0, self._last_key, delivered)


class FakeStore(FakeJournal, FakeOutbox):
    """Journal and outbox in one object, which is also both parts of itself."""

    def __init__(self) -> None:
        FakeJournal.__init__(self)
        FakeOutbox.__init__(self)
        self.journal = self.outbox = self


class FakeEngine:
    """Takes what is to run, and runs nothing.

    Attributes:
        entries: every entry, in order.
    """

    def __init__(self) -> None:
        self.entries: list[JournalEntry] = []

    def waiting(self) -> dict[str, int]:
        return {}

    def under_way(self) -> dict[str, str | None]:
        return {}

    def is_busy(self) -> bool:
        return False

    def dispatch(self, entry: JournalEntry, *, verify: bool = False) -> bool:
        del verify
        self.entries.append(entry)
        return True


Scripted = CommandPoll | AgentError | Callable[[], CommandPoll]


class FakeCommandSource:
    """A command source that answers what the test has scripted, then the last answer again and again.

    Attributes:
        acknowledged: every id, in order.
    """

    def __init__(self, answers: Iterable[Scripted] = ()) -> None:
        self.answers: deque[Scripted] = deque(answers)
        self.acknowledged: list[str] = []
        self._last: Scripted = CommandPoll()

    def poll(self, wait_s: float) -> CommandPoll:
        del wait_s
        if self.answers:
            self._last = self.answers.popleft()
        if isinstance(self._last, AgentError):
            raise self._last
        return self._last if isinstance(self._last, CommandPoll) else self._last()

    def acknowledge(self, command_ids: Sequence[str]) -> None:
        self.acknowledged.extend(command_ids)

    def canceled(self, command_ids: Sequence[str]) -> frozenset[str]:
        del command_ids
        return frozenset()

    def interrupt(self) -> None:
        """No poll waits."""


class FakeUplink:
    """An uplink that takes everything, unless the test queues errors or refusals.

    Attributes:
        stored: idempotency key -> reading, what "the service" has.
        sent: every batch as it came.
        reports: every report that was taken.
        send_errors, report_errors: raised by the next calls, one each.
        refuse: key -> reason for readings to refuse for good.
        lose_answers: so many next sends are stored, and then their answer is lost.
    """

    def __init__(self) -> None:
        self.stored: dict[str, Reading] = {}
        self.sent: list[tuple[StoredReading, ...]] = []
        self.reports: list[Report] = []
        self.send_errors: deque[AgentError] = deque()
        self.report_errors: deque[AgentError] = deque()
        self.refuse: dict[int, str] = {}
        self.lose_answers: deque[AgentError] = deque()

    def send(self, readings: Sequence[StoredReading], batch: BatchKey | None = None) -> SendOutcome:
        if self.send_errors:
            raise self.send_errors.popleft()
        self.sent.append(tuple(readings))
        refused = {each.key: self.refuse[each.key] for each in readings if each.key in self.refuse}
        delivered = [each for each in readings if each.key not in refused]
        self.stored.update({each.idempotency_key: each.reading for each in delivered})
        if self.lose_answers:
            raise self.lose_answers.popleft()
        return SendOutcome(tuple(each.key for each in delivered), refused)

    def report(self, report: Report) -> None:
        if self.report_errors:
            raise self.report_errors.popleft()
        self.reports.append(report)
