"""The workers of one machine of a cluster: processes as on a single machine, and an actor of Ray that relays for them.

A worker has nothing of Ray in it. What one batch brought is kept until the other side has it, so that a batch that is
asked for twice comes twice and is counted once. Orders are numbered, so that one that comes twice is obeyed once. A
crew that nobody asked for :data:`LEASE_S` while it has workers is an orphan: it ends them and ends. Its files are taken
away by a process of their own, which outlives whatever ends this one.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from simulator.fleet.run.cluster.job_files import JobFiles, unpack
from simulator.fleet.run.local_workers import LocalWorkers
from simulator.fleet.run.messages import FromWorker, Heartbeat, Measured, ToWorker
from simulator.fleet.run.workers import Work, WorkerLost
from simulator.watched import make_thread

LEASE_S: Final = 15.0
PREFIX: Final = "fleet-crew-"
"""Of the folder with a crew's files, in the machine's one for temporary files."""
PIECE_BYTES: Final = 4 * 1024 * 1024
_WAIT_S: Final = 0.5
"""How often the coordinator is answered in a second is what a machine costs it, however many workers are on it."""
_LOOK_S: Final = 0.5
_END_S: Final = 10.0
_GONE_S: Final = 0.02
_REMOVE: Final = """
import os, shutil, sys
if os.fork() == 0:  # nobody's child: Ray ends those of a process that it ends
    os.setsid()
    sys.stdin.read()
    shutil.rmtree(sys.argv[1], ignore_errors=True)
"""
_ORPHAN: Final = 72
_WATCH_FAILED: Final = 73

Order = tuple[int, int, ToWorker]
"""A number that rises by one, a worker, and what it is sent."""
Batch = tuple[int, list[FromWorker | WorkerLost]]


class NodeCrew:
    """Starts workers, relays for them and hands out what they wrote; each method is a call over the network.

    ``receive`` and ``send`` run in a thread each, all others in a third one.

    Args:
        work: what each worker does.
        first: number of the first worker.
        lease_s: how long its workers live without a call of ``receive``.
    """

    def __init__(self, work: Work, first: int, lease_s: float = LEASE_S) -> None:
        self._workers = LocalWorkers(work, first=first)
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._remover = _start_remover(self._folder)
        self._written: dict[str, Path] = {}
        self._batch: Batch = (0, [])
        self._lease_s = lease_s
        self._obeyed = 0
        self._asked_s = math.inf  # its lease begins with the first question
        self._is_closed = threading.Event()
        make_thread(self._watch, "lease", lambda _name, _error: os._exit(_WATCH_FAILED)).start()

    def start(self, jobs: Sequence[Any], job_files: JobFiles) -> None:
        """Put the files where the jobs find them, and start a worker for each job.

        Raises:
            OSError: a file cannot be written.
        """
        jobs, self._written = unpack(jobs, job_files, self._folder)
        with _hidden_main_file():
            self._workers.start(jobs)

    def send(self, orders: Sequence[Order]) -> int:
        """Send messages to workers, in the order of their numbers; those that came before are left out.

        Returns:
            The number of the last one that was sent.
        """
        for number, worker, message in orders:
            if number > self._obeyed:
                self._workers.send(worker, message)
                self._obeyed = number
        return self._obeyed

    def receive(self, taken: int) -> Batch:
        """The next batch of messages and its number; those of each second are gathered for a moment.

        Args:
            taken: the number of the last batch that has arrived; one that is newer than that comes again.
        """
        self._asked_s = time.monotonic()
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
        self._is_closed.set()
        self._workers.__exit__(None, None, None)
        os.close(self._remover)
        deadline_s = time.monotonic() + _END_S
        while self._folder.exists() and time.monotonic() < deadline_s:
            time.sleep(_GONE_S)

    def _watch(self) -> None:
        while not self._is_closed.wait(_LOOK_S):
            if self._workers.living and time.monotonic() - self._asked_s > self._lease_s:
                self._workers.kill()
                os._exit(_ORPHAN)


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
