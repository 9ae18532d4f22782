"""The one thread that writes: requests that come while a commit is under way share the next one.

Each operation runs in its own savepoint, so one that is refused takes nothing of the others with it; one that breaks
the whole group makes each of them go by itself. An answer is sent only
after the commit: what was answered is on the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from agent.errors import AgentError
from simulator.service.errors import ServiceError, Unavailable
from simulator.service.failure_log import FailureLog
from simulator.service.storage.database import Database
from simulator.watched import OnFailure, make_thread

log = logging.getLogger(__name__)

T = TypeVar("T")
Item = TypeVar("Item")
Item_contra = TypeVar("Item_contra", contravariant=True)
Operation = Callable[[Connection], T]

GROUP_MAX: Final = 1024
"""Jobs in one transaction at most."""
WAITING_MAX: Final = 20_000
"""Jobs that may wait before the service says that it is busy."""
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""What their requests, or the answers that they lead to, may have together."""
_LOOK_S: Final = 1.0
_ROLLED_BACK: Final = "a group of writes was rolled back"


class BatchOperation(Protocol[Item_contra]):
    """Writes many items with few statements."""

    def __call__(self, connection: Connection, items: Sequence[Item_contra], /) -> Sequence[object]:
        """Write the items; one result for each, a :class:`ServiceError` for one that was not written.

        It must not raise a :class:`ServiceError`: for the sake of speed it has no savepoint of its own.
        """
        ...


class DueWork(Protocol):
    """What follows from the time alone, and has to be stored before anything else is decided."""

    def is_due(self) -> bool:
        """Whether there is any; asked before each group, so it must be cheap."""
        ...

    def carry_out(self, connection: Connection) -> Callable[[], None]:
        """Write it, in a transaction of its own; what it returns is called after the commit."""
        ...


@dataclass(slots=True)
class _Job:
    """What one request wants written, and who hears of the result: a future, or a thread that waits for an event.

    Attributes:
        ended: of a job that goes alone: called with what became of its transaction.
    """

    operation: Operation[Any] | None
    batch: BatchOperation[Any] | None
    item: Any
    size_bytes: int = 0
    future: asyncio.Future[Any] | None = None
    done: threading.Event | None = None
    result: Any = None
    ended: Callable[[Ended], None] | None = None


class Ended(Enum):
    """What became of a transaction."""

    WRITTEN = auto()
    BROKEN = auto()
    """Rolled back: one of its jobs, or the storage."""


class Writer:
    """Takes jobs from the event loop and writes them in groups.

    Args:
        database: where to.
        before_commit: runs at the end of each group, inside its transaction: small things that ride along.
        after_rollback: runs after a transaction that was rolled back or may be: what is kept in memory of it is wrong.
        due_work: is committed before a group that begins when it is due; while that fails, nothing is written.
        on_failure: called when an error ends the thread. Nothing is written then: what waits, and whatever is still to
            come, fails with 503.
    """

    def __init__(
        self,
        database: Database,
        before_commit: Operation[None],
        after_rollback: Callable[[], None] = lambda: None,
        due_work: DueWork | None = None,
        on_failure: OnFailure = lambda _name, _error: None,
    ) -> None:
        self._database = database
        self._before_commit = before_commit
        self._after_rollback = after_rollback
        self._due_work = due_work
        self._failure_log = FailureLog(log)
        self._queue: queue.SimpleQueue[list[_Job] | None] = queue.SimpleQueue()
        self._collected: list[_Job] = []
        self._waiting = 0
        self._waiting_bytes = 0
        self._connection = database.open_writer()
        self._in_hand: list[_Job] = []
        self._has_failed = False
        self._on_failure = on_failure
        self._thread = make_thread(self._run, "service-writer", self._fail)
        self.groups = 0
        self.jobs = 0

    def start(self) -> None:
        """Start the writing thread."""
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, then end. The event loop must have ended, or submit nothing more."""
        self._hand_over()
        self._put(None)
        self._thread.join()
        self._connection.close()

    @property
    def is_alive(self) -> bool:
        """Whether it still writes."""
        return self._thread.is_alive()

    def submit(self, operation: Operation[T], size_bytes: int = 0) -> asyncio.Future[T]:
        """Have it written; the future ends after the commit. Called on the event loop.

        Args:
            operation: what to write.
            size_bytes: of the request, or of the answer where that is larger: what it takes in memory meanwhile.

        Raises:
            Unavailable: as many jobs wait as may.
        """
        return self._collect(_Job(operation, None, None, size_bytes))

    def submit_item(self, batch: BatchOperation[Item], item: Item, size_bytes: int = 0) -> asyncio.Future[Any]:
        """As :meth:`submit`, together with the items that wait beside it."""
        return self._collect(_Job(None, batch, item, size_bytes))

    def submit_alone(self, operation: Operation[T], ended: Callable[[Ended], None]) -> asyncio.Future[T]:
        """As :meth:`submit`, for what replaces all that others rely on: nothing else is in its transaction.

        Args:
            operation: what to write.
            ended: called in the writing thread with what became of it, before anything else is written.
        """
        return self._collect(_Job(operation, None, None, ended=ended))

    def call(self, operation: Operation[T]) -> T:
        """As :meth:`submit`, from a thread that may wait for it."""
        done = threading.Event()
        job = _Job(operation, None, None, done=done)
        self._put([job])
        while not done.wait(_LOOK_S):
            if self._has_failed:
                raise _thread_has_ended()
        if isinstance(job.result, BaseException):
            raise job.result
        return cast("T", job.result)

    def _collect(self, job: _Job) -> asyncio.Future[Any]:
        if self._has_failed:
            raise _thread_has_ended()
        waiting_bytes = self._waiting_bytes + job.size_bytes
        if self._waiting >= WAITING_MAX or (self._waiting and waiting_bytes > WAITING_BYTES_MAX):
            raise Unavailable(
                "service_busy", "More writes wait than this service can hold; try again soon.", retry_after_s=1
            )
        loop = asyncio.get_running_loop()
        job.future = loop.create_future()
        self._waiting += 1
        self._waiting_bytes = waiting_bytes
        if not self._collected:
            # Requests that came in together are handed over together: the writing thread is woken once for them, and
            # not while this one is still busy with the rest.
            loop.call_soon(self._hand_over)
        self._collected.append(job)
        return job.future

    def _hand_over(self) -> None:
        if self._collected:
            collected, self._collected = self._collected, []
            self._put(collected)

    def _put(self, jobs: list[_Job] | None) -> None:
        self._queue.put(jobs)
        if self._has_failed:  # only after it: whatever is put before the thread says so, the thread refuses
            self._refuse_waiting()

    def _run(self) -> None:
        ending = False
        while not ending:
            jobs, ending = self._next_group()
            if jobs:
                self._in_hand = jobs
                for group in _apart(jobs):
                    self._write(self._connection, group)
                self._resolve(jobs)
                self._in_hand = []

    def _fail(self, name: str, error: BaseException) -> None:
        """The last thing that the thread does when an error ends it."""
        self._has_failed = True
        self._on_failure(name, error)  # before anybody hears of it: health says so from then on
        self._refuse(self._in_hand)
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._refuse(self._queue.get_nowait() or [])

    def _refuse(self, jobs: list[_Job]) -> None:
        for job in jobs:
            job.result = _thread_has_ended()
        self._resolve(jobs)

    def _next_group(self) -> tuple[list[_Job], bool]:
        group: list[_Job] = []
        jobs = self._queue.get()
        while jobs is not None:
            group += jobs
            if len(group) >= GROUP_MAX:
                return group, False
            try:
                jobs = self._queue.get_nowait()
            except queue.Empty:
                return group, False
        return group, True

    def _write(self, connection: Connection, jobs: list[_Job]) -> None:
        self.groups += 1
        self.jobs += len(jobs)
        fault = self._carry_out_due_work(connection)
        if fault is not None:
            for job in jobs:
                job.result = fault
            return
        ended = self._try(connection, jobs)
        # A job that breaks the whole group must not take the others with it: then each goes by itself.
        if ended is Ended.BROKEN and len(jobs) > 1:
            for job in jobs:
                self._try(connection, [job])
        if jobs[0].ended is not None:
            jobs[0].ended(ended)

    def _carry_out_due_work(self, connection: Connection) -> Exception | None:
        """Commit what is due; the fault that every caller of this group gets when that is not possible."""
        work = self._due_work
        if work is None or not work.is_due():
            return None
        try:
            with self._database.writing(connection):
                after_commit = work.carry_out(connection)
        except Exception as exc:  # whatever it is, no caller may get an answer that the time has overtaken
            self._after_rollback()
            if isinstance(exc, SQLAlchemyError):
                self._failure_log.report("what was due could not be stored", exc)
            else:
                log.exception("what was due could not be stored")
            return _storage_fault(exc)
        after_commit()
        return None

    def _try(self, connection: Connection, jobs: list[_Job]) -> Ended:
        try:
            with self._database.writing(connection):
                for run in _runs(jobs):
                    _carry_out(connection, run)
                self._before_commit(connection)
        except Exception as exc:  # whatever it is, every caller must hear of it
            # An error of ours says in its own words what is wrong, and whoever waits for the write shows them.
            if isinstance(exc, SQLAlchemyError):
                self._failure_log.report(_ROLLED_BACK, exc)
            elif not isinstance(exc, AgentError):
                log.exception("a group of %d writes was rolled back", len(jobs))
            self._after_rollback()
            fault = _storage_fault(exc)
            for job in jobs:
                job.result = fault
            return Ended.BROKEN
        return Ended.WRITTEN

    def _resolve(self, jobs: list[_Job]) -> None:
        """Hand out the results of a group: one wake-up of the event loop for all of them."""
        loop = None
        for job in jobs:
            if job.done is not None:
                job.done.set()
            elif job.future is not None and loop is None:
                loop = job.future.get_loop()
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
                loop.call_soon_threadsafe(self._hand_out, jobs)

    def _hand_out(self, jobs: list[_Job]) -> None:
        for job in jobs:
            future = job.future
            if future is None:
                continue
            self._waiting -= 1
            self._waiting_bytes -= job.size_bytes
            if future.done():  # its request was given up
                continue
            if isinstance(job.result, BaseException):
                future.set_exception(job.result)
            else:
                future.set_result(job.result)


def _apart(jobs: Sequence[_Job]) -> Iterator[list[_Job]]:
    """In groups for one transaction each; a job that goes alone has its own."""
    for alone, group in itertools.groupby(jobs, lambda job: job if job.ended else None):
        yield list(group) if alone is None else [alone]


def _runs(jobs: list[_Job]) -> Iterator[list[_Job]]:
    """Neighbours with the same batch operation together, everything else alone; the order stays."""
    run: list[_Job] = []
    for job in jobs:
        if run and (job.batch is None or job.batch is not run[0].batch):
            yield run
            run = []
        run.append(job)
    if run:
        yield run


def _carry_out(connection: Connection, run: list[_Job]) -> None:
    first = run[0]
    if first.batch is not None:
        results = first.batch(connection, [job.item for job in run])
        for job, result in zip(run, results, strict=True):
            job.result = result
    elif first.operation is not None:
        try:
            with connection.begin_nested():
                first.result = first.operation(connection)
        except ServiceError as error:
            first.result = error


def _thread_has_ended() -> Unavailable:
    return Unavailable(
        "storage_unavailable",
        "The service's writing thread has ended, and the service ends with it; its log says why. What was being written"
        " was stored as a whole or not at all: look first, or send it again with the same Idempotency-Key.",
        retry_after_s=1,
    )


def _storage_fault(exc: Exception) -> Exception:
    if not isinstance(exc, SQLAlchemyError):
        return exc
    message = "The service could not write to its storage, nothing was stored; its log says why. Try again."
    return Unavailable("storage_unavailable", message, retry_after_s=1)
