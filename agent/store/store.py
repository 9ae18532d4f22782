"""The store and its thread: it alone owns the connection, and what waits together shares one commit.

Each method of :attr:`Store.journal` and :attr:`Store.outbox` becomes a request to that thread, and returns, or raises,
after the commit. A reading that its caller does not wait for stays in memory for at most the grouping window, and goes
with the first commit that comes along.

When the disk fails, everybody who waits gets a :class:`~agent.errors.StorageError` that names cause and fix, nothing is
acknowledged, and the thread goes on: readings stay in a bounded buffer and are tried again. A damaged file is moved
aside and a new one is begun.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from agent.core.outbox import ROW_BYTES, Bounds, DropReason, Gap
from agent.core.timekeeping import BootTime, with_true_wall
from agent.core.values import Moment, Priority
from agent.errors import AgentError, StorageError
from agent.health import OnCrash, RetryPolicy, WatchedThread, only_logged
from agent.ports import Clock
from agent.store.journal import Journal
from agent.store.outbox import Draft, FoundOutbox, Outbox
from agent.store.sqlite import Table, damage, error_name, explain, is_damage, move_aside, open_database, read, wal_bytes
from agent.store.status import StoreStatus, status_of

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

OK: Final = "ok"
DEGRADED: Final = "degraded"
"""The disk fails or is full: readings wait in memory."""
REPLACED: Final = "replaced"
"""The file was damaged and a new one was begun."""

BUFFER_MAX: Final = 20_000
"""Readings in memory that wait for their commit; beyond it the oldest are dropped and counted."""

_FLUSH_AT: Final = 5_000
_REQUESTS_MAX: Final = 1_024
_ANSWER_WITHIN_S: Final = 30.0
_STATUS_WITHIN_S: Final = 2.0
_RETRY_CAP_S: Final = 10.0
# So often an idle writer looks at the clock: waits do not count the sleep of the machine as the clock does.
_LONGEST_WAIT_S: Final = 10.0
_MAX_TURN_S: Final = 30.0
_NOTE_BYTES: Final = 512


@dataclass(slots=True, eq=False)
class _Request:
    """Work for the store's thread: a query, or a part of a commit."""

    work: Callable[[], Any]
    writes: bool
    done: Future[Any] = field(default_factory=Future)


class Store:
    """Journal and outbox over one SQLite file, with the thread that uses it.

    Args:
        path: the database; its directory must exist.
        clock: for the age of readings and the time of incidents.
        bounds: how much may wait in the outbox.
        group_window_s: how long a reading may wait for company before it is committed, seconds.
        trusts_wall: the wall clock counts for a boot whose time is not known; a device's may show anything.
        on_state: called with :data:`OK`, :data:`DEGRADED` or :data:`REPLACED` when that changes, and a sentence, in the
            store's thread.
        on_crash: see :class:`~agent.health.WatchedThread`.

    Attributes:
        journal, outbox, boots: its tables; each may be used from every thread.
        on_readings: called after each commit that holds new readings, in the store's thread, with whether one of them
            is urgent. May be set later.
        found: the outbox as an earlier process left it.
        fault: why the last commit failed; None when it went well.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        bounds: Bounds | None = None,
        group_window_s: float = 1.0,
        trusts_wall: bool = True,
        on_state: Callable[[str, str], object] = lambda state, detail: _log.error("store=%s %s", state, detail),
        on_crash: OnCrash = only_logged,
    ) -> None:
        bounds = bounds or Bounds()
        self.path = path
        self._note_path = path.with_name(f"{path.name}.unsaved")
        self.clock = clock
        self.on_readings: Callable[[bool], object] = lambda _is_urgent: None
        self.found = FoundOutbox(None, None)
        self.fault: str | None = None
        self.journal = Journal(self)
        self.outbox = Outbox(self, bounds, uuid.uuid4().hex)
        self.boots = BootTimes(self, trusts_wall=trusts_wall)
        self._open_file = partial(open_database, path, max_bytes=bounds.max_bytes)
        self._group_window_s = group_window_s
        # How much of readings one commit takes along: dropping as many others for them writes pages, too.
        self._commit_bytes = wal_bytes(bounds.max_bytes) // 8
        self._on_state = on_state
        self._on_crash = on_crash
        # Guarded by _changed: what other threads leave for the store's.
        self._changed = threading.Condition()
        self._requests: deque[_Request] = deque()
        self._buffer: deque[Draft] = deque()
        self._dropped: Gap | None = None
        self._due_s: float | None = None
        self._is_closing = False
        # The store's thread alone uses these.
        self._db: sqlite3.Connection | None = None
        self._last_key: int | None = None
        # How often in a row, without a commit between, SQLite said that the file is damaged.
        self._doubts = 0
        self._retries = RetryPolicy(base_s=1.0, cap_s=_RETRY_CAP_S)
        self._has_note = True
        self._thread: WatchedThread | None = None
        self._mark_s: float | None = None

    # --- start and stop -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the file and start the thread; returns once it is open. After a failure it may be called again.

        Raises:
            StorageError: it cannot be opened now; the text names the fix, and nothing runs.
            ConfigurationError: it is another program's, or another version's.
        """
        opened: Future[None] = Future()
        self._thread = WatchedThread(partial(self._run, opened), name="store", on_crash=self._on_crash)
        self._thread.start()
        if (error := opened.exception()) is not None:
            self._thread.join()
            self._thread = None
            raise error

    def stop(self, timeout_s: float) -> bool:
        """Take nothing more, commit what waits, close. True when all of it is on the disk and the thread has ended."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        return self._thread is None or (self._thread.has_ended(timeout_s) and not self._buffer)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(60.0)

    def stuck_for_s(self) -> float:
        """How much longer than it may one turn lasts; 0 when the thread is healthy or waits for work."""
        return 0.0 if (mark_s := self._mark_s) is None else max(0.0, time.monotonic() - mark_s - _MAX_TURN_S)

    # --- what other threads do ----------------------------------------------------------------------------------------

    def call(self, work: Callable[[], _T], *, writes: bool, within_s: float = _ANSWER_WITHIN_S) -> _T:
        """Have the store's thread do this, and wait for its result and, if it writes, the commit.

        In the store's own thread it is done at once: what writes is part of the transaction that is open.

        Raises:
            StorageError: nothing was written, or the disk does not answer and it is not known.
        """
        if threading.current_thread() is self._thread:
            return work()
        request = self.submit(work, writes=writes)
        try:
            return cast("_T", request.done.result(within_s))
        except TimeoutError:
            with self._changed, suppress(ValueError):
                self._requests.remove(request)
            raise StorageError(f"{self.path}: the disk did not answer within {within_s:g} s: check it") from None

    def submit(self, work: Callable[[], Any], *, writes: bool = True) -> _Request:
        """Have the store's thread do this soon.

        Raises:
            StorageError: it is closed, or too much waits.
        """
        request = _Request(work, writes)
        with self._changed:
            self._check_open()
            if len(self._requests) >= _REQUESTS_MAX:
                raise StorageError(f"{self.path}: {_REQUESTS_MAX} requests wait already: the disk is too slow")
            self._requests.append(request)
            self._changed.notify_all()
        return request

    def keep(self, draft: Draft) -> None:
        """Take a reading for the next commit, at most a grouping window away.

        Raises:
            StorageError: the store is closed.
        """
        with self._changed:
            # A full buffer in front of a healthy disk only means that the producer is faster: let it wait.
            if self.fault is None and len(self._buffer) >= BUFFER_MAX:
                self._changed.wait_for(
                    lambda: self._is_closing or self.fault or len(self._buffer) < BUFFER_MAX, _ANSWER_WITHIN_S
                )
            self._check_open()
            self._buffer.append(draft)
            self._drop_too_many()
            is_due = draft.priority is Priority.HIGH or len(self._buffer) == _FLUSH_AT
            if is_due and self.fault is None:
                self._due_s = 0.0
            elif self._due_s is None:
                self._due_s = self.clock.now().monotonic_s + self._group_window_s
            else:
                return
            self._changed.notify_all()

    def status(self, within_s: float = _STATUS_WITHIN_S) -> StoreStatus | None:
        """Counts of journal and outbox; None when the store does not answer in time."""
        try:
            return self.call(
                lambda: status_of(self.connection(), self.path, self.outbox.stats()),
                writes=False,
                within_s=within_s,
            )
        except AgentError:
            return None

    def _check_open(self) -> None:
        if self._is_closing or self._thread is None:
            raise self._closed_error()

    def _closed_error(self) -> StorageError:
        return StorageError(f"{self.path}: the store is closed: the agent stops, or its store has failed")

    # --- the store's thread -------------------------------------------------------------------------------------------

    def _run(self, opened: Future[None]) -> None:
        try:
            self.connection()
            self._count_unsaved()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that called start
            self._close()
            opened.set_exception(explain(error, self.path) if isinstance(error, sqlite3.Error | OSError) else error)
            return
        opened.set_result(None)
        try:
            while self._turn():
                pass
        finally:
            self._end()

    def _count_unsaved(self) -> None:
        """Count what an earlier process had only in memory when it ended as dropped."""
        try:
            rows, since, until = json.loads(self._note_path.read_bytes())
            lost = Gap(DropReason.UNSAVED, int(rows), Moment(*since), Moment(*until))
        except (OSError, ValueError, TypeError):
            self._note_unsaved(None)
            return
        _log.error("store=lost %d readings were only in memory when the last process ended", lost.rows)
        with self._changed:
            self._dropped, self._due_s = lost, 0.0

    def _note_unsaved(self, gap: Gap | None) -> None:
        """Write down what only memory holds, which the next process counts as lost.

        The file is made while there is room, stays, and is overwritten in place, which works on a full disk. Where that
        fails, only the count is lost.
        """
        if gap is None and not self._has_note:
            return
        text = "" if gap is None else json.dumps(astuple(gap)[1:])
        with suppress(OSError):
            descriptor = os.open(self._note_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.pwrite(descriptor, text.encode().ljust(_NOTE_BYTES), 0)
                self._has_note = gap is not None
            finally:
                os.close(descriptor)

    def _turn(self) -> bool:
        """Wait until there is something to do, and do it; False when the store was closed and all is done."""
        self._mark_s = None
        with self._changed:
            while not self._requests and not self._is_closing and (wait_s := self._wait_s()) > 0:
                self._changed.wait(wait_s)
            self._mark_s = time.monotonic()
            requests, self._requests = self._requests, deque()
            is_closing = self._is_closing
            is_due = is_closing or self._wait_s() <= 0
        for request in requests:
            if not request.writes:
                self._read(request)
        writes = [request for request in requests if request.writes]
        if writes or is_due:
            self._commit(writes)
        while is_closing and self._buffer and self.fault is None:
            self._commit([])  # more than one commit may take
        return not is_closing

    def _wait_s(self) -> float:
        if self._due_s is None:
            return _LONGEST_WAIT_S
        return min(_LONGEST_WAIT_S, self._due_s - self.clock.now().monotonic_s)

    def _end(self) -> None:
        with self._changed:
            self._is_closing = True
            left, self._requests = self._requests, deque()
        for request in left:
            request.done.set_exception(self._closed_error())
        if self._buffer:
            _log.error("store=lost %d readings could not be saved at the stop", len(self._buffer))
        self._close()
        self._mark_s = None

    def _read(self, request: _Request) -> None:
        try:
            request.done.set_result(request.work())
        except (sqlite3.Error, OSError) as error:
            self._reopen_after(error)
            request.done.set_exception(explain(error, self.path))
        except Exception as error:  # noqa: BLE001 - a fault of the caller's work is the caller's
            request.done.set_exception(error)

    def _commit(self, writes: Sequence[_Request]) -> None:
        """One commit for everything that waits; where the readings do not get through, one for the requests alone."""
        drafts, gap = self._take()
        error = self._attempt(writes, drafts, gap)
        if error is None:
            self._succeeded()
            return
        with self._changed:
            self._buffer.extendleft(reversed(drafts))
            if gap is not None:
                self._dropped = gap if self._dropped is None else gap.joined(self._dropped)
            self._drop_too_many()
        self._failed(error)
        if writes and (drafts or gap is not None):
            error = self._attempt(writes, (), None)
        if error is not None:
            for request in writes:
                if not request.done.done():
                    request.done.set_exception(error)

    def _take(self) -> tuple[list[Draft], Gap | None]:
        drafts: list[Draft] = []
        left_bytes = self._commit_bytes
        with self._changed:
            while self._buffer and (left_bytes > 0 or not drafts):
                drafts.append(self._buffer.popleft())
                left_bytes -= len(drafts[-1].body) + ROW_BYTES
            gap, self._dropped = self._dropped, None
        return drafts, gap

    def _drop_too_many(self) -> None:
        while len(self._buffer) > BUFFER_MAX:
            self._dropped = _with_unsaved(self._dropped, [self._buffer.popleft()])

    def _attempt(self, writes: Sequence[_Request], drafts: Sequence[Draft], gap: Gap | None) -> StorageError | None:
        """Try one commit; why it failed. Each request has its answer when it did not.

        A request that is at fault itself is answered with that, and the others are tried again without it.
        """
        last_key, left = self._last_key, [request for request in writes if not request.done.done()]
        while True:
            answers: list[tuple[_Request, Any]] = []
            at_work: _Request | None = None
            try:
                with self._transaction():
                    if gap is not None:
                        self.outbox.note_gap(gap)
                    if drafts or gap is not None:
                        self.outbox.accept(drafts)
                    if self.fault is not None:
                        # Something must be written to know that the disk is well.
                        self.journal.put_setting("store.alive", uuid.uuid4().hex)
                    for at_work in left:
                        answers.append((at_work, at_work.work()))
                    at_work = None
                break
            except Exception as error:
                is_own = not isinstance(error, sqlite3.OperationalError | MemoryError) and not is_damage(error)
                if at_work is not None and is_own:
                    if isinstance(error, sqlite3.Error | ValueError | OverflowError):
                        error = StorageError(f"{self.path}: this cannot be stored: {error}")
                    at_work.done.set_exception(error)
                    left.remove(at_work)
                    continue
                if not isinstance(error, sqlite3.Error | OSError):
                    raise
                self._reopen_after(error)
                return explain(error, self.path)
        for request, result in answers:
            request.done.set_result(result)
        if self._last_key != last_key:
            self.on_readings(any(draft.priority is Priority.HIGH for draft in drafts))
        return None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One commit for everything inside; all or nothing."""
        db = self.connection()
        try:
            db.execute("BEGIN IMMEDIATE")
            yield
            last_key = self.outbox.last_key()
            db.execute("COMMIT")
        except BaseException:
            self.outbox.forget_memory()
            with suppress(sqlite3.Error):
                if db.in_transaction:
                    db.execute("ROLLBACK")
            raise
        self._last_key = last_key
        self._doubts = 0

    def _succeeded(self) -> None:
        with self._changed:
            was_failing, self.fault = self.fault is not None, None
            # More than one commit may take: the rest follows at once.
            self._due_s = 0.0 if self._buffer else None
            self._changed.notify_all()
        self._note_unsaved(None)
        if was_failing:
            self._retries.succeeded()
            self._on_state(OK, "readings are stored again")

    def _failed(self, error: StorageError) -> None:
        with self._changed:
            was_well, self.fault = self.fault is None, str(error)
            self._due_s = self.clock.now().monotonic_s + self._retries.failed()
            gap = _with_unsaved(self._dropped, self._buffer)
            self._changed.notify_all()
        # What a full disk keeps out is lost when the process ends: the next one is to know how much that was.
        self._note_unsaved(gap)
        if was_well:
            self._on_state(DEGRADED, f"{error}; nothing can be stored, readings wait in memory and are tried again")

    # --- the file -----------------------------------------------------------------------------------------------------

    def connection(self) -> sqlite3.Connection:
        """The connection, opened where it is not; in the store's thread.

        Raises:
            sqlite3.Error, OSError: it cannot be opened now.
            ConfigurationError: it is another program's, or another version's.
        """
        if self._db is None:
            self._db = self._open_or_replace()
            try:
                if self._last_key is not None:
                    # A commit that was reported as failed may have come back out of the log.
                    self.outbox.take_back(self._last_key)
                self.outbox.forget_memory()
                self.boots.load()
                found = self.outbox.open()
                if self._last_key is None:
                    self.found = found
                self._last_key = self.outbox.last_key()
            except sqlite3.Error as error:
                self._reopen_after(error)
                raise
        return self._db

    def _open_or_replace(self) -> sqlite3.Connection:
        try:
            if self._doubts > 1:
                raise damage("found in use")
            return self._open_file(check=self._doubts > 0)
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            found = error
        wall_s = self.clock.now().wall_s
        aside = move_aside(self.path, wall_s)
        db = self._open_file()
        text = (
            f"{self.path} was damaged ({found}) and is now {aside.name}; a new one was begun without what it held; "
            "check the disk, and delete that file when you have looked at it"
        )
        db.execute("INSERT INTO incident (wall_s, text) VALUES (?, ?)", (wall_s, text))
        self._doubts = 0
        self._last_key = None
        self._on_state(REPLACED, text)
        return db

    def _reopen_after(self, error: BaseException) -> None:
        """Close the file for the next use to open it: a disk that came back may need a new handle.

        A disk that cannot be read for a moment looks like damage to SQLite. So that is believed once the file was
        looked through anew, or when it is found again before anything could be written.
        """
        if error_name(error).startswith(("SQLITE_FULL", "SQLITE_NOMEM")):
            return  # opening needs room, too
        if is_damage(error):
            # What SQLite itself did not find is in a value, and no look at the whole file finds it either.
            self._doubts += 1 if hasattr(error, "sqlite_errorcode") else 2
        self._close()

    def _close(self) -> None:
        """Write the log back into the file, where that is possible, and release it."""
        db, self._db = self._db, None
        self.outbox.forget_memory()
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()


def _with_unsaved(gap: Gap | None, drafts: Iterable[Draft]) -> Gap | None:
    """The gap with these readings, which were never stored; None when there are none."""
    for draft in drafts:
        more = Gap(DropReason.UNSAVED, 1, draft.at, draft.at)
        gap = more if gap is None else gap.joined(more)
    return gap


# --- the time of boots ------------------------------------------------------------------------------------------------

_KEPT_MAX: Final = 500


class BootTimes(Table):
    """What is known of the time of boots: the last :data:`_KEPT_MAX` of them.

    Args:
        store: whose.
        trusts_wall: the wall clock counts for a boot whose time is not known.
    """

    def __init__(self, store: Store, *, trusts_wall: bool) -> None:
        super().__init__(store)
        self._trusts_wall = trusts_wall
        self._known: dict[str, BootTime] = {}

    def load(self) -> None:
        """Read what is known; in the store's thread."""
        self._db.execute(
            "DELETE FROM boot WHERE rowid NOT IN (SELECT rowid FROM boot ORDER BY rowid DESC LIMIT ?)", (_KEPT_MAX,)
        )
        rows = self._db.execute("SELECT boot_id, offset_s, within_s, mono FROM boot")
        # What was learned in this process may not be on the disk yet.
        self._known = {str(boot_id): BootTime(*time) for boot_id, *time in rows} | self._known

    @read
    def known(self) -> Mapping[str, BootTime]:
        """Boot id -> its time."""
        return dict(self._known)

    def learn(self, boot_id: str, time: BootTime) -> None:
        """Keep this, in place of what was known before. Returns at once; a crash or a failing disk may undo it."""
        row = (boot_id, time.offset_s, time.within_s, time.at_s)
        self._known[boot_id] = time
        with suppress(StorageError):
            self._store.submit(lambda: self._db.execute("INSERT OR REPLACE INTO boot VALUES (?, ?, ?, ?)", row))

    def dated(self, moment: Moment) -> Moment:
        """The moment with the true time, 0 (1970) where that of its boot is unknown; in the store's thread."""
        is_true = self._trusts_wall and moment.boot_id not in self._known
        return moment if is_true else with_true_wall(moment, self._known)

    def is_dated(self, boot_id: str) -> bool:
        """When something of this boot was can be said; in the store's thread."""
        return self._trusts_wall or boot_id in self._known
