"""Workers of a run: the messages of both sides, what a worker process does, and the processes of this machine.

A worker is a process with one loop that makes the load, and one thread beside it that reports. The thread carries the
heartbeat, so that a loop under load is never taken for a dead one; it also turns each second's numbers into histograms,
so that the loop does not have to.

A worker is alive as long as its heartbeat thread says so; that its loop is busy does not make it lost. A worker whose
process has ended, or that was not heard for :data:`SILENCE_S` since its first message, is lost: its seconds from then
on are a gap in the run.

Messages are pickled: both ends are this program of this version. Times in them are seconds since the run's begin, since
each machine has a monotonic clock of its own.
"""

from __future__ import annotations

import asyncio
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
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Final, Protocol, Self

import uvloop

from agent.errors import AgentError, ConfigurationError
from simulator.fleet.engine.preflight import ResourceCheck, raise_descriptor_limit
from simulator.fleet.metrics.health import HealthProbe
from simulator.fleet.metrics.recorder import Cut, Recorder
from simulator.fleet.plan import count_workers
from simulator.fleet.record import Second
from simulator.fleet.run.capacity import addresses_of_devices, check_capacity, find_sources
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.target.target import Target, is_here
from simulator.fleet.workload.base import Leftover, Workload, WorkloadSummary
from simulator.interrupts import without_interrupts
from simulator.watched import ENDED, PartEnded, describe, into_loop, make_thread, start_task

SILENCE_S: Final = 15.0
BIRTH_S: Final = 120.0
"""Until its first message: a process that imports on a busy machine has no thread yet that could send any."""
WALL_CLOCK_S: Final = 5.0
"""Further off, a wall clock gives readings times that an audit cannot take."""
_END_S: Final = 5.0
_PULSE_S: Final = 1.0
_FAILED: Final = 1
_LOST_COORDINATOR: Final = 70
_LOST_SENDER: Final = 71

# --- messages ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """To a worker: the run begins in so many seconds, for all workers at the same instant."""

    after_s: float


@dataclass(frozen=True, slots=True)
class EnterPhases:
    """To a worker: when these phases begin, one after the other; each ends the one before it.

    They are all that have a time by now: up to the next one with a barrier at its end. Nothing more has to be said for
    them to begin.

    Attributes:
        index: of the first of them, in the scenario's list.
        at_s: when each begins.
    """

    index: int
    at_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Drain:
    """To a worker: no new work; hand over what is waiting.

    Attributes:
        from_s: when the phases were over; what fell due before still belongs to them.
        until_s: how long it may take.
    """

    from_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class Stop:
    """To a worker: close everything and end."""


ToWorker = Begin | EnterPhases | Drain | Stop


@dataclass(frozen=True, slots=True)
class Ready:
    """From a worker: it has started, and nothing is sent yet."""

    worker: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """From a worker's own heartbeat thread: the process lives, however busy its loop is."""

    worker: int


@dataclass(frozen=True, slots=True)
class Measured:
    """From a worker: its part of a second."""

    worker: int
    second: Second


@dataclass(frozen=True, slots=True)
class Drained:
    """From a worker: nothing waits any more, or the time for it is over.

    Attributes:
        late: names of devices that still had something to hand over, a few.
        late_count: how many there are.
    """

    worker: int
    late: tuple[str, ...]
    late_count: int


@dataclass(frozen=True, slots=True)
class Finished:
    """From a worker: its last message, with what it adds to the run's record."""

    worker: int
    summary: WorkloadSummary


@dataclass(frozen=True, slots=True)
class Problem:
    """From a worker: why its part of the run proves nothing: an error that ends it, or a clock that jumped."""

    worker: int
    sentence: str


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """In place of a worker: it is not there any more, and why."""

    worker: int
    reason: str


FromWorker = Ready | Heartbeat | Measured | Drained | Finished | Problem | WorkerLost


# --- in the worker's process ------------------------------------------------------------------------------------------


class Job(Protocol):
    """What a worker is given, pickled: it makes the workload."""

    def make(self, recorder: Recorder) -> Workload:
        """Build everything; called in the running loop. Nothing is sent yet.

        Raises:
            AgentError: it cannot be played; the text goes to the coordinator.
        """
        ...


def work(number: int, job: Job, pipe: Connection) -> int:
    """A worker's whole life.

    Args:
        number: of this worker.
        job: makes its workload.
        pipe: to the coordinator.

    Returns:
        The process's exit code.
    """
    raise_descriptor_limit()
    sender = _Sender(number, pipe)
    sender.start()
    try:
        uvloop.run(_perform(number, job, pipe, sender))
    except AgentError as error:
        sender.send(Problem(number, f"worker {number}: {error}" if isinstance(error, PartEnded) else str(error)))
        return _FAILED
    except Exception as error:
        # The run reports it and ends as inconclusive; the traceback is for whoever mends this program.
        sender.send(Problem(number, f"worker {number} failed: {describe(error)}"))
        raise
    finally:
        sender.end()
    return 0


async def _perform(number: int, job: Job, pipe: Connection, sender: _Sender) -> None:
    loop = asyncio.get_running_loop()
    orders: asyncio.Queue[tuple[float, ToWorker]] = asyncio.Queue()
    recorder = Recorder()
    play = job.make(recorder)
    faults: list[AgentError] = []
    loop.set_exception_handler(partial(_fail, faults, orders))
    probe = HealthProbe(loop)
    sender.watch(probe)
    _listen(pipe, loop, orders.put_nowait)
    sender.send(Ready(number))
    began_s = 0.0
    tasks: dict[str, asyncio.Task[None]] = {}
    try:
        while not faults:
            received_s, order = await orders.get()
            match order:
                case Begin(after_s):
                    began_s = received_s + after_s
                    play.begin(began_s)
                    probe.begin(began_s)
                    tasks["seconds"] = start_task(_cut_seconds(play, recorder, began_s, sender), "seconds")
                case EnterPhases():
                    tasks["phases"] = start_task(enter_phases(play, order, began_s), "phases")
                case Drain(from_s, until_s) if "drain" not in tasks:
                    _cancel(tasks, "phases")
                    recorder.drain(began_s + from_s)
                    # A task, so that another order is heard meanwhile.
                    drain = _drain(number, play, began_s + from_s, began_s + until_s, sender)
                    tasks["drain"] = start_task(drain, "drain")
                case Drain(_, until_s):  # the run is ended in haste
                    loop.call_later(max(0.0, began_s + until_s - time.monotonic()), tasks["drain"].cancel)
                case Stop():
                    break
    finally:
        _cancel(tasks, "phases")
        await _ended(tasks, "drain")
        try:
            summary = await play.close()
        except Exception:
            if not faults:  # else it follows from them
                raise
        finally:
            await _ended(tasks, "seconds")
            probe.stop()
    if faults:
        raise faults[0]
    sender.send(Finished(number, summary))


async def _drain(number: int, play: Workload, from_s: float, until_s: float, sender: _Sender) -> None:
    left = Leftover()
    try:
        left = await play.drain(from_s, until_s)
    finally:
        sender.send(Drained(number, left.names, left.count))


async def enter_phases(play: Workload, order: EnterPhases, began_s: float) -> None:
    """Let each phase begin at its time."""
    for index, offset_s in enumerate(order.at_s, order.index):
        await asyncio.sleep(max(0.0, began_s + offset_s - time.monotonic()))
        play.enter_phase(index, began_s + offset_s)


def _cancel(tasks: dict[str, asyncio.Task[None]], name: str) -> None:
    if name in tasks:
        tasks[name].cancel()


async def _ended(tasks: dict[str, asyncio.Task[None]], name: str) -> None:
    _cancel(tasks, name)
    if name in tasks:
        await asyncio.wait([tasks[name]])


def _fail(
    faults: list[AgentError],
    orders: asyncio.Queue[tuple[float, ToWorker]],
    loop: asyncio.AbstractEventLoop,
    context: dict[str, Any],
) -> None:
    """Handle an exception that no task waits for.

    What a person can mend ends the worker, with its sentence; so does the end of a thread or task.
    """
    error = context.get("exception")
    if isinstance(error, ConfigurationError):
        faults.append(error)
    elif ENDED in context and isinstance(error, BaseException):
        faults.append(PartEnded(context[ENDED], error))
    else:
        loop.default_exception_handler(context)
        return
    orders.put_nowait((0.0, Stop()))


async def _cut_seconds(play: Workload, recorder: Recorder, began_s: float, sender: _Sender) -> None:
    """At the end of each second: what was measured in it. The one under way at the end is sent, too."""
    second = 0

    def cut() -> None:
        sender.send(recorder.cut(second, play.gauges()))

    try:
        while True:
            await asyncio.sleep(max(0.0, began_s + second + 1 - time.monotonic()))
            # A loop that stood still for a while has several seconds to close; what it measured is in the first.
            while time.monotonic() >= began_s + second + 1:
                cut()
                second += 1
    finally:
        cut()


def _listen(pipe: Connection, loop: asyncio.AbstractEventLoop, take: Callable[[tuple[float, ToWorker]], None]) -> None:
    """Hand the coordinator's orders to the loop, with when they came; a coordinator that is gone ends this process."""

    def read() -> None:
        while True:
            try:
                order = pipe.recv()
            except (EOFError, OSError):
                os._exit(_LOST_COORDINATOR)
            try:
                loop.call_soon_threadsafe(take, (time.monotonic(), order))
            except RuntimeError:
                return  # the loop has ended by itself, with a fault that the coordinator hears of
            if isinstance(order, Stop):
                return

    make_thread(read, "orders", into_loop(loop)).start()


class _Sender:
    """The thread that sends messages to the coordinator.

    Args:
        worker: this worker's number.
        pipe: to the coordinator; only this thread sends over it.
    """

    def __init__(self, worker: int, pipe: Connection) -> None:
        self._worker = worker
        self._pipe = pipe
        self._messages: queue.SimpleQueue[FromWorker | Cut | None] = queue.SimpleQueue()
        self._probe: HealthProbe | None = None
        self._wall_clock = WallClock()
        self._thread = make_thread(self._run, "sender", self._fail)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def watch(self, probe: HealthProbe) -> None:
        """Send this probe's health with each second; to be called in the loop's thread."""
        probe.start()
        self._probe = probe

    def send(self, message: FromWorker | Cut) -> None:
        """Send a message, or what a second measured. From any thread."""
        self._messages.put(message)

    def end(self) -> None:
        """Send everything that is left, then stop."""
        self._messages.put(None)
        self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # the coordinator is gone, and the thread that listens ends the process
            while True:
                try:
                    message = self._messages.get(timeout=_PULSE_S)
                except queue.Empty:
                    message = Heartbeat(self._worker)
                if message is None:
                    return
                if not isinstance(message, Cut):
                    self._pipe.send(message)
                    continue
                second = message.measured(self._probe.take()) if self._probe else message.measured()
                self._pipe.send(Measured(self._worker, second))
                if (why := self._wall_clock.new_jump()) is not None:
                    self._pipe.send(Problem(self._worker, f"worker {self._worker}: {why}"))

    def _fail(self, name: str, error: BaseException) -> None:
        """Nothing can be sent any more but this: the process ends, and its part of the run is a gap."""
        with contextlib.suppress(Exception):  # it is the pipe that does not work
            self._pipe.send(Problem(self._worker, f"worker {self._worker}: {PartEnded(name, error)}"))
        os._exit(_LOST_SENDER)


class WallClock:
    """Notices that the wall clock of this machine jumps while something goes by it.

    Args:
        wall: seconds since the epoch.
        monotonic: the clock that nobody sets.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._apart_s = wall() - monotonic()
        self._is_reported = False

    def new_jump(self) -> str | None:
        """The first jump of more than :data:`WALL_CLOCK_S`, in words; None before it and after it was reported."""
        set_s = self._wall() - self._monotonic() - self._apart_s
        if self._is_reported or abs(set_s) <= WALL_CLOCK_S:
            return None
        self._is_reported = True
        way = "ahead" if set_s > 0 else "back"
        cause = "it was set, or the machine slept" if set_s > 0 else "it was set"
        return f"the clock of its machine jumped {way} by {abs(set_s):.0f} s in the middle of the run: {cause}"


# --- the processes of this machine ------------------------------------------------------------------------------------


Work = Callable[[int, Any, Connection], int | None]
"""What a worker does, given its number, its job and its end of the pipe: the exit code of its process.

It is importable by name, since a worker process begins from nothing.
"""


@dataclass(slots=True)
class _Member:
    number: int
    process: BaseProcess
    pipe: Connection
    last_message_s: float
    has_sent: bool = False
    has_hung_up: bool = False
    is_over: bool = False


class LocalWorkers:
    """One process of this machine for each job, numbered from 0. Used by one thread, inside its ``with`` block.

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
        # A thread for each worker waits for whole messages: half a one holds up nobody else. None: the pipe is closed.
        self._received: queue.SimpleQueue[tuple[_Member, FromWorker | Exception | None]] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def count_workers(self, scenario: Scenario) -> int:
        """How many workers make the load."""
        return count_workers(scenario)

    def check(self, file: ScenarioFile, target: Target, workers: int) -> tuple[ResourceCheck, ...]:
        """Compare what a scenario asks with what there is, before anything is made on the target.

        Returns:
            Every need with what there is; those that do not fit will disturb the measurement.

        Raises:
            ConfigurationError: the run cannot be what the scenario says; the text has the numbers and the fix.
        """
        scenario, here = file.scenario, is_here(target.base_url)
        sources = find_sources(scenario.target.source_addresses, addresses_of_devices(scenario, target))
        return check_capacity(scenario, workers, target_is_here=here, sources=sources)

    def describe(self) -> str:
        """Which machine has which workers; empty for this one alone."""
        return ""

    def start(self, jobs: Sequence[Any]) -> None:
        """Start a process for each job; to be called once.

        Raises:
            ConfigurationError: the system refuses one.
        """
        # spawn: a forked child would share the parent's sockets, locks and half of its threads.
        context = multiprocessing.get_context("spawn")
        with without_interrupts():  # inherited: Ctrl-C is the coordinator's business
            for number, job in enumerate(jobs, self._first):
                try:
                    ours, theirs = context.Pipe()
                    process = context.Process(
                        target=_main, args=(self._work, number, job, theirs, os.getpid()), name=f"worker-{number}",
                        daemon=True,
                    )  # fmt: skip
                    process.start()
                except OSError as error:
                    fix = "write fewer workers, or raise the limits of processes and open files (ulimit -u, ulimit -n)"
                    fault = f"worker {number} could not be started ({error.strerror}): {fix}"
                    raise ConfigurationError([fault], "workers") from None
                theirs.close()
                member = _Member(number, process, ours, self._now())
                self._members.append(member)
                threading.Thread(target=self._listen, args=(member,), daemon=True).start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with without_interrupts():
            deadline_s = self._now() + _END_S
            for member in self._members:
                if not member.is_over:
                    member.process.terminate()
            for member in self._members:
                member.process.join(max(0.0, deadline_s - self._now()))
                if member.process.is_alive():
                    member.process.kill()
                    member.process.join()

    @property
    def living(self) -> tuple[int, ...]:
        """The workers that are neither lost nor done."""
        return tuple(member.number for member in self._members if not member.is_over)

    def send(self, worker: int, message: ToWorker) -> None:
        """Send a message. One to a worker that has just died is lost, and :meth:`receive` finds that out."""
        member = self._members[worker - self._first]
        if not member.is_over:
            with contextlib.suppress(OSError):
                member.pipe.send(message)

    def receive(self, timeout_s: float) -> Iterator[FromWorker]:
        """The workers' messages, those of one worker in the order in which it sent them, and which workers are lost.

        After :class:`~simulator.fleet.run.workers.Finished`, or when it is lost, a worker is not living any more, and
        nothing more comes of it.

        Args:
            timeout_s: return after this time at the latest.
        """
        with contextlib.suppress(queue.Empty):
            yield from self._take(*self._received.get(timeout=timeout_s))
            while True:
                yield from self._take(*self._received.get_nowait())
        for member in self._members:
            if member.is_over:
                continue
            patience_s = SILENCE_S if member.has_sent else BIRTH_S
            # How it ended is known once it has, which a busy machine takes its time for.
            if member.has_hung_up and (code := member.process.exitcode) is not None:
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                yield self._lost(member, f"its process ended with {how}")
            elif self._now() - member.last_message_s > patience_s:
                yield self._lost(member, f"not heard for {patience_s:g} s, ended")

    def collect(self, on_progress: Callable[[int, int], object]) -> tuple[str, ...]:
        """Bring what the workers have written to where their jobs say, when none of them is living any more.

        Args:
            on_progress: called with how many files have come, of how many, where some have to.

        Returns:
            What could not be had and why, one sentence each.
        """
        del on_progress
        return ()

    def _listen(self, member: _Member) -> None:
        while True:
            try:
                self._received.put((member, member.pipe.recv()))
            except (EOFError, OSError):
                self._received.put((member, None))
                return
            except Exception as error:  # noqa: BLE001 - what half a message is read as may raise anything
                self._received.put((member, error))
                return

    def _take(self, member: _Member, message: FromWorker | Exception | None) -> Iterator[FromWorker]:
        if member.is_over:
            return
        if message is None:
            member.has_hung_up = True
        elif isinstance(message, Exception):
            yield self._lost(member, f"its message could not be read ({describe(message)}), ended")
        else:
            member.last_message_s, member.has_sent = self._now(), True
            member.is_over = isinstance(message, Finished)  # that its process ends now is no trouble
            yield message

    def _lost(self, member: _Member, reason: str) -> WorkerLost:
        member.is_over = True
        member.process.kill()
        return WorkerLost(member.number, reason)


def _main(work: Work, number: int, job: Any, pipe: Connection, parent: int) -> None:
    """A worker process's first function."""
    # What was ignored while it was started is inherited: SIGTERM has to end it again, and Ctrl-C still must not.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if os.getppid() != parent:
        return  # the coordinator died while we started
    sys.exit(work(number, job, pipe))
