"""The workers of one machine of a cluster: processes as on a single machine, and an actor of Ray that relays for them.

A worker has nothing of Ray in it, and ends with the actor, whose pipe it reads. What one batch brought is kept until
the other side has it, so that a batch that is asked for twice comes twice and is counted once. The files are taken away
by a process of their own, which outlives whatever ends the actor: keys are among them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from simulator.fleet.run.cluster.job_files import JobFiles, unpack
from simulator.fleet.run.local_workers import LocalWorkers
from simulator.fleet.run.messages import FromWorker, Heartbeat, Measured, ToWorker
from simulator.fleet.run.workers import Work, WorkerLost

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

Batch = tuple[int, list[FromWorker | WorkerLost]]


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
        self._batch: Batch = (0, [])

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

    def receive(self, taken: int) -> Batch:
        """The next batch of messages and its number; those of each second are gathered for a moment.

        Args:
            taken: the number of the last batch that has arrived; one that is newer than that comes again.
        """
        number, _ = self._batch
        if number <= taken:
            self._batch = number + 1, self._gather()
        return self._batch

    def _gather(self) -> list[FromWorker | WorkerLost]:
        """Collect the workers' messages for :data:`_WAIT_S`, or until one comes that is no measurement or heartbeat."""
        messages: list[FromWorker | WorkerLost] = []
        until_s = time.monotonic() + _WAIT_S
        while all(isinstance(message, Measured | Heartbeat) for message in messages):
            if (left_s := until_s - time.monotonic()) <= 0:
                break
            messages += self._workers.receive(left_s)
        return messages

    def size_of(self, path: str) -> tuple[int, str]:
        """Length and SHA-256 of a file that a worker has written; (-1, "") when there is none.

        Args:
            path: as its job had it before it was sent here.
        """
        here = self._written.get(path)
        if here is None or not here.exists():
            return -1, ""
        with here.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return here.stat().st_size, digest

    def read(self, path: str, offset: int) -> bytes:
        """A piece of that file, at most :data:`PIECE_BYTES`."""
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
