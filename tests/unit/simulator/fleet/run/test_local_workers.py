from __future__ import annotations

import errno
import multiprocessing
import os
import signal
from collections.abc import Callable

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.run.workers import SILENCE_S, Begin, FromWorker, LocalWorkers, Problem, WorkerLost
from tests.support.workers_to_start import talk
from tests.unit.simulator.fleet.run.worker_jobs import ignore, stammer


def listen(workers: LocalWorkers, enough: Callable[[list[FromWorker]], bool]) -> list[FromWorker]:
    """What is said until it is enough."""
    heard: list[FromWorker] = []
    for _ in range(1200):
        heard += workers.receive(0.1)
        if enough(heard):
            return heard
    pytest.fail(f"only this was said: {heard}")


def test_half_a_message_holds_up_nobody_and_its_worker_is_ended_when_the_rest_does_not_come():
    now_s = 0.0
    with LocalWorkers(stammer, now=lambda: now_s) as workers:
        workers.start([None])
        listen(workers, lambda heard: len(heard) == 1)
        assert [list(workers.receive(0.1)) for _ in range(3)] == [[], [], []]
        now_s = SILENCE_S + 1
        (gone,) = listen(workers, bool)
        assert isinstance(gone, WorkerLost)
        assert "not heard" in gone.reason


def test_a_terminal_that_is_closed_is_the_coordinators_business_as_ctrl_c_is():
    with LocalWorkers(talk) as workers:
        workers.start(["one"])
        listen(workers, bool)
        (pid,) = workers.pids
        assert pid is not None
        os.kill(pid, signal.SIGHUP)
        os.kill(pid, signal.SIGINT)
        workers.send(0, Begin(1.0))
        assert listen(workers, bool) == [Problem(0, "one at 1")]


def test_a_process_that_the_system_refuses_is_one_sentence_with_the_fix(monkeypatch):
    def refuse() -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(multiprocessing.get_context("spawn"), "Pipe", refuse)
    with (
        LocalWorkers(ignore) as workers,
        pytest.raises(
            ConfigurationError, match=r"worker 0 .* \(Resource temporarily unavailable\): write fewer workers"
        ),
    ):
        workers.start([None])
