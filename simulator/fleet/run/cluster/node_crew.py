"""The workers of one machine of a cluster: processes as on a single machine, and an actor of Ray that relays for them.

A worker has nothing of Ray in it, and ends with the actor, whose pipe it reads. The files are taken away by a process
of their own, which outlives whatever ends the actor: keys are among them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from simulator.fleet.run.cluster.job_files import JobFiles, unpack
from simulator.fleet.run.workers import FromWorker, Heartbeat, LocalWorkers, Measured, ToWorker, Work

PREFIX: Final = "fleet-crew-"
"""Of the folder with a crew's files, in the machine's one for temporary files."""
PIECE_BYTES: Final = 4 * 1024 * 1024
_WAIT_S: Final = 0.5
"""How often the coordinator is answered in a second is what a machine costs it, however many workers are on it."""
_END_S: Final = 10.0
_GONE_S: Final = 0.02
_REMOVE: Final = """
import os, shutil, sys
if os.fork() == 0:  # nobody's child: Ray ends those of a process that it ends
    os.setsid()
    sys.stdin.read()
    shutil.rmtree(sys.argv[1], ignore_errors=True)
"""


class NodeCrew:
    """Starts workers, relays for them and hands out what they wrote; each method is a call over the network.

    ``receive`` and ``send`` run in a thread each, all others in a third one.

    Args:
        work: what each worker does.
        first: number of the first worker.
    """

    def __init__(self, work: Work, first: int) -> None:
        self._workers = LocalWorkers(work, first=first)
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._remover = _start_remover(self._folder)
        self._written: dict[str, Path] = {}

    def start(self, jobs: Sequence[Any], job_files: JobFiles) -> None:
        """Put the files where the jobs find them, and start a worker for each job.

        Raises:
            OSError: a file cannot be written.
        """
        jobs, self._written = unpack(jobs, job_files, self._folder)
        with _hidden_main_file():
            self._workers.start(jobs)

    def send(self, worker: int, message: ToWorker) -> None:
        """Send a message to a worker."""
        self._workers.send(worker, message)

    def receive(self) -> list[FromWorker]:
        """The workers' messages: those of :data:`_WAIT_S`, or until one comes that is no measurement or heartbeat."""
        messages: list[FromWorker] = []
        until_s = time.monotonic() + _WAIT_S
        while all(isinstance(message, Measured | Heartbeat) for message in messages):
            if (left_s := until_s - time.monotonic()) <= 0:
                break
            messages += self._workers.receive(left_s)
        return messages

    def read(self, path: str, offset: int) -> bytes:
        """A piece of a file that a worker has written, at most :data:`PIECE_BYTES`; empty at its end.

        Args:
            path: as its job had it before it was sent here.
            offset: where the piece begins.

        Raises:
            OSError: there is no such file.
        """
        with self._written[path].open("rb") as file:
            file.seek(offset)
            return file.read(PIECE_BYTES)

    def close(self) -> None:
        """End every worker and take the files away."""
        self._workers.__exit__(None, None, None)
        os.close(self._remover)
        deadline_s = time.monotonic() + _END_S
        while self._folder.exists() and time.monotonic() < deadline_s:
            time.sleep(_GONE_S)


def _start_remover(folder: Path) -> int:
    """Start a process that removes a folder when the descriptor that comes back is closed, or this process ends."""
    theirs, ours = os.pipe()
    try:
        subprocess.run([sys.executable, "-I", "-S", "-c", _REMOVE, str(folder)], stdin=theirs, check=True)
    finally:
        os.close(theirs)
    return ours


@contextlib.contextmanager
def _hidden_main_file() -> Iterator[None]:
    """Hide which program this process runs: a process that it starts would load it, and with it all of Ray."""
    names = vars(sys.modules["__main__"])
    path = names.pop("__file__", None)
    try:
        yield
    finally:
        if path is not None:
            names["__file__"] = path
