"""The worker processes of this machine: started, sent messages, listened to, and declared lost when they are.

A worker is alive as long as its heartbeat thread says so; that its loop is busy does not make it lost. A worker whose
process has ended, or that was not heard for :data:`SILENCE_S` since its first word, is gone: its seconds from then on
are a gap in the run.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Final, Self

from agent.errors import ConfigurationError
from simulator.fleet.run.inbox import Inbox
from simulator.fleet.run.messages import Finished, FromWorker, ToWorker
from simulator.fleet.run.workers import Work, WorkerLost
from simulator.interrupts import without_interrupts
from simulator.watched import describe

SILENCE_S: Final = 15.0
BIRTH_S: Final = 120.0
"""Until its first word: a process that imports on a busy machine has no thread yet that could say anything."""
_END_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class PipeLink:
    """A :class:`~simulator.fleet.run.workers.Link` over a pipe.

    Attributes:
        pipe: the worker's end.
    """

    pipe: Connection

    def send(self, message: FromWorker) -> None:
        """Send a message. See :class:`~simulator.fleet.run.workers.Link`."""
        self.pipe.send(message)

    def receive(self) -> ToWorker:
        """The next message. See :class:`~simulator.fleet.run.workers.Link`."""
        message: ToWorker = self.pipe.recv()
        return message


@dataclass(slots=True)
class _Member:
    number: int
    process: BaseProcess
    pipe: Connection
    inbox: Inbox
    last_message_s: float
    has_sent: bool = False
    is_ending: bool = False
    gone: str | None = None
    done: bool = False


class LocalWorkers:
    """One process of this machine for each job (:class:`~simulator.fleet.run.workers.Workers`).

    Args:
        work: what each of them does.
        first: number of the first one, where others of the run are on other machines.
        now: the monotonic clock.
    """

    def __init__(self, work: Work, *, first: int = 0, now: Callable[[], float] = time.monotonic) -> None:
        self._work = work
        self._first = first
        self._now = now
        self._members: list[_Member] = []

    def __enter__(self) -> Self:
        return self

    def start(self, jobs: Sequence[Any]) -> None:
        """Start a process for each job. See :class:`~simulator.fleet.run.workers.Workers`."""
        # spawn: a forked child would share the parent's sockets, locks and half of its threads.
        context = multiprocessing.get_context("spawn")
        with without_interrupts():  # inherited: Ctrl-C is the coordinator's business
            for number, job in enumerate(jobs, self._first):
                try:
                    self._start_one(context, number, job)
                except OSError as error:
                    fix = "write fewer workers, or raise the limits of processes and open files (ulimit -u, ulimit -n)"
                    fault = f"worker {number} could not be started ({error.strerror}): {fix}"
                    raise ConfigurationError([fault], "workers") from None

    def _start_one(self, context: SpawnContext, number: int, job: Any) -> None:
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_main, args=(self._work, number, job, theirs, os.getpid()), name=f"worker-{number}", daemon=True
        )
        process.start()
        theirs.close()
        self._members.append(_Member(number, process, ours, Inbox(ours), self._now()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with without_interrupts():
            deadline_s = self._now() + _END_S
            for member in self._members:
                if not member.done and member.gone is None:
                    member.process.terminate()
            for member in self._members:
                member.process.join(max(0.0, deadline_s - self._now()))
                if member.process.is_alive():
                    member.process.kill()
                    member.process.join()
                member.inbox.close()
                member.pipe.close()

    def kill(self) -> None:
        """End every process at once, without waiting; from any thread."""
        for member in list(self._members):
            member.process.kill()

    @property
    def pids(self) -> tuple[int | None, ...]:
        """The processes' ids, by worker."""
        return tuple(member.process.pid for member in self._members)

    @property
    def living(self) -> tuple[int, ...]:
        """The workers that are neither gone nor done."""
        return tuple(member.number for member in self._members if member.gone is None and not member.done)

    def send(self, worker: int, message: ToWorker) -> None:
        """Send a message. See :class:`~simulator.fleet.run.workers.Workers`."""
        member = self._members[worker - self._first]
        if member.gone is None and not member.done:
            with contextlib.suppress(OSError):
                member.pipe.send(message)

    def receive(self, timeout_s: float) -> Iterator[FromWorker | WorkerLost]:
        """The workers' messages, and which are lost. See :class:`~simulator.fleet.run.workers.Workers`."""
        living = [member for member in self._members if member.gone is None and not member.done]
        if not living:
            time.sleep(timeout_s)
            return
        waited_for: dict[Any, _Member] = {m.process.sentinel if m.is_ending else m.pipe: m for m in living}
        for ready in wait(list(waited_for), timeout_s):
            member = waited_for[ready]
            if not member.is_ending:
                yield from self._read(member)
        for member in living:
            if member.is_ending and (code := member.process.exitcode) is not None:
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                yield self._lost(member, f"its process ended with {how}")
            patience_s = SILENCE_S if member.has_sent else BIRTH_S
            if member.gone is None and not member.done and self._now() - member.last_message_s > patience_s:
                member.process.kill()
                yield self._lost(member, f"not heard for {patience_s:g} s, ended")

    def collect(self, on_progress: Callable[[int, int], object]) -> tuple[str, ...]:
        """Nothing has to be brought: see :class:`~simulator.fleet.run.workers.Workers`."""
        del on_progress
        return ()

    def _read(self, member: _Member) -> Iterator[FromWorker | WorkerLost]:
        message: FromWorker
        try:
            for message in member.inbox.messages():
                member.last_message_s, member.has_sent = self._now(), True
                member.done = isinstance(message, Finished)  # that its process ends now is no trouble
                yield message
                if member.gone is not None or member.done:
                    return
        except (EOFError, OSError):
            member.is_ending = True  # how it did is known once it has, which a busy machine takes its time for
        except Exception as error:  # noqa: BLE001 - what half a message is read as may raise anything
            member.process.kill()
            yield self._lost(member, f"what it said could not be read ({describe(error)}), ended")

    def _lost(self, member: _Member, reason: str) -> WorkerLost:
        member.gone = reason
        return WorkerLost(member.number, reason)


def _main(work: Work, number: int, job: Any, pipe: Connection, parent: int) -> None:
    """A worker process's first function."""
    # What was ignored while it was started is inherited: SIGTERM has to end it again, and Ctrl-C still must not.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if os.getppid() != parent:
        return  # the coordinator died while we started
    sys.exit(work(number, job, PipeLink(pipe)))
