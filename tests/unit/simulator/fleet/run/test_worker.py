"""A worker, in a thread instead of a process: what goes wrong in its loop ends it, and it leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import SimpleNamespace

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.run import worker as worker_module
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
)
from simulator.fleet.run.worker import work
from simulator.fleet.workload.base import Leftover, WorkloadSummary

LAST_PHASE = 4
SENTENCE = "value() returned None, and has to return a number"


@dataclass
class Piece:
    """A play that fails, or does not, in a callback that nobody waits for."""

    fails: bool
    drains_s: float = 0.0
    entered: list[tuple[int, float, float]] = field(default_factory=list)
    has_entered: threading.Event = field(default_factory=threading.Event)
    has_drained: threading.Event = field(default_factory=threading.Event)

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

    def enter_phase(self, index: int, at_s: float) -> None:
        self.entered.append((index, at_s, time.monotonic()))
        if index == LAST_PHASE:
            self.has_entered.set()

    def gauges(self) -> Mapping[str, float]:
        return {}

    async def drain(self, from_s: float, until_s: float) -> Leftover:
        await asyncio.sleep(0)
        self.recorder.record("http.poll", "ok", intended_s=from_s - 1, sent_s=from_s - 1, now_s=until_s)
        self.has_drained.set()
        await asyncio.sleep(self.drains_s)
        return Leftover()

    async def close(self) -> WorkloadSummary:
        return WorkloadSummary()


def performed(piece: Piece, *orders: object) -> list[FromWorker]:
    ours, theirs = Pipe()
    worker = threading.Thread(target=work, args=(0, piece, theirs))
    worker.start()
    told = [received(ours)]
    for order in orders:
        if isinstance(order, threading.Event):
            assert order.wait(10)
        else:
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


@pytest.mark.parametrize("more", [(), (Drain(0.0, 0.0),)], ids=["stop", "haste"])
def test_a_drain_that_takes_long_is_ended_by_the_next_order(more):
    piece = Piece(fails=False, drains_s=3600.0)
    told = performed(piece, Begin(0.0), Drain(0.0, 3600.0), piece.has_drained, *more, Stop())
    assert [type(message) for message in told if not isinstance(message, Measured | Heartbeat)] == [
        Ready,
        Drained,
        Finished,
    ]


def test_phases_begin_at_their_times_without_another_message():
    piece = Piece(fails=False)
    times = EnterPhases(2, (0.0, 0.02, 0.04))
    told = performed(piece, Begin(0.1), times, piece.has_entered, Stop())
    assert isinstance(told[-1], Finished)
    due = [(index, due_s - piece.began_s) for index, due_s, _ in piece.entered]
    assert due == [(2, 0.0), (3, pytest.approx(0.02)), (4, pytest.approx(0.04))]
    assert all(entered_s > due_s - 0.002 for _, due_s, entered_s in piece.entered), "a loop waits to the millisecond"


def test_a_worker_whose_machines_clock_jumps_says_so_with_the_second_in_which_it_did(monkeypatch):
    monkeypatch.setattr(worker_module, "WallClock", lambda: SimpleNamespace(new_jump=lambda: "the clock jumped"))
    told = performed(Piece(fails=False), Begin(0.0), Drain(0.0, 1.0), Stop())
    assert isinstance(told[-2], Measured)
    assert told[-1] == Problem(0, "worker 0: the clock jumped")
