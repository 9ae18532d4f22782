"""What workers do in the tests of their port: importable by name, since a worker process begins from nothing."""

from __future__ import annotations

import os
import signal
import time

from simulator.fleet.run.messages import Begin, Finished, Problem, Ready, Stop
from simulator.fleet.run.workers import Link

LARGE = 5_000_000
MANY = 2_000


def talk(number: int, job: str, link: Link) -> None:
    """Say how long the job is, answer each begin, end with the job in capitals."""
    link.send(Ready(number, len(job), 0.0))
    while not isinstance(message := link.receive(), Stop):
        assert isinstance(message, Begin)
        link.send(Problem(number, f"{job} at {message.at_s:g}"))
    link.send(Finished(number, job.upper()))


def die(number: int, job: int, link: Link) -> None:
    """End by the signal that the job names, with an exit code of its own for 0, and not at all below."""
    link.send(Ready(number, os.getpid(), 0.0))
    if job > 0:
        os.kill(os.getpid(), job)
    if job == 0:
        raise SystemExit(7)
    time.sleep(600)


def stay(number: int, job: None, link: Link) -> None:
    """Say the process's number, and do not end by SIGTERM."""
    del job
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    link.send(Ready(number, os.getpid(), 0.0))
    time.sleep(600)


def flood(number: int, job: None, link: Link) -> None:
    """Say very much, and one very long thing; go on after the last word."""
    del job
    for each in range(MANY):
        link.send(Problem(number, str(each)))
    link.send(Problem(number, "x" * LARGE))
    link.send(Finished(number, None))
    link.send(Problem(number, "after the last word"))
