"""The files that jobs need, on their way to another machine: read here, written there, and the jobs' paths follow.

What a job reads are the paths in it; a folder among them stands for the files in there that its scenario's product and
models name.
Every file travels as a secret does: it is in no text that could be logged, and only its owner may read what is written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent.errors import ConfigurationError
from simulator.fleet.audit.ledger import LedgerTarget
from simulator.fleet.scenario.model import Scenario

_SCENARIO: Final = "scenario"
_WRITTEN: Final = "written"
_OTHERS: Final = "others"


@dataclass(frozen=True, slots=True)
class JobFiles:
    """The files of a run's jobs: what workers read, and where they write.

    Attributes:
        folder: of the scenario; None where no job has one.
        contents: of each file, by its absolute path.
        written: the files that the workers will write, by their absolute paths.
    """

    folder: Path | None
    contents: Mapping[Path, bytes] = field(repr=False)
    written: frozenset[Path] = frozenset()


def pack(jobs: Sequence[Any]) -> JobFiles:
    """Read every file that the jobs name.

    Raises:
        ConfigurationError: one cannot be read, or is outside of the scenario's folder, or is not named from there; all
            of them.
    """
    folders = {path for job in jobs if isinstance(path := getattr(job, "folder", None), Path)}
    folder = next(iter(folders), None)
    written = {found.path for job in jobs for found in _found(job, LedgerTarget)}
    named = {path for job in jobs for path in _found(job, Path)} - folders - written
    faults: list[str] = []
    if folder is not None:
        named |= set(_named_by_scenario(jobs[0].scenario, folder, faults))
    contents = {path: _read(path, faults) for path in sorted(named)}
    if faults:
        raise ConfigurationError(faults, "--cluster")
    return JobFiles(folder, contents, frozenset(written))


def check_files(scenario: Scenario, folder: Path) -> None:
    """Return when everything that a scenario's product and models name can travel.

    Raises:
        ConfigurationError: a file is outside of the scenario's folder, or is not named from there; all of them.
    """
    faults: list[str] = []
    list(_named_by_scenario(scenario, folder, faults))
    if faults:
        raise ConfigurationError(faults, "--cluster")


def unpack(jobs: Sequence[Any], job_files: JobFiles, root: Path) -> tuple[tuple[Any, ...], dict[str, Path]]:
    """Write the files below a folder.

    Returns:
        The jobs with the paths that are right here; and where what they write is, by the path that they had for it.

    Raises:
        OSError: a file cannot be written.
    """
    places: dict[Path, Path] = {}
    scenario = root / _SCENARIO
    scenario.mkdir(mode=0o700)
    if job_files.folder is not None:
        places[job_files.folder] = scenario
    for number, (path, content) in enumerate(job_files.contents.items()):
        inside = _inside(path, job_files.folder)
        place = root / _OTHERS / str(number) / path.name if inside is None else scenario / inside
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.touch(mode=0o600)
        place.write_bytes(content)
        places[path] = place
    for path in job_files.written:
        places[path] = root / _WRITTEN / path.name
    (root / _WRITTEN).mkdir(mode=0o700)
    moved = tuple(_moved(job, lambda path: places.get(path, path)) for job in jobs)
    return moved, {str(path): places[path] for path in job_files.written}


def _inside(path: Path, folder: Path | None) -> Path | None:
    """The way from a folder down to a path; None where it does not go down."""
    if folder is None or not path.is_relative_to(folder):
        return None
    way = path.relative_to(folder)
    return None if ".." in way.parts else way


def _read(path: Path, faults: list[str]) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        faults.append(f"{path} cannot be sent to the cluster: {error.strerror}")
        return b""


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
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, Iterable):
        for each in value:
            yield from _texts(each)


def _found(value: Any, kind: type) -> Iterator[Any]:
    """Everything of a class in frozen values and tuples."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, tuple) and value and not isinstance(value[0], str | int):
        for each in value:
            yield from _found(each, kind)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for each in dataclasses.fields(value):
            yield from _found(getattr(value, each.name), kind)


def _moved(value: Any, place: Callable[[Path], Path]) -> Any:
    """The same value with other paths in it."""
    if isinstance(value, Path):
        return place(value)
    if isinstance(value, tuple) and value and not isinstance(value[0], str | int):
        return tuple(_moved(each, place) for each in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {each.name: _moved(getattr(value, each.name), place) for each in dataclasses.fields(value)}
        return dataclasses.replace(value, **changed)
    return value
