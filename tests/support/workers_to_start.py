"""What workers do in the tests of their port: importable by name, since a worker process begins from nothing."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.run.worker import Begin, Problem, Sign, Stop
from simulator.fleet.scenario.model import READER
from simulator.fleet.workload.base import Job, Workload, WorkloadSummary

LARGE = 5_000_000
MANY = 2_000
_PHASES = [{"name": "hold", "kind": "hold", "duration_s": 1}]
_SCENARIO = READER.validate_python({"scenario": "s", "fleet": {"devices": 1}, "phases": _PHASES})


def a_job(text: str = "") -> Job:
    """A job of which only the name of its run counts."""
    return Job(
        workload_class=_unused, scenario=_SCENARIO, run=text, base_url="", keys=(), product_id="", offers=frozenset(),
        device_url="", device_offers=frozenset(), devices=range(0), device_ids=(), model_numbers=(), folder=Path("/s"),
    )  # fmt: skip


def _unused(job: Job, recorder: Recorder) -> Workload:
    raise NotImplementedError


def talk(job: Job, pipe: Connection) -> None:
    """Answer each begin with the job, and end with it in capitals."""
    pipe.send(Sign.READY)
    while not isinstance(message := pipe.recv(), Stop):
        assert isinstance(message, Begin)
        pipe.send(Problem(f"{job.run} at {message.after_s:g}"))
    pipe.send(WorkloadSummary(success_note=job.run.upper()))


def die(job: Job, pipe: Connection) -> None:
    """End by the signal that the job names, with an exit code of its own for 0, and not at all below."""
    pipe.send(Sign.ALIVE)
    if (number := int(job.run)) > 0:
        os.kill(os.getpid(), number)
    if number == 0:
        raise SystemExit(7)
    time.sleep(600)


def stay(job: Job, pipe: Connection) -> None:
    """Say the process's number, and do not end by SIGTERM."""
    del job
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pipe.send(Problem(str(os.getpid())))
    time.sleep(600)


def flood(job: Job, pipe: Connection) -> None:
    """Say very much, and one very long thing; go on after the last message."""
    del job
    for each in range(MANY):
        pipe.send(Problem(str(each)))
    pipe.send(Problem("x" * LARGE))
    pipe.send(WorkloadSummary())
    pipe.send(Problem("after the last message"))


def stammer(job: Job, pipe: Connection) -> None:
    """Say a word, then half of another one, and nothing more."""
    del job
    pipe.send(Sign.READY)
    os.write(pipe.fileno(), (1000).to_bytes(4, "big") + b"half a message")
    time.sleep(600)
