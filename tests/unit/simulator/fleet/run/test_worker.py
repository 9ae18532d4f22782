"""A worker, in a thread instead of a process: what goes wrong in its loop ends it, and it leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from agent.errors import ConfigurationError
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.run.messages import Begin, Drain, Finished, FromWorker, Problem, Ready, Stop
from simulator.fleet.run.worker import work
from simulator.fleet.workload.base import Leftover, WorkloadSummary

SENTENCE = "telemetry(device 3, 7.000): 'one' is None, and has to be a number"


@dataclass
class Piece:
    """A play that fails, or does not, in a callback that nobody waits for."""

    fails: bool

    def make(self, recorder: Recorder) -> Piece:
        self.recorder = recorder
        return self

    @property
    def devices(self) -> int:
        return 1

    def begin(self, at_s: float) -> None:
        self.began_s = at_s
        asyncio.get_running_loop().call_soon(self._go)

    def _go(self) -> None:
        if self.fails:
            raise ConfigurationError([SENTENCE], "readings.py")

    def enter_phase(self, index: int, at_s: float) -> None: ...

    def gauges(self) -> Mapping[str, float]:
        return {}

    async def drain(self, from_s: float, until_s: float) -> Leftover:
        await asyncio.sleep(0)
        self.recorder.record("http.poll", "ok", intended_s=from_s - 1, sent_s=from_s - 1, now_s=until_s)
        return Leftover()

    async def close(self) -> WorkloadSummary:
        return WorkloadSummary()


def performed(piece: Piece, *orders: object) -> list[FromWorker]:
    ours, theirs = Pipe()
    worker = threading.Thread(target=work, args=(0, piece, theirs))
    worker.start()
    told = [received(ours)]
    for order in orders:
        ours.send(order)
    while not isinstance(told[-1], Finished | Problem):
        told.append(received(ours))
    ours.send(Stop())
    worker.join(10)
    assert not worker.is_alive()
    return told


def received(pipe: Connection) -> FromWorker:
    assert pipe.poll(10)
    message: FromWorker = pipe.recv()
    return message


def test_a_program_that_says_nonsense_in_the_middle_of_a_run_ends_its_worker_with_the_sentence():
    told = performed(Piece(fails=True), Begin(time.monotonic()))
    assert isinstance(told[0], Ready)
    assert isinstance(told[-1], Problem)
    assert SENTENCE in told[-1].sentence


def test_a_worker_leaves_no_callback_behind_and_tells_what_belongs_to_the_phases():
    before = list(gc.callbacks)
    now_s = time.monotonic()
    told = performed(Piece(fails=False), Begin(now_s), Drain(now_s, now_s + 1), Stop())
    assert isinstance(told[-1], Finished)
    late = [message.delta.late for message in told if hasattr(message, "delta") and message.delta.late]
    assert [set(each) for each in late] == [{"http.poll"}]
    assert gc.callbacks == before
