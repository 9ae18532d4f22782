"""The journal and the outbox as every thread may use them: each call is handed to the store's writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from agent.adapters.store.waiting import EncodedReading, encode_reading
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

_T = TypeVar("_T")


class Store(Protocol):
    """The parts of the store, in its writer's thread: :class:`~agent.adapters.sqlite_store.SqliteStore`."""

    journal: JournalRows
    outbox: OutboxRows
    boots: BootRows


class Writer(Protocol):
    """Does work in the store's own thread: :class:`~agent.adapters.store_service.StoreService`, which says how."""

    def call(self, work: Callable[[Store], _T], *, writes: bool) -> _T:
        """Wait for the result of this work and, if it writes, for its commit."""

    def look_and_write(self, look: Callable[[Store], Callable[[Store], None] | None]) -> None:
        """Wait for a look, and for the commit of the work that it returns."""

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

        self._writer.look_and_write(look)

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

    def offer_again(self, limit: int | None = None) -> int:
        """``put_aside`` -> ``finished``, the oldest of them or all: they are to be reported once more; how many."""
        return self._writer.call(lambda store: store.journal.offer_again(limit), writes=True)

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
