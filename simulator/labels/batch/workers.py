"""Work spread over processes, its results in order: equal for any number of processes.

Each worker holds one end of a pipe. When this process ends, in whatever way, the pipe does too, and the worker with it:
nothing is left behind, not even after ``kill -9``. Workers ignore Ctrl-C; the process that started them ends them.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Final, Protocol, TypeVar

from agent.errors import AgentError
from simulator.interrupts import without_interrupts
from simulator.labels.errors import LabelError

T = TypeVar("T")
R = TypeVar("R")
T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
_AHEAD: Final = 2
"""Chunks that a worker has in hand: one in work, one waiting."""
_LEAVE_S: Final = 10.0


class Work(Protocol[T_contra, R_co]):
    """What a worker does; it goes to the worker by pickle."""

    def start(self) -> Callable[[T_contra], R_co]:
        """In the worker: load what is needed, and return the function for one task."""
        ...


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_ordered(work: Work[T, R], chunks: Iterator[Sequence[T]], jobs: int) -> Generator[R]:
    """The results of all tasks, in the order of the tasks.

    Args:
        work: what is done with each task.
        chunks: the tasks, in portions that one worker takes at once; drawn only as fast as results are taken.
        jobs: processes; with 1 everything happens in this one.

    Raises:
        AgentError: what the work raised, once all results before it were given.
        LabelError: a worker process ended by itself.
    """
    if jobs == 1:
        do = work.start()
        for chunk in chunks:
            for task in chunk:
                yield do(task)
        return
    crew = [_Worker(work) for _ in range(jobs)]
    try:
        for worker in crew:
            worker.start()
        yield from _rounds(crew, chunks)
    finally:
        with without_interrupts():
            for worker in crew:
                worker.dismiss()
            for worker in crew:
                worker.wait()


def _rounds(crew: Sequence[_Worker], chunks: Iterator[Sequence[T]]) -> Iterator[R]:
    """Chunks go round the workers and results are fetched in the same round, so order needs no sorting."""
    waiting: deque[_Worker] = deque()
    for turn, chunk in enumerate(chunks):
        worker = crew[turn % len(crew)]
        if len(waiting) >= _AHEAD * len(crew):
            yield from waiting.popleft().results()
        worker.give(chunk)
        waiting.append(worker)
    while waiting:
        yield from waiting.popleft().results()


class _Worker:
    def __init__(self, work: Work[T, R]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, self._far_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._far_end, work), daemon=True)

    def start(self) -> None:
        # Blocked across the start, so that Ctrl-C does not end a worker that has not yet said that it ignores it.
        held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        self._far_end.close()

    def give(self, chunk: object) -> None:
        try:
            self._pipe.send(chunk)
        except OSError:
            raise self._lost() from None

    def results(self) -> Iterator[R]:
        try:
            done: list[R]
            problem: AgentError | None
            done, problem = self._pipe.recv()
        except (EOFError, OSError):
            raise self._lost() from None
        yield from done
        if problem is not None:
            raise problem

    def _lost(self) -> LabelError:
        self._process.join(_LEAVE_S)
        return LabelError(
            f"a worker process ended by itself (exit code {self._process.exitcode}): what is made stays; run the same "
            "command again, with fewer --jobs when memory was short"
        )

    def dismiss(self) -> None:
        self._pipe.close()

    def wait(self) -> None:
        if self._process.pid is None:
            return
        self._process.join(_LEAVE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()


def _serve(pipe: Connection, work: Work[T, R]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    with contextlib.suppress(EOFError, OSError):  # the other end is closed: there is nobody to work for
        do = work.start()
        while True:
            _answer(pipe, do, pipe.recv())


def _answer(pipe: Connection, do: Callable[[T], R], chunk: Sequence[T]) -> None:
    done: list[R] = []
    try:
        done.extend(map(do, chunk))  # what was done before a problem stays in the list
    except AgentError as problem:
        pipe.send((done, problem))
    else:
        pipe.send((done, None))
