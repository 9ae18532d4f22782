"""Work on many tasks in processes, with the results in the order of the tasks."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from simulator.labels.errors import LabelError

T = TypeVar("T")
R = TypeVar("R")
_do: Callable[[Any], Any] | None = None
"""In a worker: what is done with each task."""


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_ordered(
    start: Callable[[], Callable[[T], R]], tasks: Sequence[T], jobs: int, *, at_once: int = 1
) -> Generator[R]:
    """The results of all tasks, in the order of the tasks.

    Args:
        start: called once in each process; returns what is done with each task. It and the tasks go there by pickle.
        tasks: all of them.
        jobs: processes; with 1 everything happens in this one. They end with this one, also after ``kill -9``.
        at_once: tasks that a process is handed at a time.

    Raises:
        AgentError: what the work raised, once all results before it were given.
        LabelError: a worker process ended by itself.
    """
    if jobs == 1:
        yield from map(start(), tasks)
        return
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(start,))
    try:
        yield from pool.map(_work, tasks, chunksize=at_once)
    except BrokenProcessPool:
        raise LabelError(
            "a worker process ended by itself: run the same command again, with more memory free"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(start: Callable[[], Callable[[Any], Any]]) -> None:
    global _do
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started it ends it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    atexit.register(os._exit, 0)  # the thread is still waiting, and zxing-cpp would complain of objects that it holds
    _do = start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _work(task: Any) -> Any:
    if _do is None:
        raise AssertionError("a worker begins with its initializer")
    return _do(task)
