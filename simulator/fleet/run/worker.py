"""A worker process: one loop that makes the load, and one thread beside it that tells the conductor.

The thread carries the heartbeat, so that a loop under load is never taken for a dead one; it also turns each second's
numbers into histograms, so that the loop does not have to.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final, Protocol

import uvloop

from agent.errors import AgentError, ConfigurationError
from simulator.fleet.engine.preflight import raise_descriptor_limit
from simulator.fleet.metrics.health import HealthProbe, ProcessHealth
from simulator.fleet.metrics.recorder import Cut, Recorder
from simulator.fleet.play.base import Play
from simulator.fleet.run.messages import (
    Begin,
    Drain,
    Drained,
    EnterPhase,
    Finished,
    FromWorker,
    Measured,
    Pulse,
    Ready,
    Stop,
    ToWorker,
    Trouble,
)

_PULSE_S: Final = 1.0
_LOST_CONDUCTOR: Final = 70


class Job(Protocol):
    """What a worker is given, pickled: it makes the play."""

    def make(self, recorder: Recorder) -> Play:
        """Build everything; called in the running loop. Nothing is sent yet.

        Raises:
            AgentError: it cannot be played; the text goes to the conductor.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Second:
    cut: Cut


def work(number: int, job: Job, pipe: Connection) -> None:
    """A worker's whole life.

    Args:
        number: of this worker.
        job: what to play.
        pipe: to the conductor.
    """
    raise_descriptor_limit()
    teller = _Teller(number, pipe)
    teller.start()
    try:
        uvloop.run(_perform(number, job, pipe, teller))
    except AgentError as error:
        teller.tell(Trouble(number, str(error), fatal=True))
    except Exception as error:
        # The run tells of it and ends as inconclusive; the traceback is for whoever mends this program.
        teller.tell(Trouble(number, f"worker {number} failed: {error!r}", fatal=True))
        raise
    finally:
        teller.end()


async def _perform(number: int, job: Job, pipe: Connection, teller: _Teller) -> None:
    loop = asyncio.get_running_loop()
    orders: asyncio.Queue[ToWorker] = asyncio.Queue()
    recorder = Recorder(number)
    play = job.make(recorder)
    faults: list[ConfigurationError] = []
    loop.set_exception_handler(partial(_fail, faults, orders))
    probe = HealthProbe(loop)
    teller.watch(probe)
    _listen(pipe, loop, orders.put_nowait)
    teller.tell(Ready(number, play.devices))
    seconds: asyncio.Task[None] | None = None
    try:
        while not isinstance(order := await orders.get(), Stop) and not faults:
            match order:
                case Begin(at_s):
                    play.begin(at_s)
                    seconds = asyncio.create_task(_cut_seconds(play, recorder, at_s, teller), name="seconds")
                case EnterPhase(index, at_s):
                    play.enter_phase(index, at_s)
                case Drain(from_s, until_s):
                    recorder.drain(from_s)
                    left = await play.drain(from_s, until_s)
                    teller.tell(Drained(number, left.names, left.count))
    finally:
        summary = await play.close()
        if seconds is not None:
            seconds.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await seconds
        probe.stop()
    if faults:
        raise faults[0]
    teller.tell(Finished(number, summary))


def _fail(
    faults: list[ConfigurationError],
    orders: asyncio.Queue[ToWorker],
    loop: asyncio.AbstractEventLoop,
    context: dict[str, Any],
) -> None:
    """Something went wrong where nobody waits for it; what a person can mend ends the worker, with its sentence."""
    error = context.get("exception")
    if isinstance(error, ConfigurationError):
        faults.append(error)
        orders.put_nowait(Stop())
    else:
        loop.default_exception_handler(context)


async def _cut_seconds(play: Play, recorder: Recorder, began_s: float, teller: _Teller) -> None:
    """At the end of each second: what was measured in it. The one under way at the end is told, too."""
    second = 0

    def cut() -> None:
        for name, value in play.gauges().items():
            recorder.gauge(name, value)
        teller.measure(recorder.cut(second))

    try:
        while True:
            await asyncio.sleep(max(0.0, began_s + second + 1 - time.monotonic()))
            # A loop that stood still for a while has several seconds to close; what it measured is in the first.
            while time.monotonic() >= began_s + second + 1:
                cut()
                second += 1
    finally:
        cut()


def _listen(pipe: Connection, loop: asyncio.AbstractEventLoop, take: Callable[[ToWorker], None]) -> None:
    """Hand the conductor's orders to the loop; a conductor that is gone ends this process."""

    def read() -> None:
        try:
            while True:
                order: ToWorker = pipe.recv()
                loop.call_soon_threadsafe(take, order)
                if isinstance(order, Stop):
                    return
        except (EOFError, OSError):
            os._exit(_LOST_CONDUCTOR)
        except RuntimeError:
            return  # the loop has ended by itself, with a fault that the conductor hears of

    threading.Thread(target=read, name="orders", daemon=True).start()


class _Teller:
    """The thread that talks to the conductor.

    Args:
        worker: this worker's number.
        pipe: to the conductor; only this thread writes to it.
    """

    def __init__(self, worker: int, pipe: Connection) -> None:
        self._worker = worker
        self._pipe = pipe
        self._said: queue.SimpleQueue[FromWorker | _Second | None] = queue.SimpleQueue()
        self._probe: HealthProbe | None = None
        self._thread = threading.Thread(target=self._run, name="teller", daemon=True)

    def start(self) -> None:
        """Begin to talk."""
        self._thread.start()

    def watch(self, probe: HealthProbe) -> None:
        """From now on each second comes with this health; to be called in the loop's thread."""
        probe.start()
        self._probe = probe

    def tell(self, message: FromWorker) -> None:
        """Say something. From any thread."""
        self._said.put(message)

    def measure(self, cut: Cut) -> None:
        """Say what a second measured. From any thread."""
        self._said.put(_Second(cut))

    def end(self) -> None:
        """Say everything that is left, and no more."""
        self._said.put(None)
        self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # the conductor is gone, and the thread that listens ends the process
            while True:
                try:
                    said = self._said.get(timeout=_PULSE_S)
                except queue.Empty:
                    self._pipe.send(Pulse(self._worker))
                    continue
                if said is None:
                    return
                self._pipe.send(self._measured(said.cut) if isinstance(said, _Second) else said)

    def _measured(self, cut: Cut) -> Measured:
        process = self._probe.take() if self._probe is not None else ProcessHealth()
        return Measured(self._worker, cut.second, cut.delta(process))
