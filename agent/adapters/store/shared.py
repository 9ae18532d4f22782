"""The journal and the outbox as every thread may use them, and what waits for the store's writer.

Each call of another thread becomes a request to the writer. What waits for it: requests with a caller behind them,
readings, and a setting without a hurry.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from agent.adapters.store.outbox_rows import EncodedReading, encode_reading
from agent.core.gaps import Gap
from agent.core.outbox import ROW_BYTES, DropReason
from agent.core.timekeeping import BootTime
from agent.core.values import (
    Admission,
    JournalEntry,
    JournalLookup,
    Moment,
    OutboxStats,
    Outcome,
    Reading,
    ResultStats,
    SendOutcome,
    StoredReading,
)

if TYPE_CHECKING:
    from agent.adapters.store.boot_rows import BootRows
    from agent.adapters.store.journal_rows import JournalRows
    from agent.adapters.store.outbox_rows import OutboxRows


@dataclass(slots=True, eq=False)
class Request:
    """Work for the writer whose caller waits.

    Attributes:
        work: what to do, called with the store.
        writes: it takes part in a commit.
        may_write: the result of a look is the work of a write, or None.
        of_readings: it stores readings, which must leave what little room there is to commands.
        done: set when ``result`` or ``error`` is there.
    """

    work: Callable[[Any], Any]
    writes: bool
    may_write: bool = False
    of_readings: bool = False
    done: threading.Event = field(default_factory=threading.Event)
    result: Any = None
    error: BaseException | None = None

    def resolve(self, error: BaseException | None = None) -> None:
        """Let the one who waits go on."""
        if error is not None:
            self.error = error
        self.done.set()


class Load(NamedTuple):
    """What one commit takes along.

    Attributes:
        drafts: readings, oldest first.
        gap: readings that had to be dropped, if there are any.
    """

    drafts: list[EncodedReading]
    gap: Gap | None


class Buffer:
    """Readings that wait for their commit, and what had to be dropped.

    Args:
        max_rows: how many may wait beside those of a commit that is under way.
    """

    def __init__(self, max_rows: int) -> None:
        self.drafts: deque[EncodedReading] = deque()
        self.due_s: float | None = None
        self._gap: Gap | None = None
        self._max_rows = max_rows

    @property
    def is_full(self) -> bool:
        """The next one costs the oldest one."""
        return len(self.drafts) >= self._max_rows

    def add(self, draft: EncodedReading) -> None:
        """Take one; the oldest gives way when there are too many."""
        self.drafts.append(draft)
        self._drop_too_many()

    def load(self, limit_bytes: int, *, readings: bool) -> Load:
        """Hand over what the next commit takes: the oldest up to this size, or only what was dropped."""
        taken: list[EncodedReading] = []
        while readings and self.drafts and (limit_bytes > 0 or not taken):
            limit_bytes -= len(self.drafts[0].body) + ROW_BYTES
            taken.append(self.drafts.popleft())
        load = Load(taken, self._gap)
        self._gap = None
        return load

    @property
    def unsaved(self) -> Gap | None:
        """The readings that only memory holds, as a gap that a crash would leave; None when there are none."""
        if not self.drafts:
            return None
        return Gap(DropReason.UNSAVED, len(self.drafts), self.drafts[0].at, self.drafts[-1].at)

    def unload(self, load: Load) -> None:
        """The commit failed: all of it waits again."""
        self.drafts.extendleft(reversed(load.drafts))
        if load.gap is not None:
            self._gap = load.gap if self._gap is None else load.gap.joined(self._gap)
        self._drop_too_many()

    def _drop_too_many(self) -> None:
        while len(self.drafts) > self._max_rows:
            at = self.drafts.popleft().at
            gap = Gap(DropReason.UNSAVED, 1, at, at)
            self._gap = gap if self._gap is None else self._gap.joined(gap)


def putting(draft: EncodedReading) -> Request:
    """A reading whose caller waits until it is on the disk."""
    return Request(lambda store: store.outbox.accept([draft]), writes=True, of_readings=True)


_T = TypeVar("_T")


class Store(Protocol):
    """The parts of the store, in its writer's thread: :class:`~agent.adapters.sqlite_store.SqliteStore`."""

    journal: JournalRows
    outbox: OutboxRows
    boots: BootRows


class Writer(Protocol):
    """Does work in the store's own thread: :class:`~agent.adapters.store_service.StoreService`, which says how."""

    def call(self, work: Callable[[Store], _T], *, writes: bool, may_write: bool = False) -> _T:
        """Wait for the result of this work and, if it writes, for its commit."""

    def submit(self, work: Callable[[Store], object], *, writes: bool) -> None:
        """Have this work done soon, without waiting."""

    def put(self, draft: EncodedReading, *, wait: bool) -> None:
        """Take a reading; with ``wait`` it is committed on return."""

    def settle(self, outcome: SendOutcome) -> None:
        """Take the outcome of a batch that was sent."""


class SharedJournal:
    """The :class:`~agent.ports.Journal` for every thread."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def known(self, command_ids: Sequence[str]) -> dict[str, JournalEntry]:
        """The entries with these ids. See :class:`agent.ports.Journal`."""
        return self._writer.call(lambda store: store.journal.known(command_ids), writes=False)

    def decide(
        self,
        command_ids: Sequence[str],
        choose: Callable[[JournalLookup], Admission | None],
        settings: Sequence[str] = (),
    ) -> None:
        """Look at what is known and :meth:`admit` what ``choose`` makes of it, with no other use of it in between.

        See :class:`agent.ports.Journal`. Both halves in one turn of the writer: its caller waits once.
        """

        def look(store: Store) -> Callable[[Store], None] | None:
            admission = choose(store.journal.look_up(command_ids, settings))
            if admission is None:
                return None
            return lambda then: then.journal.admit(admission.entries, admission.settings)

        self._writer.call(look, writes=False, may_write=True)

    def admit(self, entries: Sequence[JournalEntry], settings: Mapping[str, str] | None = None) -> None:
        """Add new entries and store these settings, all or none; an id that is there already is left as it is."""
        self._writer.call(lambda store: store.journal.admit(entries, settings), writes=True)

    def start(self, command_id: str, at: Moment) -> None:
        """``received`` -> ``started``, and count the attempt. See :class:`agent.ports.Journal`."""
        self._writer.call(lambda store: store.journal.start(command_id, at), writes=True)

    def finish(self, command_id: str, outcome: Outcome, at: Moment) -> JournalEntry:
        """-> ``finished``: the outcome and the result to be reported, in one transaction; the entry as it is now."""
        return self._writer.call(lambda store: store.journal.finish(command_id, outcome, at), writes=True)

    def reported(self, command_ids: Sequence[str]) -> None:
        """``finished`` -> ``reported``: the service has the result. See :class:`agent.ports.Journal`."""
        self._writer.call(lambda store: store.journal.reported(command_ids), writes=True)

    def put_aside(self, reasons: Mapping[str, str]) -> int:
        """``finished`` -> ``put_aside``: the service has no place for these results; they stay in the journal."""
        return self._writer.call(lambda store: store.journal.put_aside(reasons), writes=True)

    def result_stats(self) -> ResultStats:
        """What is held of results that the service has no place for. See :class:`agent.ports.Journal`."""
        return self._writer.call(lambda store: store.journal.result_stats(), writes=False)

    def in_state(self, *states: str, limit: int = 1000) -> list[JournalEntry]:
        """Entries in these states, oldest first. See :class:`agent.ports.Journal`."""
        return self._writer.call(lambda store: store.journal.in_state(*states, limit=limit), writes=False)

    def forget(self, listed_ids: Sequence[str], older_than_wall_s: float) -> int:
        """Delete entries that are over, no longer listed by the service and older; how many."""
        return self._writer.call(lambda store: store.journal.forget(listed_ids, older_than_wall_s), writes=True)

    def is_empty(self) -> bool:
        """True until the first :meth:`admit`, were it of nothing: this device has never seen a list of commands."""
        return self._writer.call(lambda store: store.journal.is_empty(), writes=False)

    def setting(self, name: str) -> str | None:
        """A value that must survive a restart, such as the interval that ``set_interval`` set."""
        return self._writer.call(lambda store: store.journal.setting(name), writes=False)

    def put_setting(self, name: str, value: str | None) -> None:
        """Store it, or delete it with None. See :class:`agent.ports.Journal`."""
        self._writer.call(lambda store: store.journal.put_setting(name, value), writes=True)


class SharedBootTimes:
    """The :class:`~agent.ports.BootTimes` for every thread."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def known(self) -> Mapping[str, BootTime]:
        """Boot id -> its time. See :class:`agent.ports.BootTimes`."""
        return self._writer.call(lambda store: store.boots.known(), writes=False)

    def learn(self, boot_id: str, time: BootTime, *, rides: bool = False) -> None:
        """Keep this, in place of what was known before. Returns at once; it may be lost, but no reading with it."""
        # Always the same way, so that a later one cannot be overtaken by an earlier one.
        self._writer.submit(lambda store: store.boots.learn(boot_id, time, rides=True), writes=False)
        if not rides:
            self._writer.submit(lambda _store: None, writes=True)  # a commit, which takes it along


class SharedOutbox:
    """The :class:`~agent.ports.Outbox` for every thread."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def put(self, reading: Reading, *, wait: bool = False) -> None:
        """Accept one reading. With ``wait`` it returns after the commit, else within the grouping window.

        See :class:`agent.ports.Outbox`. Raises ValueError for a value that is not a finite number.
        """
        self._writer.put(encode_reading(reading), wait=wait)

    def next_batch(self, limit: int) -> list[StoredReading]:
        """What to send next: live first, then backlog by priority, oldest first in each.

        See :class:`agent.ports.Outbox`. What is still in the grouping window comes with a later batch.
        """
        return self._writer.call(lambda store: store.outbox.next_batch(limit), writes=False)

    def again(self, keys: Sequence[int]) -> list[StoredReading]:
        """These once more, in this order: those of them that still wait. See :class:`agent.ports.Outbox`."""
        return self._writer.call(lambda store: store.outbox.again(keys), writes=False)

    def settle(self, outcome: SendOutcome) -> None:
        """Delete what was delivered; set aside what was refused, with the reason. See :class:`agent.ports.Outbox`."""
        self._writer.settle(outcome)

    def stats(self) -> OutboxStats:
        """What it holds. See :class:`agent.ports.Outbox`."""
        return self._writer.call(lambda store: store.outbox.stats(), writes=False)
