"""Wheels with handlers and sensors in the plug-in folder of the Debian package. No index is asked for anything.

The folder keeps the wheels themselves (in ``.wheels``) beside what was unpacked from them. A change makes a new folder
from the wheels that there are to be, and lets it take the old one's place, so one that fails changes nothing. The
folder comes last on the path, so nothing in it replaces a library of the program.
"""

from __future__ import annotations

import compileall
import platform
import shutil
import sys
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from agent.errors import ConfigurationError

_FOLDER: Final = "local/lib/device-agent/plugins"
_WHEELS: Final = ".wheels"
_WHO: Final = "plugins"
_NOT_PACKAGED: Final = (
    "this agent is not that of the Debian package and has no folder of plug-ins: "
    "install their wheels by the pip of its own environment (pip install --no-index --no-deps WHEEL...)"
)


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel that can be installed here.

    Attributes:
        path: of the file.
        name: of the distribution, as packaging compares names.
        version: of it.
        requires: what it needs.
    """

    path: Path
    name: str
    version: str
    requires: tuple[Requirement, ...]


def plugin_folder(path: Sequence[str] = sys.path) -> Path:
    """The folder of plug-ins, which the package's launcher has put on the path.

    Raises:
        ConfigurationError: another installation runs this.
    """
    found = [Path(each) for each in path if each.endswith(f"/{_FOLDER}")]
    if not found:
        raise ConfigurationError([_NOT_PACKAGED], _WHO)
    return found[-1]


def install(folder: Path, paths: Iterable[Path]) -> list[str]:
    """Put wheels into the folder, in place of other versions of them.

    Args:
        folder: of :func:`plugin_folder`.
        paths: the wheels, in any order, with all that they need and the program does not have.

    Returns:
        A sentence for each.

    Raises:
        ConfigurationError: one cannot be used here, or something that it needs is missing; nothing was changed.
        OSError: the folder cannot be written; nothing was changed.
    """
    own, there = _own_versions(folder), _kept(folder)
    given = [_read(path) for path in paths]
    new = {wheel.name: wheel for wheel in given if wheel.name not in own}
    sentences = [f"{each.name}: version {own[each.name]} comes with the program" for each in given if each.name in own]
    if len(new) + len(sentences) < len(given):
        raise ConfigurationError(["there are two wheels of one package: give one of each"], _WHO)
    for wheel in new.values():
        before = f" in place of {there[wheel.name].version}" if wheel.name in there else ""
        sentences.append(f"{wheel.name} {wheel.version} is installed{before}")
    _replace(folder, {**there, **new})
    return sentences


def remove(folder: Path, name: str) -> str:
    """Take a package out of the folder.

    Returns:
        A sentence.

    Raises:
        ConfigurationError: it is not there, or another one needs it; nothing was changed.
        OSError: the folder cannot be written; nothing was changed.
    """
    wheels = _kept(folder)
    wheel = wheels.pop(canonicalize_name(name), None)
    if wheel is None:
        there = ", ".join(sorted(wheels)) or "nothing"
        raise ConfigurationError([f"{name} is not installed: there is {there}"], _WHO)
    _replace(folder, wheels)
    return f"{wheel.name} {wheel.version} is removed"


def _own_path(folder: Path) -> list[str]:
    return [each for each in sys.path if each != str(folder)]


def _own_versions(folder: Path) -> dict[str, str]:
    """The packages that the program has itself, by their normalized names."""
    return {str(canonicalize_name(each.name)): each.version for each in distributions(path=_own_path(folder))}


def _kept(folder: Path) -> dict[str, Wheel]:
    """The wheels of the folder by name; a change that was killed between its two renames has not happened."""
    old = _beside(folder, "old")
    if old.exists() and not folder.exists():
        old.rename(folder)
    return {wheel.name: wheel for wheel in map(_read, sorted(folder.glob(f"{_WHEELS}/*.whl")))}


def _beside(folder: Path, what: str) -> Path:
    return folder.with_name(f".{folder.name}.{what}")


def _read(path: Path) -> Wheel:
    """The wheel in a file.

    Raises:
        ConfigurationError: it is none, or not for this Python and machine.
    """
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
        found = next(iter(distributions(path=[str(path)])))
        requires = tuple(map(Requirement, found.requires or ()))
        pythons = SpecifierSet(",".join(found.metadata.get_all("Requires-Python") or ()))
    except (InvalidWheelFilename, zipfile.BadZipFile, OSError, ValueError, StopIteration) as error:
        text = f"{path} is no wheel that can be read ({error or type(error).__name__}): build it by pip wheel"
        raise ConfigurationError([text], _WHO) from None
    if tags.isdisjoint(sys_tags()) or not pythons.contains(platform.python_version(), prereleases=True):
        text = f"{path.name} is not for Python {platform.python_version()} on this machine: take the wheel that is"
        raise ConfigurationError([text], _WHO)
    return Wheel(path, canonicalize_name(name), str(version), requires)


def _missing(wheels: dict[str, Wheel], own: dict[str, str]) -> list[str]:
    """One sentence for each requirement that neither a wheel nor the program meets."""
    versions = {name: each.version for name, each in wheels.items()} | own
    faults = []
    for wheel in wheels.values():
        for each in wheel.requires:
            if each.marker is not None and not each.marker.evaluate({"extra": ""}):
                continue
            version = versions.get(canonicalize_name(each.name))
            if version is None:
                faults.append(f"{wheel.name} {wheel.version} needs {each}, which is not here: give its wheel as well")
            elif not each.specifier.contains(version, prereleases=True):
                text = f"{wheel.name} {wheel.version} needs {each}, and here is {version}"
                faults.append(f"{text}: take a version that goes with it")
    return faults


def _replace(folder: Path, wheels: dict[str, Wheel]) -> None:
    """Make the folder of these wheels and let it take the old one's place; see :func:`install`."""
    faults = _missing(wheels, _own_versions(folder))
    new, old = _beside(folder, "new"), _beside(folder, "old")
    if not folder.parent.exists():
        folder.parent.mkdir(parents=True)
        folder.parent.chmod(0o755)  # whatever the umask is: the agent's user reads what is in it
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    (new / _WHEELS).mkdir(parents=True)
    for wheel in wheels.values():
        shutil.copyfile(wheel.path, new / _WHEELS / wheel.path.name)
        with zipfile.ZipFile(wheel.path) as archive:
            twice = [name for name in archive.namelist() if (new / name).is_file()]
            faults += [f"{wheel.name} and another one both have {name}: remove one of them" for name in twice]
            archive.extractall(new)
    for path in new.iterdir():
        if path.suffix in {"", ".py", ".so"} and PathFinder.find_spec(path.name.partition(".")[0], _own_path(folder)):
            faults.append(f"a wheel brings a module {path.name}, which the program has: rename it")
    if faults:
        shutil.rmtree(new)
        raise ConfigurationError(faults, _WHO)
    # The agent's user reads it, and cannot write what Python compiles.
    compileall.compile_dir(new, quiet=2)
    for path in (new, *new.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
