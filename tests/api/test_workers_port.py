"""The port of a run's workers: processes of this machine, and where Ray is (``make cluster-test``) of a cluster."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.run.local_workers import SILENCE_S, LocalWorkers, Work
from simulator.fleet.run.ray_workers import RayWorkers
from simulator.fleet.run.worker import Begin, FromWorker, Lost, Problem, Sign, Stop
from simulator.fleet.workload.base import WorkloadSummary
from tests.support.processes import is_gone
from tests.support.workers_to_start import LARGE, MANY, a_job, die, flood, stammer, stay, talk

Heard = list[tuple[int, FromWorker]]
Open = Callable[[Work], LocalWorkers | RayWorkers]


@pytest.fixture(scope="module", params=["local", *(["cluster"] if find_spec("ray") else [])])
def open_workers(request) -> Iterator[Open]:
    if request.param == "local":
        yield LocalWorkers
        return
    from tests.support.cluster_running import open_workers as opened

    with opened(2, 2) as open_on_cluster:
        yield open_on_cluster


def listen(workers: LocalWorkers | RayWorkers, enough: Callable[[Heard], bool]) -> Heard:
    """What is said until it is enough."""
    heard: Heard = []
    for _ in range(1200):
        heard += workers.receive(0.1)
        if enough(heard):
            return heard
    pytest.fail(f"only this was said: {heard}")


def count(number: int) -> Callable[[Heard], bool]:
    return lambda heard: len(heard) == number


def sentences(heard: Heard) -> list[tuple[int, str]]:
    """The problems among it."""
    return [(worker, message.sentence) for worker, message in heard if isinstance(message, Problem)]


def test_every_worker_gets_its_job_and_what_it_alone_is_sent_and_has_the_last_word(open_workers):
    with open_workers(talk) as workers:
        workers.start([a_job("left"), a_job("middle"), a_job("right")])
        assert workers.living == (0, 1, 2)
        assert set(listen(workers, count(3))) == {(worker, Sign.READY) for worker in range(3)}
        for worker in workers.living:
            workers.send(worker, Begin(worker + 2.0))
        assert set(sentences(listen(workers, count(3)))) == {(0, "left at 2"), (1, "middle at 3"), (2, "right at 4")}
        before_s = time.monotonic()
        assert list(workers.receive(0.2)) == []
        assert time.monotonic() - before_s < 30
        for worker in workers.living:
            workers.send(worker, Stop())
        last = dict(listen(workers, count(3)))
        assert last == {
            worker: WorkloadSummary(success_note=text) for worker, text in enumerate(("LEFT", "MIDDLE", "RIGHT"))
        }
        assert workers.living == ()


def test_messages_come_once_each_in_their_order_however_many_and_long_and_none_after_the_last_one(open_workers):
    with open_workers(flood) as workers:
        workers.start([a_job(), a_job()])
        heard = listen(workers, lambda _heard: workers.living == ())
        for worker in range(2):
            said = [sentence for number, sentence in sentences(heard) if number == worker]
            assert said == [*map(str, range(MANY)), "x" * LARGE]
        assert list(workers.receive(0.1)) == []


@pytest.mark.parametrize(
    ("job", "reason"), [(int(signal.SIGKILL), "ended with signal 9"), (0, "ended with exit code 7")]
)
def test_a_worker_that_ends_is_lost_with_the_reason_and_the_others_go_on(open_workers, job, reason):
    with open_workers(die) as workers:
        workers.start([a_job("-1"), a_job(str(job))])
        heard = dict(listen(workers, lambda heard: len(dict(heard)) == 2 and isinstance(dict(heard)[1], Lost)))
        assert heard[0] is Sign.ALIVE
        assert reason in heard[1].reason
        assert workers.living == (0,)
        workers.send(1, Stop())  # nobody is there to hear it, and that is no error
        assert list(workers.receive(0.1)) == []


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_leaving_ends_every_worker_whatever_it_does(open_workers, error):
    pids: Sequence[int] = ()
    with pytest.raises(error) if error else contextlib.nullcontext(), open_workers(stay) as workers:
        workers.start([a_job(), a_job()])
        pids = [int(sentence) for _, sentence in sentences(listen(workers, count(2)))]
        assert not any(map(is_gone, pids))
        assert os.getpid() not in pids
        if error:
            raise error
    assert all(map(is_gone, pids))


def test_workers_that_were_never_started_leave_nothing_to_end(open_workers):
    with open_workers(talk) as workers:
        assert workers.living == ()
        assert list(workers.receive(0.0)) == []


# --- processes of this machine ---


def test_half_a_message_holds_up_nobody_and_its_worker_is_ended_when_the_rest_does_not_come():
    now_s = 0.0
    with LocalWorkers(stammer, now=lambda: now_s) as workers:
        workers.start([a_job()])
        listen(workers, bool)
        assert [list(workers.receive(0.1)) for _ in range(3)] == [[], [], []]
        now_s = SILENCE_S + 1
        ((_, gone),) = listen(workers, bool)
        assert isinstance(gone, Lost)
        assert "not heard" in gone.reason


def test_a_terminal_that_is_closed_is_the_coordinators_business_as_ctrl_c_is():
    with LocalWorkers(talk) as workers:
        workers.start([a_job("one")])
        listen(workers, bool)
        pid = multiprocessing.active_children()[0].pid
        os.kill(pid, signal.SIGHUP)
        os.kill(pid, signal.SIGINT)
        workers.send(0, Begin(1.0))
        assert listen(workers, bool) == [(0, Problem("one at 1"))]


def test_a_process_that_the_system_refuses_is_one_sentence_with_the_fix(monkeypatch):
    def refuse() -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(multiprocessing.get_context("spawn"), "Pipe", refuse)
    with (
        LocalWorkers(talk) as workers,
        pytest.raises(
            ConfigurationError, match=r"worker 0 .* \(Resource temporarily unavailable\): write fewer workers"
        ),
    ):
        workers.start([a_job()])
