"""A pool of worker processes that gives results in the order of the tasks, for any number of processes.

Each worker holds one end of a pipe. When this process ends, in whatever way, the pipe does too, and the worker with it:
nothing is left behind, not even after ``kill -9``. Workers ignore Ctrl-C; the process that started them ends them. A
decoder that takes longer than its limit over one picture ends its worker (:func:`decoders.within_limit`).
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Final, Generic, Protocol, TypeVar

from agent.errors import AgentError
from simulator.interrupts import without_interrupts
from simulator.labels.errors import LabelError
from simulator.labels.symbol.decoders import ANSWER_S, limit_answers

T = TypeVar("T")
R = TypeVar("R")
T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
_IN_HAND: Final = 2
"""Portions that a worker has: one in work, one waiting."""
_AHEAD: Final = 32
"""Portions that may be done, or in hand, before the first one whose results nobody has taken yet; per worker."""
_LEAVE_S: Final = 10.0


class Work(Protocol[T_contra, R_co]):
    """What a worker does; it goes to the worker by pickle."""

    def start(self) -> Callable[[T_contra], R_co]:
        """In the worker: load what is needed, and return the function for one task."""
        ...


class ProcessEnded(Exception):
    """A worker process ended by itself.

    Attributes:
        took_too_long: whether it was a decoder's time limit that ended it.
    """

    def __init__(self, exit_code: int | None) -> None:
        super().__init__(f"exit code {exit_code}")
        self.took_too_long = exit_code == -signal.SIGALRM if hasattr(signal, "SIGALRM") else False


OnLost = Callable[[T, ProcessEnded], R]
"""Called in this process with a task whose worker ended; returns its result, or raises."""


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_ordered(
    work: Work[T, R],
    portions: Iterator[Sequence[T]],
    jobs: int,
    *,
    on_lost: OnLost[T, R] | None = None,
    answer_s: float = ANSWER_S,
) -> Generator[R]:
    """The results of all tasks, in the order of the tasks.

    Args:
        work: what is done with each task.
        portions: the tasks, in portions that one worker takes at once; drawn only as fast as results are taken.
        jobs: processes; with 1, and without ``on_lost``, everything happens in this one, where no limit holds.
        on_lost: for tasks whose worker ended; by default that ends the run.
        answer_s: how long a decoder may take over one picture.

    Raises:
        AgentError: what the work raised, once all results before it were given.
        LabelError: a worker process ended by itself, and there is no ``on_lost``.
    """
    if jobs == 1 and on_lost is None:
        do = work.start()
        yield from (do(task) for portion in portions for task in portion)
        return
    workers = [_Worker(work, answer_s) for _ in range(jobs)]
    try:
        for worker in workers:
            worker.start()
        yield from _collect(workers, enumerate(portions), on_lost)
    finally:
        with without_interrupts():
            for worker in workers:
                worker.dismiss()
            for worker in workers:
                worker.join()


def run_alone(work: Work[T, R], task: T, *, answer_s: float = ANSWER_S) -> R:
    """The result of one task, worked on in a process of its own.

    Raises:
        ProcessEnded: the process did not outlive it.
        AgentError: what the work raised.
    """

    def lost(_: T, ended: ProcessEnded) -> R:
        raise ended

    with contextlib.closing(run_ordered(work, iter([[task]]), 1, on_lost=lost, answer_s=answer_s)) as results:
        return next(results)


def _collect(
    workers: Sequence[_Worker[T, R]], portions: Iterator[tuple[int, Sequence[T]]], on_lost: OnLost[T, R] | None
) -> Iterator[R]:
    """Give portions to whoever has room, and hold results back until all before them were given."""
    done: dict[int, Iterator[R]] = {}
    due = 0
    while True:
        for _, worker in itertools.product(range(_IN_HAND), workers):
            if worker.has_room and len(done) < _AHEAD * len(workers):
                worker.give(next(portions, None))
        busy = {worker.pipe: worker for worker in workers if worker.in_hand}
        if not busy:
            return
        for pipe in wait(list(busy)):
            number, results = busy[pipe].results(on_lost)  # type: ignore[index]  # the stubs allow sockets and handles
            done[number] = results
        while due in done:
            yield from done.pop(due)
            due += 1


class _Worker(Generic[T, R]):
    """One process with its pipe, and the portions that it has not answered yet."""

    def __init__(self, work: Work[T, R], answer_s: float) -> None:
        self._arguments = work, answer_s
        self.in_hand: deque[tuple[int, Sequence[T]]] = deque()
        self._prepare()

    def _prepare(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, self._far_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._far_end, *self._arguments), daemon=True)

    @property
    def has_room(self) -> bool:
        return len(self.in_hand) < _IN_HAND

    def start(self) -> None:
        # Blocked across the start, so that Ctrl-C does not end a worker that has not yet said that it ignores it.
        held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        self._far_end.close()

    def give(self, portion: tuple[int, Sequence[T]] | None) -> None:
        if portion is None:
            return
        self.in_hand.append(portion)
        with contextlib.suppress(OSError):  # it has ended: its results say so
            self.pipe.send(portion[1])

    def results(self, on_lost: OnLost[T, R] | None) -> tuple[int, Iterator[R]]:
        """The number of its oldest portion, and that one's results; what went wrong is raised by the latter."""
        number, portion = self.in_hand.popleft()
        try:
            done, problem = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join(_LEAVE_S)
            exit_code = self._process.exitcode
            if on_lost is None:
                return number, _raise(_lost(exit_code))
            self._start_anew()
            return number, (on_lost(task, ProcessEnded(exit_code)) for task in portion)
        return number, itertools.chain(done, _raise(problem))

    def _start_anew(self) -> None:
        """Another process in the place of one that ended, with the portions that are left."""
        self.dismiss()
        self.join()
        left = list(self.in_hand)
        self.in_hand.clear()
        self._prepare()
        self.start()
        for portion in left:
            self.give(portion)

    def dismiss(self) -> None:
        self.pipe.close()

    def join(self) -> None:
        if self._process.pid is None:
            return
        self._process.join(_LEAVE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()


def _raise(problem: AgentError | None) -> Iterator[Any]:
    """No results; raises the problem when there is one."""
    if problem is not None:
        raise problem
    yield from ()


def _lost(exit_code: int | None) -> LabelError:
    if ProcessEnded(exit_code).took_too_long:
        return LabelError(
            "a decoder gave no answer in time and its process was ended: what is made stays; run the same command "
            "again, and leave out one with --decoders when it happens again"
        )
    return LabelError(
        f"a worker process ended by itself (exit code {exit_code}): what is made stays; run the same "
        "command again, with fewer --jobs when memory was short"
    )


def _serve(pipe: Connection, work: Work[T, R], answer_s: float) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    limit_answers(answer_s)
    with contextlib.suppress(EOFError, OSError):  # the other end is closed: there is nobody to work for
        do = work.start()
        while True:
            _answer(pipe, do, pipe.recv())


def _answer(pipe: Connection, do: Callable[[T], R], portion: Sequence[T]) -> None:
    done: list[R] = []
    try:
        done.extend(map(do, portion))  # what was done before a problem stays in the list
    except AgentError as problem:
        pipe.send((done, problem))
    else:
        pipe.send((done, None))
