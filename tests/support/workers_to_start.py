"""What workers do in the tests of their port: importable by name, since a worker process begins from nothing."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection

from simulator.fleet.run.workers import Begin, Finished, Problem, Ready, Stop

LARGE = 5_000_000
MANY = 2_000


def talk(number: int, job: str, pipe: Connection) -> None:
    """Answer each begin with the job, and end with it in capitals."""
    pipe.send(Ready(number))
    while not isinstance(message := pipe.recv(), Stop):
        assert isinstance(message, Begin)
        pipe.send(Problem(number, f"{job} at {message.after_s:g}"))
    pipe.send(Finished(number, job.upper()))


def die(number: int, job: int, pipe: Connection) -> None:
    """End by the signal that the job names, with an exit code of its own for 0, and not at all below."""
    pipe.send(Problem(number, str(os.getpid())))
    if job > 0:
        os.kill(os.getpid(), job)
    if job == 0:
        raise SystemExit(7)
    time.sleep(600)


def stay(number: int, job: None, pipe: Connection) -> None:
    """Say the process's number, and do not end by SIGTERM."""
    del job
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pipe.send(Problem(number, str(os.getpid())))
    time.sleep(600)


def flood(number: int, job: None, pipe: Connection) -> None:
    """Say very much, and one very long thing; go on after the last word."""
    del job
    for each in range(MANY):
        pipe.send(Problem(number, str(each)))
    pipe.send(Problem(number, "x" * LARGE))
    pipe.send(Finished(number, None))
    pipe.send(Problem(number, "after the last word"))


def stammer(number: int, job: None, pipe: Connection) -> None:
    """Say a word, then half of another one, and nothing more."""
    del job
    pipe.send(Ready(number))
    os.write(pipe.fileno(), (1000).to_bytes(4, "big") + b"half a message")
    time.sleep(600)
