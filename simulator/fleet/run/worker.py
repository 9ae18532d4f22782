"""A worker process: one loop that makes the load, and one thread beside it that reports to the coordinator.

The thread carries the heartbeat, so that a loop under load is never taken for a dead one; it also turns each second's
numbers into histograms, so that the loop does not have to.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final, Protocol

import uvloop

from agent.errors import AgentError, ConfigurationError
from simulator.fleet.engine.preflight import raise_descriptor_limit
from simulator.fleet.metrics.health import HealthProbe
from simulator.fleet.metrics.recorder import Cut, Recorder
from simulator.fleet.run.clocks import WallClock
from simulator.fleet.run.messages import (
    Begin,
    Drain,
    Drained,
    EnterPhases,
    Finished,
    FromWorker,
    Heartbeat,
    Measured,
    Problem,
    Ready,
    Stop,
    ToWorker,
)
from simulator.fleet.workload.base import Leftover, Workload
from simulator.watched import ENDED, PartEnded, describe, into_loop, make_thread, start_task

_PULSE_S: Final = 1.0
_FAILED: Final = 1
_LOST_COORDINATOR: Final = 70
_LOST_SENDER: Final = 71


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
        for name, value in play.gauges().items():
            recorder.gauge(name, value)
        sender.send(recorder.cut(second))

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
