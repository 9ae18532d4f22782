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
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import uvloop

from agent.errors import AgentError, ConfigurationError
from simulator.fleet.engine.preflight import raise_descriptor_limit
from simulator.fleet.metrics.health import HealthProbe
from simulator.fleet.metrics.recorder import Cut, Recorder
from simulator.fleet.record import GeneratorHealth
from simulator.fleet.run.clocks import WallClock, apart
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
from simulator.fleet.run.workers import Link
from simulator.fleet.workload.base import Leftover, Workload
from simulator.watched import ENDED, PartEnded, describe, into_loop, make_thread, start_task

_PULSE_S: Final = 1.0
_FAILED: Final = 1
_LOST_COORDINATOR: Final = 70
_LOST_SENDER: Final = 71


class Job(Protocol):
    """What a worker is given, pickled: it makes the play."""

    def make(self, recorder: Recorder) -> Workload:
        """Build everything; called in the running loop. Nothing is sent yet.

        Raises:
            AgentError: it cannot be played; the text goes to the coordinator.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Second:
    cut: Cut


def work(number: int, job: Job, link: Link) -> int:
    """A worker's whole life.

    Args:
        number: of this worker.
        job: what to play.
        link: to the coordinator.

    Returns:
        The process's exit code.
    """
    raise_descriptor_limit()
    sender = _Sender(number, link)
    sender.start()
    try:
        uvloop.run(_perform(number, job, link, sender))
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


async def _perform(number: int, job: Job, link: Link, sender: _Sender) -> None:
    loop = asyncio.get_running_loop()
    orders: asyncio.Queue[ToWorker] = asyncio.Queue()
    recorder = Recorder()
    play = job.make(recorder)
    faults: list[AgentError] = []
    loop.set_exception_handler(partial(_fail, faults, orders))
    probe = HealthProbe(loop)
    sender.watch(probe)
    _listen(link, loop, orders.put_nowait)
    sender.send(Ready(number, play.devices, apart()))
    seconds: asyncio.Task[None] | None = None
    phases: asyncio.Task[None] | None = None
    drain: asyncio.Task[None] | None = None
    try:
        while not isinstance(order := await orders.get(), Stop) and not faults:
            match order:
                case Begin(at_s):
                    play.begin(at_s)
                    probe.begin(at_s)
                    seconds = start_task(_cut_seconds(play, recorder, at_s, sender), "seconds")
                case EnterPhases():
                    phases = start_task(enter_phases(play, order), "phases")
                case Drain(from_s, until_s) if drain is None:
                    _cancel(phases)
                    recorder.drain(from_s)
                    # A task, so that another order is heard meanwhile.
                    drain = start_task(_drain(number, play, order, sender), "drain")
                case Drain(_, until_s):  # the run is ended in haste
                    loop.call_later(max(0.0, until_s - time.monotonic()), drain.cancel)
    finally:
        _cancel(phases)
        if drain is not None:
            drain.cancel()
            await asyncio.wait([drain])
        try:
            summary = await play.close()
        except Exception:
            if not faults:  # else it follows from them
                raise
        finally:
            if seconds is not None:
                seconds.cancel()
                await asyncio.wait([seconds])
            probe.stop()
    if faults:
        raise faults[0]
    sender.send(Finished(number, summary))


async def _drain(number: int, play: Workload, order: Drain, sender: _Sender) -> None:
    left = Leftover()
    try:
        left = await play.drain(order.from_s, order.until_s)
    finally:
        sender.send(Drained(number, left.names, left.count))


async def enter_phases(play: Workload, order: EnterPhases) -> None:
    """Let each phase begin at its time."""
    for index, at_s in enumerate(order.at_s, order.index):
        await asyncio.sleep(max(0.0, at_s - time.monotonic()))
        play.enter_phase(index, at_s)


def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()


def _fail(
    faults: list[AgentError],
    orders: asyncio.Queue[ToWorker],
    loop: asyncio.AbstractEventLoop,
    context: dict[str, Any],
) -> None:
    """Handle an exception that no task waits for.

    What a person can mend ends the worker, with its sentence; so does the end of a thread or task.
    """
    error = context.get("exception")
    if isinstance(error, ConfigurationError):
        faults.append(error)
        orders.put_nowait(Stop())
    elif ENDED in context and isinstance(error, BaseException):
        faults.append(PartEnded(context[ENDED], error))
        orders.put_nowait(Stop())
    else:
        loop.default_exception_handler(context)


async def _cut_seconds(play: Workload, recorder: Recorder, began_s: float, sender: _Sender) -> None:
    """At the end of each second: what was measured in it. The one under way at the end is sent, too."""
    second = 0

    def cut() -> None:
        for name, value in play.gauges().items():
            recorder.gauge(name, value)
        sender.measure(recorder.cut(second))

    try:
        while True:
            await asyncio.sleep(max(0.0, began_s + second + 1 - time.monotonic()))
            # A loop that stood still for a while has several seconds to close; what it measured is in the first.
            while time.monotonic() >= began_s + second + 1:
                cut()
                second += 1
    finally:
        cut()


def _listen(link: Link, loop: asyncio.AbstractEventLoop, take: Callable[[ToWorker], None]) -> None:
    """Hand the coordinator's orders to the loop; a coordinator that is gone ends this process."""

    def read() -> None:
        while True:
            try:
                order = link.receive()
            except (EOFError, OSError):
                os._exit(_LOST_COORDINATOR)
            try:
                loop.call_soon_threadsafe(take, order)
            except RuntimeError:
                return  # the loop has ended by itself, with a fault that the coordinator hears of
            if isinstance(order, Stop):
                return

    make_thread(read, "orders", into_loop(loop)).start()


class _Sender:
    """The thread that sends messages to the coordinator.

    Args:
        worker: this worker's number.
        link: to the coordinator; only this thread sends over it.
    """

    def __init__(self, worker: int, link: Link) -> None:
        self._worker = worker
        self._link = link
        self._said: queue.SimpleQueue[FromWorker | _Second | None] = queue.SimpleQueue()
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

    def send(self, message: FromWorker) -> None:
        """Send a message. From any thread."""
        self._said.put(message)

    def measure(self, cut: Cut) -> None:
        """Send what a second measured. From any thread."""
        self._said.put(_Second(cut))

    def end(self) -> None:
        """Send everything that is left, then stop."""
        self._said.put(None)
        self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # the coordinator is gone, and the thread that listens ends the process
            while True:
                try:
                    said = self._said.get(timeout=_PULSE_S)
                except queue.Empty:
                    self._link.send(Heartbeat(self._worker))
                    continue
                if said is None:
                    return
                self._link.send(self._measured(said.cut) if isinstance(said, _Second) else said)
                if isinstance(said, _Second) and (why := self._wall_clock.look()) is not None:
                    self._link.send(Problem(self._worker, f"worker {self._worker}: {why}"))

    def _fail(self, name: str, error: BaseException) -> None:
        """Nothing can be sent any more but this: the process ends, and its part of the run is a gap."""
        with contextlib.suppress(Exception):  # it is the link that does not work
            self._link.send(Problem(self._worker, f"worker {self._worker}: {PartEnded(name, error)}"))
        os._exit(_LOST_SENDER)

    def _measured(self, cut: Cut) -> Measured:
        process = self._probe.take() if self._probe is not None else GeneratorHealth()
        return Measured(self._worker, cut.measured(process))
