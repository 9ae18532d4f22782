"""The files that jobs need, on their way to another machine: read here, written there, and the jobs' paths follow.

There each file is below a folder at the path that it had here. What travels are the files of which a job has the path,
and those that the scenario's signals name. Keys are among them: they are in no text that could be logged, and only
their owner may read what is written.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agent.errors import ConfigurationError
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.workload.base import Job


@dataclass(frozen=True, slots=True)
class JobFiles:
    """Jobs with the files that their workers read.

    Attributes:
        jobs: pickled, with each path apart from the rest.
        contents: of each file, by its absolute path.
    """

    jobs: tuple[bytes, ...]
    contents: Mapping[Path, bytes] = field(repr=False)


class _Packer(pickle.Pickler):
    """Pickles a job, and notes the paths in it. Those of a scenario stay as they are: workers read the job's."""

    def __init__(self, file: io.BytesIO, paths: set[Path]) -> None:
        super().__init__(file)
        self._paths = paths

    def persistent_id(self, value: Any) -> str | bytes | None:
        """Of a path its text, for :class:`_Unpacker`; of a scenario all of it."""
        if isinstance(value, BaseModel):
            return pickle.dumps(value)
        if not isinstance(value, Path):
            return None
        self._paths.add(value.absolute())
        return os.path.abspath(value)


class _Unpacker(pickle.Unpickler):
    """Makes a job, with its paths below a folder of this machine."""

    def __init__(self, job: bytes, root: Path) -> None:
        super().__init__(io.BytesIO(job))
        self._root = root

    def persistent_load(self, kept: str | bytes) -> Any:
        """The path below the folder; or a scenario."""
        return pickle.loads(kept) if isinstance(kept, bytes) else place_of(kept, self._root)  # noqa: S301 - of pack()


def place_of(path: str | Path, root: Path) -> Path:
    """Where a path of the sending machine, which is absolute, is below a folder of the receiving one."""
    return root / os.path.normpath(path).lstrip("/")


def pack(jobs: Sequence[Any]) -> JobFiles:
    """Read every file that the jobs name.

    Raises:
        ConfigurationError: one cannot be read; all of them.
    """
    named, others = set[Path](), set[Path]()  # others: the scenario's folder, and what workers will write
    pickled = []
    for job in jobs:
        file = io.BytesIO()
        _Packer(file, named).dump(job)
        pickled.append(file.getvalue())
        if isinstance(job, Job):
            folder = job.folder.absolute()
            named |= {folder / name for name in _files_of_signals(job.scenario)}
            others |= {folder} if job.ledger is None else {folder, job.ledger.path.absolute()}
    contents, faults = {}, []
    for path in sorted(named - others):
        try:
            contents[path] = path.read_bytes()
        except OSError as error:
            faults.append(f"{path} cannot be sent to the cluster: {error.strerror}")
    if faults:
        raise ConfigurationError(faults, "--cluster")
    return JobFiles(tuple(pickled), contents)


def unpack(job_files: JobFiles, workers: range, root: Path) -> list[Any]:
    """Write the files below a folder; the jobs of these workers with the paths that are right here.

    Raises:
        OSError: a file cannot be written.
    """
    for path, content in job_files.contents.items():
        place = place_of(path, root)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch(mode=0o600)
        place.write_bytes(content)
    jobs = [_Unpacker(job_files.jobs[worker], root).load() for worker in workers]
    for job in jobs:
        if isinstance(job, Job):
            job.folder.mkdir(parents=True, exist_ok=True)  # 'folder/../file' goes through it
            if job.ledger is not None:
                job.ledger.path.parent.mkdir(parents=True, exist_ok=True)
    return jobs


def check_files(scenario: Scenario) -> None:
    """Return when workers of other machines find the files that a scenario's signals name.

    Raises:
        ConfigurationError: a path is none from the scenario's folder; all of them.
    """
    fix = "machines of a cluster have it somewhere else: write its path from the scenario's folder"
    if faults := [f"{name}: {fix}" for name in _files_of_signals(scenario) if Path(name).is_absolute()]:
        raise ConfigurationError(faults, "--cluster")


def _files_of_signals(scenario: Scenario) -> Iterator[str]:
    for model in scenario.fleet.models:
        for signal in model.signals.values():
            if (name := getattr(signal, "file", None)) is not None:
                yield name
