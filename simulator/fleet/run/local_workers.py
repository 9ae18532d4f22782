"""Workers that are processes of this machine.

A worker whose process has ended, or that was not heard for :data:`SILENCE_S` since its first message, is lost: its
seconds from then on are a gap in the run. A busy loop does not make it lost: a thread of its own says that it lives.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final, Self

from agent.errors import ConfigurationError
from simulator.fleet.engine.preflight import ResourceCheck
from simulator.fleet.plan import count_workers
from simulator.fleet.run.capacity import addresses_of_devices, check_share, pool_too_small
from simulator.fleet.run.worker import FromWorker, Lost, ToWorker
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.target.target import Target, is_here
from simulator.fleet.workload.base import WorkloadSummary
from simulator.interrupts import without_interrupts
from simulator.watched import describe

SILENCE_S: Final = 15.0
_FIRST_MESSAGE_S: Final = 120.0
"""A process that still imports its modules, on a busy machine, has no thread yet that could send a message."""
_END_S: Final = 5.0

Work = Callable[[Any, Connection], int | None]
"""What a worker does, given its job and its end of the pipe: the exit code of its process.

It is importable by name, since a worker process is spawned.
"""


@dataclass(slots=True)
class _Member:
    number: int
    process: BaseProcess
    pipe: Connection
    last_message_s: float
    has_sent: bool = False
    is_closed: bool = False


class LocalWorkers:
    """One process of this machine for each job, numbered from 0. Used by one thread, inside its ``with`` block.

    Args:
        work: what each of them does.
        now: the monotonic clock.

    Attributes:
        machines: which machine has which workers; empty for this one alone.
    """

    machines = ""

    def __init__(self, work: Work, *, now: Callable[[], float] = time.monotonic) -> None:
        self._work = work
        self._now = now
        self._processes: list[BaseProcess] = []
        self._living: dict[int, _Member] = {}
        # A thread for each worker waits for its messages, so that half of one delays no other worker. None: closed.
        self._received: queue.SimpleQueue[tuple[_Member, FromWorker | Exception | None]] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def check(self, scenario: Scenario, target: Target) -> tuple[int, tuple[ResourceCheck, ...]]:
        """How many workers make the load, and every need of theirs with what there is for it.

        Nothing is made on the target. A need that is not met will disturb the measurement.

        Raises:
            ConfigurationError: the run cannot be what the scenario says; the text has the numbers and the fix.
        """
        count, addresses = count_workers(scenario), addresses_of_devices(scenario, target)
        devices, target_is_here = scenario.fleet.devices, is_here(target.base_url)
        checks, faults = check_share(scenario, addresses, devices=devices, workers=count, target_is_here=target_is_here)
        if faults := [*faults, *pool_too_small(scenario)]:
            raise ConfigurationError(faults, "this machine cannot hold the run as the scenario says")
        return count, checks

    def start(self, jobs: Sequence[Any]) -> None:
        """Start a process for each job; to be called once.

        Raises:
            ConfigurationError: the system refuses one.
        """
        # spawn: a forked child would share the parent's sockets, locks and half of its threads.
        context = multiprocessing.get_context("spawn")
        with without_interrupts():  # workers inherit it: Ctrl-C is handled by the coordinator alone
            for number, job in enumerate(jobs):
                try:
                    ours, theirs = context.Pipe()
                    arguments = (self._work, job, theirs, os.getpid())
                    process = context.Process(target=_main, args=arguments, name=f"worker-{number}", daemon=True)
                    process.start()
                except OSError as error:
                    fix = "write fewer workers, or raise the limits of processes and open files (ulimit -u, ulimit -n)"
                    fault = f"worker {number} could not be started ({error.strerror}): {fix}"
                    raise ConfigurationError([fault], "workers") from None
                theirs.close()
                member = _Member(number, process, ours, self._now())
                self._processes.append(process)
                self._living[number] = member
                threading.Thread(target=self._listen, args=(member,), daemon=True).start()

    def __exit__(self, *_error: object) -> None:
        with without_interrupts():
            deadline_s = self._now() + _END_S
            for member in self._living.values():
                member.process.terminate()
            for process in self._processes:
                process.join(max(0.0, deadline_s - self._now()))
                if process.is_alive():
                    process.kill()
                    process.join()

    @property
    def living(self) -> tuple[int, ...]:
        """The workers that are neither lost nor done."""
        return tuple(self._living)

    def send(self, worker: int, message: ToWorker) -> None:
        """Send a message. One to a worker that has just died is lost, and :meth:`receive` finds that out."""
        if worker in self._living:
            with contextlib.suppress(OSError):
                self._living[worker].pipe.send(message)

    def receive(self, timeout_s: float) -> Iterator[tuple[int, FromWorker]]:
        """The workers' messages, those of one worker in the order in which it sent them, and which workers are lost.

        After its summary, or when it is lost, a worker is not living any more, and sends nothing more.

        Args:
            timeout_s: return after this time at the latest.
        """
        with contextlib.suppress(queue.Empty):
            yield from self._take(*self._received.get(timeout=timeout_s))
            while True:
                yield from self._take(*self._received.get_nowait())
        for member in tuple(self._living.values()):
            patience_s = SILENCE_S if member.has_sent else _FIRST_MESSAGE_S
            # The exit code is known when the process has ended, some time after its pipe was closed.
            if member.is_closed and (code := member.process.exitcode) is not None:
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                yield self._lost(member, f"its process ended with {how}")
            elif self._now() - member.last_message_s > patience_s:
                yield self._lost(member, f"not heard for {patience_s:g} s, ended")

    def collect(self) -> tuple[str, ...]:
        """Bring what the workers have written to where their jobs say, when none of them is living any more.

        Returns:
            What could not be had and why, one sentence each.
        """
        return ()

    def _listen(self, member: _Member) -> None:
        while True:
            try:
                self._received.put((member, member.pipe.recv()))
            except (EOFError, OSError):
                self._received.put((member, None))
                return
            except Exception as error:  # noqa: BLE001 - unpickling a damaged message may raise anything
                self._received.put((member, error))
                return

    def _take(self, member: _Member, message: FromWorker | Exception | None) -> Iterator[tuple[int, FromWorker]]:
        if member.number not in self._living:
            return
        if message is None:
            member.is_closed = True
        elif isinstance(message, Exception):
            yield self._lost(member, f"its message could not be read ({describe(message)}), ended")
        else:
            member.last_message_s, member.has_sent = self._now(), True
            if isinstance(message, WorkloadSummary):
                del self._living[member.number]  # it ends as it should
            yield member.number, message

    def _lost(self, member: _Member, reason: str) -> tuple[int, Lost]:
        del self._living[member.number]
        member.process.kill()
        return member.number, Lost(reason)


def _main(work: Work, job: Any, pipe: Connection, parent: int) -> None:
    """A worker process's first function."""
    # The signals that were ignored while it was started are inherited: SIGTERM has to end it again, Ctrl-C must not.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if os.getppid() != parent:
        return  # the coordinator died while we started
    sys.exit(work(job, pipe))
