"""The store's thread: it alone owns the connection, and what waits together shares one commit.

Other threads use :attr:`StoreService.journal` and :attr:`StoreService.outbox`. Their methods return, or raise, after
the commit. A reading that its caller does not wait for stays in memory for at most the grouping window and goes with
the first commit that comes along; without a window each one is on the disk when its call returns.

When the disk fails, everybody who waits gets a :class:`~agent.errors.StorageError` that names cause and fix, nothing is
acknowledged, and the thread goes on: readings stay in a bounded buffer and are tried again. When it is full, the
reserve is given back and commands alone are committed until the reserve can be had again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, cast

from agent.adapters.sqlite_store import SqliteStore
from agent.adapters.store.failures import is_disk_full
from agent.adapters.store.outbox_rows import OUTBOX_FULL, EncodedReading, FoundOutbox
from agent.adapters.store.room import FreeBytes, Reserve
from agent.adapters.store.schema import load_bytes
from agent.adapters.store.shared import (
    Buffer,
    Load,
    Request,
    SharedBootTimes,
    SharedJournal,
    SharedOutbox,
    putting,
)
from agent.adapters.store.status import StoreStatus
from agent.core.gaps import Gap
from agent.core.outbox import Bounds
from agent.core.values import SendOutcome
from agent.errors import AgentError, StorageError
from agent.threads import OnCrash, WatchedThread, only_logged

if TYPE_CHECKING:
    from agent.ports import Clock

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

OK: Final = "ok"
DEGRADED: Final = "degraded"
"""The disk fails or is full: readings wait in memory; on a full disk commands are still stored."""
FULL: Final = "full"
"""A bound is reached and new readings are refused."""

BUFFER_MAX: Final = 20_000
"""Readings in memory that wait for their commit; beyond it the oldest are dropped and counted."""

SETTLE_WITHIN_S: Final = 90.0
"""How long the deletion of delivered readings may wait for a commit that comes along."""

_FLUSH_AT: Final = 5_000
_REQUESTS_MAX: Final = 1_024
_SETTLE_AT: Final = 1_000
_ANSWER_WITHIN_S: Final = 30.0
_RETRY_FIRST_S: Final = 1.0
_RETRY_CAP_S: Final = 10.0
# So often an idle writer shows that it lives.
_TICK_S: Final = 10.0
_PATIENCE_S: Final = 30.0


class StoreService:
    """One thread around a :class:`~agent.adapters.sqlite_store.SqliteStore`.

    Args:
        path: the database, see :data:`~agent.adapters.sqlite_store.FILE_NAME`.
        clock: as for the store.
        bounds: how much may wait in the outbox.
        group_window_s: how long a reading may wait for company before it is committed, seconds.
        settles_lazily: whether the deletion of these delivered readings may wait up to :data:`SETTLE_WITHIN_S` for
            the next commit. A crash may undo it, so the service must know their idempotency keys. May be set later.
        buffer_max: readings in memory at most.
        max_pages, free_bytes, trusts_wall: as for the store.
        on_incident: called with each incident, in the writer's thread; by default it is logged as an error.
        on_state: called with :data:`OK`, :data:`DEGRADED` or :data:`FULL` when that changes, and a sentence; in the
            writer's thread.
        on_crash: see :class:`~agent.threads.WatchedThread`.

    Attributes:
        on_readings: called after each commit that holds new readings, in the writer's thread. May be set later.
        progress: grows with each turn of the writer, at least every 10 s while it is healthy.
        incidents: what happened to the file since the start of this process, one sentence each; the last ones.
        fault: why the last commit failed; None when it went well.
        found: the outbox as an earlier process left it.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        bounds: Bounds | None = None,
        group_window_s: float = 1.0,
        settles_lazily: Callable[[SendOutcome], bool] = lambda _outcome: False,
        buffer_max: int = BUFFER_MAX,
        max_pages: int | None = None,
        free_bytes: FreeBytes | None = None,
        trusts_wall: bool = True,
        on_incident: Callable[[str], None] | None = None,
        on_state: Callable[[str, str], None] = lambda _state, _detail: None,
        on_crash: OnCrash = only_logged,
    ) -> None:
        self.path = path
        self.settles_lazily = settles_lazily
        self.on_readings: Callable[[], object] = lambda: None
        self.progress = 0
        self.incidents: deque[str] = deque(maxlen=20)
        self.fault: str | None = None
        self._clock = clock
        self._bounds = bounds or Bounds()
        self._group_window_s = group_window_s
        self._load_bytes = load_bytes(self._bounds.max_bytes)
        self._reserve = Reserve(path.with_name(f"{path.name}.reserve"), self._bounds.reserve_bytes)
        self._make_store = partial(
            SqliteStore,
            path,
            clock=clock,
            bounds=self._bounds,
            max_pages=max_pages,
            free_bytes=free_bytes,
            trusts_wall=trusts_wall,
        )
        self._flush_at = min(_FLUSH_AT, max(1, buffer_max // 2))
        self._on_incident = on_incident or (lambda text: _log.error("store=replaced %s", text))
        self._on_state = on_state
        self._on_crash = on_crash
        self._state = OK
        self._is_disk_full = False
        self._refused = 0
        # What a start after the end of this process would count as lost.
        self._noted_unsaved: Gap | None = None
        self._changed = threading.Condition()
        self._requests: deque[Request] = deque()
        self._buffer = Buffer(buffer_max)
        self._settle_due_s: float | None = None
        self._failures = 0
        self._retry_s = 0.0
        self._closing = False
        self.found = FoundOutbox(None, None)
        self._store: SqliteStore | None = None
        self._thread: WatchedThread | None = None
        self._mark_s: float | None = None
        self._gave_up = False
        self.journal = SharedJournal(self)
        self.outbox = SharedOutbox(self)
        self.boot_times = SharedBootTimes(self)

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the store and start the writer; returns once it is open. After a failure it may be called again.

        Raises:
            StorageError: it cannot be opened now, as :class:`SqliteStore` says; nothing runs then.
            ConfigurationError: it is a newer program's file, or another program's.
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
            self._closing = True
            self._changed.notify_all()
        return self._thread is None or (self._thread.has_ended(timeout_s) and not self._buffer.drafts)

    def stuck_for_s(self, now_s: float) -> float:
        """For how long one turn has lasted beyond patience; 0 when the writer is healthy or waits for work."""
        return 0.0 if (mark_s := self._mark_s) is None else max(0.0, now_s - mark_s - _PATIENCE_S)

    def _run(self, opened: Future[None]) -> None:
        try:
            self._store = self._open()
            self.found = self._store.found
            self._report_incidents(self._store)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that called start
            opened.set_exception(error)
            return
        opened.set_result(None)
        try:
            while self._wait():
                self._turn(self._store)
        except BaseException as error:
            self.fault = f"the store's thread ended: {error}"
            raise
        finally:
            self._end(self._store)

    def _open(self) -> SqliteStore:
        try:
            store = self._make_store()
        except StorageError as error:
            if not is_disk_full(error):
                raise
            self._reserve.give_back()
            store = self._make_store()
        if not self._reserve.take():
            self._is_disk_full = True
            self._failures = 1
            self._retry_s = self._clock.now().monotonic_s + _RETRY_FIRST_S
            text = f"{self.path}: the disk has no room for the reserve of commands: free space on it"
            self._report_state(DEGRADED, text)
        return store

    def _end(self, store: SqliteStore) -> None:
        with self._changed:
            self._closing = True
            left = list(self._requests)
            self._requests.clear()
        for request in left:
            request.resolve(self._closed_error())
        if self._buffer.drafts:
            _log.error("store=lost %d readings could not be saved at the stop", len(self._buffer.drafts))
        store.close()
        self._mark_s = None

    # --- what other threads do ------------------------------------------------------------------------------------

    def call(self, work: Callable[[SqliteStore], _T], *, writes: bool, may_write: bool = False) -> _T:
        """Have the writer do this, and wait for its result and, if it writes, the commit.

        With ``may_write`` it looks, and the work that it returns is done and committed in the same turn, if any.

        Raises:
            StorageError: nothing was written, or the disk does not answer and it is not known.
        """
        request = Request(work, writes=writes, may_write=may_write)
        self._queue_and_wait(request)
        return cast("_T", request.result)

    def status(self, within_s: float = 2.0) -> StoreStatus | None:
        """Counts of journal and outbox; None when the store does not answer in time."""
        request = Request(lambda store: store.status(), writes=False)
        with self._changed:
            if self._closing or self._store is None:
                return None
            self._requests.append(request)
            self._changed.notify_all()
        return request.result if request.done.wait(within_s) and request.error is None else None

    def submit(self, work: Callable[[SqliteStore], object], *, writes: bool) -> None:
        """Have the writer do this soon and, if it writes, commit it; the caller does not learn whether it failed."""
        with self._changed:
            if not self._closing and len(self._requests) < _REQUESTS_MAX:
                self._requests.append(Request(work, writes=writes))
                self._changed.notify_all()

    def _queue_and_wait(self, request: Request) -> None:
        with self._changed:
            if self._closing:
                raise self._closed_error()
            if len(self._requests) >= _REQUESTS_MAX:
                raise StorageError(f"{self.path}: {_REQUESTS_MAX} requests wait already: the disk is too slow")
            self._requests.append(request)
            self._changed.notify_all()
        if not request.done.wait(_ANSWER_WITHIN_S):
            with self._changed:
                if request in self._requests:
                    self._requests.remove(request)
            if not request.done.is_set():
                raise StorageError(f"{self.path}: the disk did not answer within {_ANSWER_WITHIN_S:g} s: check it")
        if request.error is not None:
            raise request.error

    def put(self, draft: EncodedReading, *, wait: bool) -> None:
        """Take a reading, and wait for its commit with ``wait`` or without a grouping window.

        Raises:
            StorageError: the store is closed, or the outbox is full. Or it is not on the disk yet: without ``wait`` it
                stays in memory then and is tried again and again.
        """
        if self._group_window_s > 0 and not wait:
            self._keep(draft)
            return
        request = putting(draft)
        try:
            self._queue_and_wait(request)
        except StorageError:
            # Without an answer it is not known whether it is stored: kept as well, it might be stored twice.
            if request.error is not None and not self._closing and not wait:
                self._keep(draft)
            raise
        if request.result:
            raise StorageError(OUTBOX_FULL)

    def _keep(self, draft: EncodedReading) -> None:
        with self._changed:
            if self._closing:
                raise self._closed_error()
            # A full buffer in front of a healthy disk only means that the producer is faster: let it wait.
            buffer = self._buffer
            if not self._failures:
                self._changed.wait_for(lambda: self._closing or self._failures or not buffer.is_full, _ANSWER_WITHIN_S)
            buffer.add(draft)
            if buffer.due_s is None:
                buffer.due_s = self._clock.now().monotonic_s + self._group_window_s
                self._changed.notify_all()
            elif len(buffer.drafts) == self._flush_at:
                self._changed.notify_all()

    def settle(self, outcome: SendOutcome) -> None:
        """Delete or set aside; a mere deletion may wait when a repeat is harmless."""
        if outcome.refused or not self.settles_lazily(outcome):
            self.call(lambda store: store.outbox.settle(outcome), writes=True)
            return
        self.call(lambda store: store.outbox.hide(outcome.delivered), writes=False)
        with self._changed:
            if self._settle_due_s is None:
                self._settle_due_s = self._clock.now().monotonic_s + SETTLE_WITHIN_S
                self._changed.notify_all()

    def _closed_error(self) -> StorageError:
        return StorageError(f"{self.path}: the store is closed: the agent stops, or its store has failed")

    # --- what the writer does -------------------------------------------------------------------------------------

    def _wait(self) -> bool:
        """Wait until there is something to do; False when the store was closed and all is done."""
        self._mark_s = None
        with self._changed:
            while not self._requests and not self._closing:
                due_s = self._due_s()
                wait_s = _TICK_S if due_s is None else min(_TICK_S, due_s - self._clock.now().monotonic_s)
                if wait_s <= 0:
                    break
                self._changed.wait(wait_s)
                self.progress += 1
            self._mark_s = self._clock.now().monotonic_s
            if not self._closing:
                return True
            waits = self._buffer.drafts or (self._store is not None and self._store.outbox.hidden)
            return bool(self._requests) or (bool(waits) and not self._gave_up)

    def _due_s(self) -> float | None:
        """When the next commit is due that no caller waits for."""
        if self._failures:
            return self._retry_s
        buffer = self._buffer
        dues = [due_s for due_s in (buffer.due_s, self._settle_due_s) if due_s is not None]
        if not dues:
            return None
        return 0.0 if len(buffer.drafts) >= self._flush_at else min(dues)

    def _turn(self, store: SqliteStore) -> None:
        with self._changed:
            requests = list(self._requests)
            self._requests.clear()
            due_s = self._due_s()
            is_due = self._closing or (due_s is not None and due_s <= self._clock.now().monotonic_s)
        for request in requests:
            if not request.writes:
                self._look(store, request)
        writes = [request for request in requests if request.writes]
        if writes or is_due or len(store.outbox.hidden) >= _SETTLE_AT:
            self._commit(store, writes)
        self.progress += 1

    def _look(self, store: SqliteStore, request: Request) -> None:
        try:
            with store.looking():
                request.result = request.work(store)
        except StorageError as error:
            store.mend(error, 0)
            self._report_incidents(store)
            request.resolve(error)
        except Exception as error:  # noqa: BLE001 - a fault of the caller's work is the caller's
            request.resolve(error)
        else:
            if request.may_write and request.result is not None:
                request.work, request.writes = request.result, True
            else:
                request.resolve()

    def _commit(self, store: SqliteStore, writes: Sequence[Request]) -> None:
        """One commit for everything that waits; where the disk has no room for that, for commands alone."""
        if self._is_disk_full and self._reserve.take():
            self._is_disk_full = False
        error = self._attempt(store, writes) if not self._is_disk_full else None
        if error is not None and is_disk_full(error):
            self._is_disk_full = True
            self._reserve.give_back()
            store.write_back()
        if not self._is_disk_full:
            self._conclude(store, writes, error)
            return
        fault = error or StorageError(f"{self.path}: there is no room left for readings: free space on its disk")
        commands = [request for request in writes if not request.of_readings]
        with self._changed:
            self._noted_unsaved = self._buffer.unsaved
        note = Request(lambda store: store.outbox.note_unsaved(self._noted_unsaved), writes=True)
        failure = self._attempt(store, [note, *commands], readings=False)
        # The log must not take the room that it needs to be written back; and written back it begins anew.
        store.write_back()
        self._conclude(store, commands, failure, fault)
        for request in writes:
            if request.of_readings:
                request.resolve(fault)

    def _attempt(self, store: SqliteStore, writes: Sequence[Request], *, readings: bool = True) -> StorageError | None:
        with self._changed:
            load = self._buffer.load(self._load_bytes, readings=readings)
        try:
            self._write(store, load, writes)
        except StorageError as error:
            with self._changed:
                self._buffer.unload(load)
            return error
        with self._changed:
            buffer = self._buffer
            wait_s = 0.0 if load.drafts and buffer.drafts else self._group_window_s
            buffer.due_s = self._clock.now().monotonic_s + wait_s if buffer.drafts else None
            self._settle_due_s = None
            self._changed.notify_all()
        if load.drafts or any(request.of_readings for request in writes):
            self.on_readings()
        return None

    def _write(self, store: SqliteStore, load: Load, writes: Sequence[Request]) -> None:
        hidden = store.outbox.hidden
        # A commit of nothing but deletions that a resend would survive needs no flush of the disk's cache.
        with store.transaction(durable=bool(writes or load.drafts or self._failures)):
            if hidden:
                store.outbox.settle(SendOutcome(delivered=hidden))
            if load.gap is not None:
                store.outbox.note_gap(load.gap)
            if load.drafts:
                self._refused = store.outbox.accept(load.drafts)
                if self._noted_unsaved is not None:
                    with self._changed:
                        store.outbox.note_unsaved(self._buffer.unsaved)
            if self._failures:
                # Something must be written to know that the disk is well.
                store.touch()
            for request in writes:
                try:
                    request.result = store.attempt(lambda work=request.work: work(store))  # type: ignore[misc]
                except AgentError as error:
                    request.error = error
        if load.drafts:
            with self._changed:
                self._noted_unsaved = self._noted_unsaved and self._buffer.unsaved

    def _conclude(
        self,
        store: SqliteStore,
        writes: Sequence[Request],
        error: StorageError | None,
        fault: StorageError | None = None,
    ) -> None:
        """A commit of all, or of commands alone while ``fault`` keeps readings out, went well or failed."""
        if error is None and fault is None:
            with self._changed:
                self._failures = 0
                self._changed.notify_all()
            self.fault = None
            if self._refused:
                self._report_state(FULL, "the outbox is full and new readings are refused, as outbox.when_full says")
            else:
                self._report_state(OK, "")
        else:
            self._failed(store, error or cast("StorageError", fault), mend=error is not None)
        for request in writes:
            request.resolve(error)

    def _failed(self, store: SqliteStore, error: StorageError, *, mend: bool) -> None:
        with self._changed:
            self._failures += 1
            self._gave_up = self._closing
            self._retry_s = self._clock.now().monotonic_s + min(
                _RETRY_CAP_S, _RETRY_FIRST_S * 2.0 ** min(self._failures - 1, 10)
            )
            self._changed.notify_all()
        if self.fault is None:
            _log.error("store=failing %s; readings wait in memory and are tried again", error)
        self.fault = str(error)
        what = "nothing can be stored" if mend else "commands are still stored"
        self._report_state(DEGRADED, f"{error}; {what}, readings wait in memory")
        if mend:
            store.mend(error, self._failures)
            self._report_incidents(store)

    def _report_state(self, state: str, detail: str) -> None:
        if state != self._state:
            self._state = state
            self._on_state(state, detail)

    def _report_incidents(self, store: SqliteStore) -> None:
        for text in store.incidents:
            self.incidents.append(text)
            self._on_incident(text)
        store.incidents.clear()
