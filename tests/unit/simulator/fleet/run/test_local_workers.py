from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable

import pytest

from simulator.fleet.run import local_workers as module
from simulator.fleet.run.inbox import Inbox
from simulator.fleet.run.local_workers import SILENCE_S, LocalWorkers, WorkerLost
from simulator.fleet.run.messages import Begin, Finished, FromWorker, Problem, Ready, Stop
from tests.unit.simulator.fleet.run.worker_jobs import die, hang_up, ignore, stammer, talk


def listen(
    workers: LocalWorkers, enough: Callable[[list[FromWorker | WorkerLost]], bool]
) -> list[FromWorker | WorkerLost]:
    """What is said until it is enough."""
    heard: list[FromWorker | WorkerLost] = []
    for _ in range(1200):
        heard += workers.receive(0.1)
        if enough(heard):
            return heard
    pytest.fail(f"only this was said: {heard}")


def test_every_worker_gets_its_job_hears_the_conductor_and_has_the_last_word():
    with LocalWorkers(talk, ["left", "middle", "right"]) as workers:
        ready = listen(workers, lambda heard: len(heard) == 3)
        assert {(message.worker, message.devices) for message in ready if isinstance(message, Ready)} == {
            (0, 4),
            (1, 6),
            (2, 5),
        }
        workers.send(Begin(2.0))
        said = listen(workers, lambda heard: len(heard) == 3)
        assert {m.sentence for m in said if isinstance(m, Problem)} == {"left at 2", "middle at 2", "right at 2"}
        workers.send(Stop())
        last = listen(workers, lambda heard: len(heard) == 3)
        assert all(isinstance(message, Finished) for message in last)
        assert workers.living == ()


@pytest.mark.parametrize(
    ("job", "reason"), [(int(signal.SIGKILL), "ended with signal 9"), (0, "ended with exit code 7")]
)
def test_a_worker_that_ends_is_gone_and_the_others_go_on(job, reason):
    with LocalWorkers(die, [job]) as workers:
        heard = listen(workers, lambda heard: any(isinstance(message, WorkerLost) for message in heard))
        gone = heard[-1]
        assert isinstance(gone, WorkerLost)
        assert reason in gone.reason
        assert workers.living == ()
        workers.send(Stop())  # nobody is there to hear it, and that is no error


def test_how_a_worker_ended_is_told_once_it_has_however_long_that_takes():
    """The kernel closes what a dying process had open first; on a busy machine the rest comes much later."""
    with LocalWorkers(hang_up, [None]) as workers:
        listen(workers, lambda heard: len(heard) == 1)
        assert [list(workers.receive(0.1)) for _ in range(3)] == [[], [], []]
        assert workers.living == (0,)
        (pid,) = workers.pids
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        (gone,) = listen(workers, bool)
        assert isinstance(gone, WorkerLost)
        assert gone.reason == "its process ended with signal 9"


def test_a_worker_that_hung_up_and_does_not_end_is_ended():
    now_s = 0.0
    with LocalWorkers(hang_up, [None], now=lambda: now_s) as workers:
        listen(workers, lambda heard: len(heard) == 1)
        now_s = SILENCE_S + 1
        (gone,) = listen(workers, bool)
        assert isinstance(gone, WorkerLost)
        assert "not heard" in gone.reason


def test_a_worker_that_is_not_heard_is_ended_and_gone():
    now_s = 0.0
    with LocalWorkers(ignore, [None], now=lambda: now_s) as workers:
        listen(workers, lambda heard: len(heard) == 1)
        now_s = SILENCE_S + 1
        heard = listen(workers, bool)
        assert isinstance(heard[0], WorkerLost)
        assert "not heard" in heard[0].reason


def test_half_a_message_holds_up_nobody_and_its_worker_is_ended_when_the_rest_does_not_come():
    now_s = 0.0
    with LocalWorkers(stammer, [None], now=lambda: now_s) as workers:
        listen(workers, lambda heard: len(heard) == 1)
        assert [list(workers.receive(0.1)) for _ in range(3)] == [[], [], []]
        now_s = SILENCE_S + 1
        (gone,) = listen(workers, bool)
        assert isinstance(gone, WorkerLost)
        assert "not heard" in gone.reason


def test_a_message_that_comes_in_pieces_is_read_once_it_is_whole():
    ours, theirs = multiprocessing.Pipe()
    inbox = Inbox(ours)
    message = ("a message", list(range(1000)))
    body = pickle.dumps(message)
    sent = len(body).to_bytes(4, "big") + body
    for begin in range(0, len(sent), 100):
        assert list(inbox.messages()) == []
        os.write(theirs.fileno(), sent[begin : begin + 100])
    assert list(inbox.messages()) == [message]
    theirs.send(message)
    theirs.close()
    found = inbox.messages()
    assert next(found) == message
    with pytest.raises(EOFError):
        next(found)
    inbox.close()
    ours.close()


def test_leaving_ends_also_a_worker_that_does_not_want_to(monkeypatch):
    monkeypatch.setattr(module, "_END_S", 0.2)
    with LocalWorkers(ignore, [None]) as workers:
        listen(workers, lambda heard: len(heard) == 1)
        (pid,) = workers.pids
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
