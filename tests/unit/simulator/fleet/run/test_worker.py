"""A worker, in a thread instead of a process: what goes wrong in its loop ends it, and it leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import SimpleNamespace

import pytest

from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.record import Second
from simulator.fleet.run import worker as worker_module
from simulator.fleet.run.worker import Begin, Drain, FromWorker, Problem, Sign, Stop, WallClock, work
from simulator.fleet.workload.base import Leftover, WorkloadSummary


@dataclass
class Piece:
    """A play without load, whose drain takes a while."""

    drains_s: float = 0.0
    has_drained: threading.Event = field(default_factory=threading.Event)

    def make(self, recorder: Recorder) -> Piece:
        del recorder
        return self

    def begin(self, at_s: float) -> None:
        """Nothing begins."""

    def gauges(self) -> Mapping[str, float]:
        return {}

    async def drain(self, from_s: float, until_s: float) -> Leftover:
        del from_s, until_s
        self.has_drained.set()
        await asyncio.sleep(self.drains_s)
        return Leftover()

    async def close(self) -> WorkloadSummary:
        return WorkloadSummary()


def performed(piece: Piece, *orders: object) -> list[FromWorker]:
    ours, theirs = Pipe()
    worker = threading.Thread(target=work, args=(piece, theirs))
    worker.start()
    told = [received(ours)]
    for order in orders:
        if isinstance(order, threading.Event):
            assert order.wait(10)
        else:
            ours.send(order)
    while not isinstance(told[-1], WorkloadSummary | Problem):
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
def test_a_drain_that_takes_long_is_cut_off_and_reports_nothing_as_left(more):
    piece = Piece(drains_s=3600.0)
    told = performed(piece, Begin(0.0), Drain(0.0, 3600.0), piece.has_drained, *more, Stop())
    rest = [message for message in told if not isinstance(message, Second) and message is not Sign.ALIVE]
    assert rest == [Sign.READY, WorkloadSummary()]


def test_a_worker_whose_machines_clock_jumps_says_so_with_the_second_in_which_it_did(monkeypatch):
    monkeypatch.setattr(worker_module, "WallClock", lambda: SimpleNamespace(new_jump=lambda: "the clock jumped"))
    told = performed(Piece(), Begin(0.0), Drain(0.0, 1.0), Stop())
    assert isinstance(told[-2], Second)
    assert told[-1] == Problem("the clock jumped")


@pytest.mark.parametrize(
    ("jump_s", "text"),
    [
        (130.0, "jumped ahead by 130 s in the middle of the run: it was set, or the machine slept"),
        (-130.0, "jumped back by 130 s in the middle of the run: it was set"),
    ],
)
def test_a_wall_clock_that_jumps_is_reported_once(jump_s, text):
    now = {"wall": 1_767_225_600.0, "monotonic": 50.0}
    clock = WallClock(lambda: now["wall"], lambda: now["monotonic"])
    now = {"wall": now["wall"] + 600, "monotonic": 650.0}
    assert clock.new_jump() is None
    now["wall"] += jump_s
    assert clock.new_jump() == f"the clock of its machine {text}"
    now["wall"] += jump_s
    assert clock.new_jump() is None
