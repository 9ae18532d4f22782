"""The files that jobs need, on their way to another machine: read here, written there, and the jobs' paths follow.

What a job reads are the paths in it; a folder among them stands for the files in there that its scenario's product and
models name. Every file travels as a secret does: it is in no text that could be logged, and only its owner may read
what is written.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from agent.errors import ConfigurationError
from simulator.fleet.scenario.model import Scenario

_SCENARIO: Final = "scenario"
_WRITTEN: Final = "written"
_OTHERS: Final = "others"


@dataclass(frozen=True, slots=True)
class JobFiles:
    """Jobs with the files that their workers read and the paths that they write.

    Attributes:
        jobs: pickled, with each path apart from the rest.
        folder: of the scenario; None where no job has one.
        contents: of each file, by its absolute path.
        written: the files that the workers will write, by their absolute paths.
    """

    jobs: tuple[bytes, ...]
    folder: Path | None
    contents: Mapping[Path, bytes] = field(repr=False)
    written: frozenset[Path] = frozenset()


class _Packer(pickle.Pickler):
    """Pickles a job, and notes the paths in it."""

    def __init__(self, file: io.BytesIO, paths: set[Path]) -> None:
        super().__init__(file)
        self._paths = paths

    def persistent_id(self, value: Any) -> Any:
        """Of a path its text, for :class:`_Unpacker`. Those of a scenario stay as they are."""
        if isinstance(value, BaseModel):
            return pickle.dumps(value)
        if not isinstance(value, Path):
            return None
        self._paths.add(value)
        return str(value)


class _Unpacker(pickle.Unpickler):
    """Makes a job, with the paths that are right on this machine."""

    def __init__(self, job: bytes, places: Mapping[Path, Path]) -> None:
        super().__init__(io.BytesIO(job))
        self._places = places

    def persistent_load(self, kept: Any) -> Any:
        """The path in the place of another one; or a scenario."""
        if isinstance(kept, bytes):
            return pickle.loads(kept)  # noqa: S301 - pickled by pack()
        return self._places.get(Path(kept), Path(kept))


def pack(jobs: Sequence[Any]) -> JobFiles:
    """Read every file that the jobs name.

    Raises:
        ConfigurationError: one cannot be read, or is outside of the scenario's folder, or is not named from there; all
            of them.
    """
    named: set[Path] = set()
    pickled = []
    for job in jobs:
        file = io.BytesIO()
        _Packer(file, named).dump(job)
        pickled.append(file.getvalue())
    folder: Path | None = getattr(jobs[0], "folder", None) if jobs else None
    written = frozenset(job.ledger.path for job in jobs if getattr(job, "ledger", None) is not None)
    faults: list[str] = []
    if folder is not None:
        named |= {*_named_by_scenario(jobs[0].scenario, folder, faults)}
    contents = {}
    for path in sorted(named - {folder} - written):
        try:
            contents[path] = path.read_bytes()
        except OSError as error:
            faults.append(f"{path} cannot be sent to the cluster: {error.strerror}")
    if faults:
        raise ConfigurationError(faults, "--cluster")
    return JobFiles(tuple(pickled), folder, contents, written)


def check_files(scenario: Scenario, folder: Path) -> None:
    """Return when everything that a scenario's product and models name can travel.

    Raises:
        ConfigurationError: a file is outside of the scenario's folder, or is not named from there; all of them.
    """
    faults: list[str] = []
    list(_named_by_scenario(scenario, folder, faults))
    if faults:
        raise ConfigurationError(faults, "--cluster")


def unpack(job_files: JobFiles, workers: range, root: Path) -> tuple[list[Any], dict[str, Path]]:
    """Write the files below a folder.

    Returns:
        The jobs of these workers with the paths that are right here; and where what they write is, by the path that
        they had for it.

    Raises:
        OSError: a file cannot be written.
    """
    folder, places = job_files.folder, dict[Path, Path]()
    for name in (_SCENARIO, _WRITTEN):
        (root / name).mkdir(mode=0o700)
    if folder is not None:
        places[folder] = root / _SCENARIO
    for number, (path, content) in enumerate(job_files.contents.items()):
        is_inside = folder is not None and path.is_relative_to(folder) and ".." not in path.relative_to(folder).parts
        inside = path.relative_to(folder) if folder is not None and is_inside else None
        place = root / _OTHERS / str(number) / path.name if inside is None else root / _SCENARIO / inside
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.touch(mode=0o600)
        place.write_bytes(content)
        places[path] = place
    places |= {path: root / _WRITTEN / path.name for path in job_files.written}
    jobs = [_Unpacker(job_files.jobs[worker], places).load() for worker in workers]
    return jobs, {str(path): places[path] for path in job_files.written}


def _named_by_scenario(scenario: Scenario, folder: Path, faults: list[str]) -> Iterator[Path]:
    """The files that workers look for in the scenario's folder: any others are paths of the jobs."""
    for text in _texts(scenario.fleet.model_dump(mode="json", exclude={"identities"})):
        way = Path(text)
        try:
            is_file = (folder / way).is_file()
        except (OSError, ValueError):  # a text that could be no path
            continue
        if not is_file:
            continue
        is_below = not way.is_absolute() and ".." not in way.parts
        if is_below and (folder / way).resolve().is_relative_to(folder.resolve()):
            yield folder / way
        else:
            fix = "copy it there, and write its path from there, without '..'"
            faults.append(f"{text}: machines of a cluster get the files in {folder.resolve()} and below: {fix}")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Iterable):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)
