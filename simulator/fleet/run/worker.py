"""A worker of a run: a process with one loop that makes the load, and one thread beside it that reports.

The thread says every second that the process lives, so that a loop under load is never taken for a dead one; it also
turns each second's numbers into histograms, so that the loop does not have to.

Messages are pickled: both ends are this program of this version. Times in them are seconds since the run's begin, since
each machine has a monotonic clock of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final

import uvloop

from agent.errors import AgentError, ConfigurationError
from simulator.fleet.engine.preflight import raise_descriptor_limit
from simulator.fleet.metrics.health import HealthProbe
from simulator.fleet.metrics.recorder import Cut, Recorder
from simulator.fleet.record import Second
from simulator.fleet.workload.base import Job, Leftover, Workload, WorkloadSummary
from simulator.watched import ENDED, PartEnded, describe, make_thread, start_task

WALL_CLOCK_S: Final = 5.0
"""A wall clock that is further off gives readings times that an audit cannot accept."""
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

    All phases whose time is known: up to the next one with a barrier at its end. They begin without another message.

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


class Sign(Enum):
    """From a worker."""

    READY = auto()
    """It has started, and nothing is sent yet."""
    ALIVE = auto()
    """The process lives, however busy its loop is."""


@dataclass(frozen=True, slots=True)
class Problem:
    """From a worker: why its part of the run proves nothing: an error that ends it, or a clock that jumped."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Lost:
    """Said in place of a worker that is gone: why."""

    reason: str


FromWorker = Sign | Second | Leftover | WorkloadSummary | Problem | Lost
"""A second: what the worker measured in it. A leftover ends the drain. The summary is its last message."""


# --- in the worker's process ------------------------------------------------------------------------------------------


def work(job: Job, pipe: Connection) -> int:
    """The main function of a worker's process.

    Args:
        job: makes its workload.
        pipe: to the coordinator.

    Returns:
        The process's exit code.
    """
    raise_descriptor_limit()
    sender = _Sender(pipe)
    try:
        uvloop.run(_perform(job, pipe, sender))
    except AgentError as error:
        sender.send(Problem(str(error)))
        return _FAILED
    except Exception as error:
        # The run reports it and ends as inconclusive; the traceback is for the developers.
        sender.send(Problem(f"it ended unexpectedly: {describe(error)}"))
        raise
    finally:
        sender.end()
    return 0


async def _perform(job: Job, pipe: Connection, sender: _Sender) -> None:
    loop = asyncio.get_running_loop()
    orders: asyncio.Queue[tuple[float, ToWorker]] = asyncio.Queue()
    recorder = Recorder()
    workload = job.make(recorder)
    errors: list[AgentError] = []
    loop.set_exception_handler(partial(_fail, errors, orders))
    probe = HealthProbe(loop)
    sender.probe = probe
    loop.add_reader(pipe.fileno(), _hear, pipe, orders, loop)
    sender.send(Sign.READY)
    began_s = 0.0
    tasks: dict[str, asyncio.Task[None]] = {}
    try:
        while not errors:
            received_s, order = await orders.get()
            match order:
                case Begin(after_s):
                    began_s = received_s + after_s
                    workload.begin(began_s)
                    probe.begin(began_s)
                    tasks["seconds"] = start_task(_cut_seconds(workload, recorder, began_s, sender), "seconds")
                case EnterPhases():
                    tasks["phases"] = start_task(enter_phases(workload, order, began_s), "phases")
                case Drain(from_s, until_s) if "drain" not in tasks:  # Ctrl-C while it drains sends another one
                    await _end(tasks, "phases")
                    recorder.drain(began_s + from_s)
                    # A task, so that another order is heard meanwhile.
                    drain = _drain(workload, began_s + from_s, began_s + until_s, sender)
                    tasks["drain"] = start_task(drain, "drain")
                case Stop():
                    break
    finally:
        await _end(tasks, "phases", "drain")
        try:
            summary = await workload.close()
        except Exception:
            if not errors:  # else it follows from them
                raise
        finally:
            await _end(tasks, "seconds")
            probe.stop()
    if errors:
        raise errors[0]
    sender.send(summary)


def _hear(pipe: Connection, orders: asyncio.Queue[tuple[float, ToWorker]], loop: asyncio.AbstractEventLoop) -> None:
    """Take the next order, with the time at which it came; end this process when the coordinator is gone."""
    try:
        order = pipe.recv()
    except (EOFError, OSError):
        os._exit(_LOST_COORDINATOR)
    orders.put_nowait((time.monotonic(), order))
    if isinstance(order, Stop):
        loop.remove_reader(pipe.fileno())


async def _drain(workload: Workload, from_s: float, until_s: float, sender: _Sender) -> None:
    # Nothing is sent when it is cancelled: what still waits is not known then.
    sender.send(await workload.drain(from_s, until_s))


async def enter_phases(workload: Workload, order: EnterPhases, began_s: float) -> None:
    """Let each phase begin at its time."""
    for index, offset_s in enumerate(order.at_s, order.index):
        await asyncio.sleep(max(0.0, began_s + offset_s - time.monotonic()))
        workload.enter_phase(index, began_s + offset_s)


async def _end(tasks: dict[str, asyncio.Task[None]], *names: str) -> None:
    """Cancel tasks, and wait until they have ended."""
    if begun := [tasks[name] for name in names if name in tasks]:
        for task in begun:
            task.cancel()
        await asyncio.wait(begun)


def _fail(
    errors: list[AgentError],
    orders: asyncio.Queue[tuple[float, ToWorker]],
    loop: asyncio.AbstractEventLoop,
    context: dict[str, Any],
) -> None:
    """Handle an exception that no task waits for.

    A configuration error ends the worker with its text, and so does a thread or task that ended unexpectedly.
    """
    error = context.get("exception")
    if isinstance(error, ConfigurationError):
        errors.append(error)
    elif ENDED in context and isinstance(error, BaseException):
        errors.append(PartEnded(context[ENDED], error))
    else:
        loop.default_exception_handler(context)
        return
    orders.put_nowait((0.0, Stop()))


async def _cut_seconds(workload: Workload, recorder: Recorder, began_s: float, sender: _Sender) -> None:
    """Send what was measured, at the end of each second; the one under way at the end is sent, too."""
    second = 0

    def cut() -> None:
        sender.send(recorder.cut(second, workload.gauges()))

    try:
        while True:
            await asyncio.sleep(max(0.0, began_s + second + 1 - time.monotonic()))
            # A loop that stood still for a while has several seconds to close; what it measured is in the first.
            while time.monotonic() >= began_s + second + 1:
                cut()
                second += 1
    finally:
        cut()


class _Sender:
    """The thread that sends messages to the coordinator.

    Args:
        pipe: to the coordinator; only this thread sends over it.

    Attributes:
        probe: its health goes with each second.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._messages: queue.SimpleQueue[FromWorker | Cut | None] = queue.SimpleQueue()
        self.probe: HealthProbe | None = None
        self._wall_clock = WallClock()
        self._thread = make_thread(self._run, "sender", self._fail)
        self._thread.start()

    def send(self, message: FromWorker | Cut) -> None:
        """Send a message, or what a second measured. From any thread."""
        self._messages.put(message)

    def end(self) -> None:
        """Send everything that is left, then stop."""
        self._messages.put(None)
        self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # the coordinator is gone: the loop ends the process
            while True:
                try:
                    message = self._messages.get(timeout=_PULSE_S)
                except queue.Empty:
                    message = Sign.ALIVE
                if message is None:
                    return
                if not isinstance(message, Cut):
                    self._pipe.send(message)
                    continue
                self._pipe.send(message.measured(self.probe.take()) if self.probe else message.measured())
                if (why := self._wall_clock.new_jump()) is not None:
                    self._pipe.send(Problem(why))

    def _fail(self, name: str, error: BaseException) -> None:
        """End the process, since nothing can be sent any more: its part of the run becomes a gap."""
        with contextlib.suppress(Exception):  # it is the pipe that does not work
            self._pipe.send(Problem(str(PartEnded(name, error))))
        os._exit(_LOST_SENDER)


class WallClock:
    """Notices a jump of this machine's wall clock.

    Args:
        wall: seconds since the epoch.
        monotonic: a clock that is never set.
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
        way, cause = ("ahead", "it was set, or the machine slept") if set_s > 0 else ("back", "it was set")
        return f"the clock of its machine jumped {way} by {abs(set_s):.0f} s in the middle of the run: {cause}"
