"""The files that jobs need on another machine: read here, written there, and named by the jobs with their new paths.

There each file is below a folder at the path that it had here. Keys are among them: they are in no text that could be
logged, and only their owner may read what is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.errors import ConfigurationError
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.workload.base import Job


@dataclass(frozen=True, slots=True)
class JobFiles:
    """Jobs with the files that their workers read.

    Attributes:
        jobs: with absolute paths.
        contents: of each file, by its path.
    """

    jobs: tuple[Job, ...]
    contents: Mapping[Path, bytes] = field(repr=False)


def place_of(path: Path, root: Path) -> Path:
    """Where a file with this absolute path on the sending machine is put, below ``root`` on the receiving one."""
    return root / os.path.normpath(path).lstrip("/")


def pack(jobs: Sequence[Job]) -> JobFiles:
    """Read every file that the jobs name.

    Raises:
        ConfigurationError: one cannot be read; all of them.
    """
    absolute = tuple(_with_paths(job, Path.absolute) for job in jobs)
    contents, faults = {}, []
    for path in sorted({path for job in absolute for path in _files_of(job)}):
        try:
            contents[path] = path.read_bytes()
        except OSError as error:
            faults.append(f"{path} cannot be sent to the cluster: {error.strerror}")
    if faults:
        raise ConfigurationError(faults, "--cluster")
    return JobFiles(absolute, contents)


def unpack(job_files: JobFiles, workers: range, root: Path) -> list[Job]:
    """Write the files below a folder; the jobs of these workers with the files' new paths.

    Raises:
        OSError: a file cannot be written.
    """
    for path, content in job_files.contents.items():
        place = place_of(path, root)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch(mode=0o600)
        place.write_bytes(content)
    jobs = [_with_paths(job_files.jobs[worker], lambda path: place_of(path, root)) for worker in workers]
    for job in jobs:
        job.folder.mkdir(parents=True, exist_ok=True)  # a path like 'folder/../file' needs it
        if job.ledger is not None:
            job.ledger.path.parent.mkdir(parents=True, exist_ok=True)
    return jobs


def _files_of(job: Job) -> Iterator[Path]:
    yield from (key.secret_key_file for key in job.keys)
    yield from filter(None, (job.ca_file, job.tokens))
    yield from (job.folder / name for name in _files_of_signals(job.scenario))


def _with_paths(job: Job, path_of: Callable[[Path], Path]) -> Job:
    """A job with other paths. Those in its scenario are not changed: workers use the job's."""
    return replace(
        job,
        folder=path_of(job.folder),
        keys=tuple(replace(key, secret_key_file=path_of(key.secret_key_file)) for key in job.keys),
        ca_file=job.ca_file and path_of(job.ca_file),
        tokens=job.tokens and path_of(job.tokens),
        ledger=job.ledger and replace(job.ledger, path=path_of(job.ledger.path)),
    )


def check_files(scenario: Scenario) -> None:
    """Check that workers on other machines find the files that a scenario's signals name.

    Raises:
        ConfigurationError: paths are not relative to the scenario's folder; names all of them.
    """
    fix = "machines of a cluster have it somewhere else: write its path from the scenario's folder"
    if faults := [f"{name}: {fix}" for name in _files_of_signals(scenario) if Path(name).is_absolute()]:
        raise ConfigurationError(faults, "--cluster")


def _files_of_signals(scenario: Scenario) -> Iterator[str]:
    for model in scenario.fleet.models:
        for signal in model.signals.values():
            if (name := getattr(signal, "file", None)) is not None:
                yield name
