"""What the workers of the workers's tests do: importable by name, since a worker process begins from nothing."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection

from simulator.fleet.run.messages import Begin, Finished, Problem, Ready, Stop


def talk(number: int, job: str, pipe: Connection) -> None:
    """Say what the job is, answer until told to stop."""
    pipe.send(Ready(number, len(job)))
    while not isinstance(message := pipe.recv(), Stop):
        assert isinstance(message, Begin)
        pipe.send(Problem(number, f"{job} at {message.at_s:g}"))
    pipe.send(Finished(number, job.upper()))


def die(number: int, job: int, pipe: Connection) -> None:
    """End by the signal that the job names, or with an exit code of its own."""
    pipe.send(Ready(number, 1))
    if job > 0:
        os.kill(os.getpid(), job)
        time.sleep(600)
    raise SystemExit(7)


def ignore(number: int, job: None, pipe: Connection) -> None:
    """Never say anything, and do not end by SIGTERM."""
    del job
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pipe.send(Ready(number, 0))
    time.sleep(600)


def hang_up(number: int, job: None, pipe: Connection) -> None:
    """Say a word, and end only much later."""
    del job
    pipe.send(Ready(number, 0))
    pipe.close()
    time.sleep(600)


def stammer(number: int, job: None, pipe: Connection) -> None:
    """Say a word, then half of another one, and nothing more."""
    del job
    pipe.send(Ready(number, 0))
    os.write(pipe.fileno(), (1000).to_bytes(4, "big") + b"half a message")
    time.sleep(600)
