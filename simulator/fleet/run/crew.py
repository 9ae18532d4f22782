"""The workers on one machine of a Ray cluster: an actor, which starts them there and passes messages on."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from simulator.fleet.record import Second
from simulator.fleet.run.capacity import check_share
from simulator.fleet.run.job_files import JobFiles, place_of, unpack
from simulator.fleet.run.local_workers import LocalWorkers, Work
from simulator.fleet.run.worker import FromWorker, Sign, ToWorker
from simulator.fleet.scenario.model import Scenario

PREFIX: Final = "fleet-crew-"
"""Of the name of the temporary folder that a machine has for the run's files."""
VERSION: Final = version("device-agent")
_PIECE_BYTES: Final = 4 * 1024 * 1024
_WAIT_S: Final = 0.5
"""Messages are collected this long per answer, so a machine costs the same however many workers it has."""
_CLOSE_S: Final = 10.0
_REMOVE: Final = """
import os, shutil, sys
if os.fork() == 0:  # fork and setsid: Ray kills the children of an actor, and this one must survive
    os.setsid()
    sys.stdin.read()
    shutil.rmtree(sys.argv[1], ignore_errors=True)
"""

Heard = tuple[int, FromWorker]
"""The number of a worker, and its message."""


class Crew:
    """The workers of one machine: processes as without a cluster. Each method is called over the network.

    A worker process does not use Ray. It ends with the actor, since it reads the actor's pipe. The files, keys among
    them, are removed by a separate process, which does so even if the actor is killed. Ray calls ``receive`` and
    ``send`` in a thread each, all other methods in a third one.

    Args:
        work: what each worker does.
        workers: their numbers.
    """

    def __init__(self, work: Work, workers: range) -> None:
        self._numbers = workers
        self._workers = LocalWorkers(work)
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        # The folder is removed when this descriptor is closed, or this process ends.
        theirs, self._remover = os.pipe()
        try:
            subprocess.run([sys.executable, "-I", "-S", "-c", _REMOVE, str(self._folder)], stdin=theirs, check=True)
        finally:
            os.close(theirs)

    def look(self, scenario: Scenario, addresses: Sequence[str], devices: int) -> tuple[str, float, Any, list[str]]:
        """The program's version and the wall clock here, and what :func:`check_share` says of so many devices."""
        return VERSION, time.time(), *check_share(scenario, addresses, devices=devices, workers=len(self._numbers))

    def start(self, job_files: JobFiles) -> None:
        """Put the files where the jobs find them, and start a worker for each job.

        Raises:
            OSError: a file cannot be written.
        """
        jobs = unpack(job_files, self._numbers, self._folder)
        # A process that is spawned imports the main program of this one, which would load all of Ray: hide it.
        vars(sys.modules["__main__"]).pop("__file__", None)
        self._workers.start(jobs)

    def send(self, worker: int, message: ToWorker) -> None:
        """See :meth:`LocalWorkers.send`."""
        self._workers.send(worker - self._numbers.start, message)

    def receive(self) -> list[Heard]:
        """The messages of the next :data:`_WAIT_S`; at once when one is neither a second nor a sign of life."""
        heard: list[Heard] = []
        until_s = time.monotonic() + _WAIT_S
        while all(isinstance(message, Second) or message is Sign.ALIVE for _, message in heard):
            if (left_s := until_s - time.monotonic()) <= 0:
                break
            heard += ((self._numbers[worker], message) for worker, message in self._workers.receive(left_s))
        return heard

    def read(self, path: Path, offset: int) -> bytes:
        """A piece of a file that a worker has written, at most :data:`_PIECE_BYTES`; empty at its end.

        Args:
            path: as its job had it before it was sent here.
            offset: where the piece begins.

        Raises:
            OSError: there is no such file.
        """
        with place_of(path, self._folder).open("rb") as file:
            file.seek(offset)
            return file.read(_PIECE_BYTES)

    def close(self) -> None:
        """End every worker and remove the files."""
        self._workers.__exit__()
        os.close(self._remover)
        deadline_s = time.monotonic() + _CLOSE_S
        while self._folder.exists() and time.monotonic() < deadline_s:
            time.sleep(0.02)
