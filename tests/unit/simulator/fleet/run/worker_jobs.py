"""What the workers of the workers's tests do: importable by name, since a worker process begins from nothing."""

from __future__ import annotations

import os
import signal
import time

from simulator.fleet.run.local_workers import PipeLink
from simulator.fleet.run.messages import Ready


def ignore(number: int, job: None, link: PipeLink) -> None:
    """Never say anything, and do not end by SIGTERM."""
    del job
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    link.send(Ready(number, 0, 0.0))
    time.sleep(600)


def hang_up(number: int, job: None, link: PipeLink) -> None:
    """Say a word, and end only much later."""
    del job
    link.send(Ready(number, 0, 0.0))
    link.pipe.close()
    time.sleep(600)


def stammer(number: int, job: None, link: PipeLink) -> None:
    """Say a word, then half of another one, and nothing more."""
    del job
    link.send(Ready(number, 0, 0.0))
    os.write(link.pipe.fileno(), (1000).to_bytes(4, "big") + b"half a message")
    time.sleep(600)
