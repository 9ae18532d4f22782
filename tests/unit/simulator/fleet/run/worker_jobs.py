"""What the workers of the workers's tests do: importable by name, since a worker process begins from nothing."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection

from simulator.fleet.run.workers import Ready


def ignore(number: int, job: None, pipe: Connection) -> None:
    """Never say anything, and do not end by SIGTERM."""
    del job
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pipe.send(Ready(number))
    time.sleep(600)


def stammer(number: int, job: None, pipe: Connection) -> None:
    """Say a word, then half of another one, and nothing more."""
    del job
    pipe.send(Ready(number))
    os.write(pipe.fileno(), (1000).to_bytes(4, "big") + b"half a message")
    time.sleep(600)
