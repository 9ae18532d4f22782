"""Wheels with handlers and sensors in the plug-in folder of the Debian package. No index is asked for anything.

The folder is replaced as a whole: a change that fails leaves it as it was. What is in it comes last on the path, so
nothing in it replaces a library of the program.
"""

from __future__ import annotations

import compileall
import platform
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from email.parser import Parser
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from agent.errors import ConfigurationError

_FOLDER: Final = "local/lib/device-agent/plugins"
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
        requires: what it needs, here and now.
        files: member of the archive -> where it belongs below the folder.
    """

    path: Path
    name: str
    version: str
    requires: tuple[Requirement, ...]
    files: dict[str, str]


def plugin_folder(path: Sequence[str] = sys.path) -> Path:
    """The folder of plug-ins, which the package's launcher has put on the path.

    Raises:
        ConfigurationError: another installation runs this.
    """
    found = [Path(each) for each in path if each.endswith(f"/{_FOLDER}")]
    if not found:
        raise ConfigurationError([_NOT_PACKAGED], _WHO)
    return found[-1]


def installed(folder: Path) -> dict[str, Distribution]:
    """The installed packages of the plug-in folder by their normalized names."""
    return _distributions([str(folder)])


def _distributions(path: list[str]) -> dict[str, Distribution]:
    return {str(canonicalize_name(each.name)): each for each in distributions(path=path)}


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
    _finish_earlier(folder)
    own = {name: each.version for name, each in _distributions(_path_without(folder)).items()}
    there = installed(folder)
    wheels = [_read(path) for path in paths]
    new = {wheel.name: wheel for wheel in wheels if wheel.name not in own}
    faults = [f"{wheel.path.name}: there are two wheels of {wheel.name}: give one" for wheel in _doubles(wheels)]
    old = {name: each.version for name, each in there.items()}
    versions = old | {wheel.name: wheel.version for wheel in new.values()} | own
    for name, each in there.items():
        if name not in new:
            faults += _missing(f"{name} {each.version}", map(Requirement, each.requires or ()), versions)
    for wheel in new.values():
        faults += _missing(f"{wheel.name} {wheel.version}", wheel.requires, versions)
        faults += _hidden(folder, wheel, [each for name, each in there.items() if name not in new])
    if faults:
        raise ConfigurationError(faults, _WHO)

    def change(changed: Path) -> None:
        for wheel in new.values():
            if wheel.name in there:
                _take_out(changed, wheel.name)
            _unpack(wheel, changed)

    _replace(folder, change)
    sentences = [
        f"{wheel.name}: version {own[wheel.name]} comes with the program" for wheel in wheels if wheel.name in own
    ]
    for wheel in new.values():
        before = f" in place of {old[wheel.name]}" if wheel.name in old else ""
        sentences.append(f"{wheel.name} {wheel.version} is installed{before}")
    return sentences


def remove(folder: Path, name: str) -> str:
    """Take a distribution out of the folder.

    Returns:
        A sentence.

    Raises:
        ConfigurationError: it is not there, or another one needs it; nothing was changed.
        OSError: the folder cannot be written; nothing was changed.
    """
    _finish_earlier(folder)
    there = installed(folder)
    wanted = canonicalize_name(name)
    if wanted not in there:
        raise ConfigurationError([f"{name} is not installed: device-agent plugins list shows what is"], _WHO)
    left = {each: found.version for each, found in there.items() if each != wanted}
    own = {name: each.version for name, each in _distributions(_path_without(folder)).items()}
    faults = [
        fault
        for each, version in left.items()
        for fault in _missing(f"{each} {version}", map(Requirement, there[each].requires or ()), {**left, **own})
    ]
    if faults:
        raise ConfigurationError(faults, _WHO)
    sentence = f"{wanted} {there[wanted].version} is removed"
    _replace(folder, lambda changed: _take_out(changed, wanted))
    return sentence


def _read(path: Path) -> Wheel:
    """The wheel in a file.

    Raises:
        ConfigurationError: it is none, or not for this Python and machine.
    """
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
        with zipfile.ZipFile(path) as archive:
            members = [each for each in archive.namelist() if not each.endswith("/")]
            info = next(each for each in members if each.endswith(".dist-info/METADATA") and each.count("/") == 1)
            metadata = Parser().parsestr(archive.read(info).decode("utf-8"))
        requires = tuple(map(Requirement, metadata.get_all("Requires-Dist", [])))
        pythons = SpecifierSet(metadata.get("Requires-Python", ""))
    except (InvalidWheelFilename, InvalidRequirement, zipfile.BadZipFile, OSError, ValueError, StopIteration) as error:
        text = f"{path} is no wheel that can be read ({error or type(error).__name__}): build it by pip wheel"
        raise ConfigurationError([text], _WHO) from None
    if tags.isdisjoint(sys_tags()) or not pythons.contains(platform.python_version(), prereleases=True):
        text = f"{path.name} is not for Python {platform.python_version()} on this machine: take the wheel that is"
        raise ConfigurationError([text], _WHO)
    files = {each: place for each in members if (place := _place_of(each)) is not None}
    if bad := [each for each, place in files.items() if place.startswith("/") or ".." in PurePosixPath(place).parts]:
        raise ConfigurationError([f"{path.name} has a file outside its folder ({bad[0][:80]}): do not use it"], _WHO)
    return Wheel(path, canonicalize_name(name), str(version), requires, files)


def _place_of(member: str) -> str | None:
    """Where a member of a wheel belongs; None for scripts, headers and other data, which no plug-in is."""
    first, _, rest = member.partition("/")
    if not first.endswith(".data"):
        return member
    scheme, _, place = rest.partition("/")
    return place if scheme in {"purelib", "platlib"} else None


def _doubles(wheels: Sequence[Wheel]) -> list[Wheel]:
    names = [wheel.name for wheel in wheels]
    return [wheel for at, wheel in enumerate(wheels) if wheel.name in names[:at]]


def _missing(who: str, requires: Iterable[Requirement], versions: dict[str, str]) -> list[str]:
    """A fault for each requirement that nothing meets."""
    faults = []
    for each in requires:
        if each.marker is not None and not each.marker.evaluate({"extra": ""}):
            continue
        version = versions.get(canonicalize_name(each.name))
        if version is None:
            faults.append(f"{who} needs {each}, which is not here: give its wheel as well")
        elif not each.specifier.contains(version, prereleases=True):
            faults.append(f"{who} needs {each}, and here is {version}: take a version that goes with it")
    return faults


def _hidden(folder: Path, wheel: Wheel, others: Iterable[Distribution]) -> list[str]:
    """A fault for each module that would never be loaded, or would replace another plug-in's."""
    tops = {PurePosixPath(place).parts[0] for place in wheel.files.values()}
    modules = {top.partition(".")[0] for top in tops if not top.endswith(".dist-info")}
    hidden = sorted(name for name in modules if PathFinder.find_spec(name, _path_without(folder)) is not None)
    faults = [f"{wheel.name} brings a module {name}, which the program has: rename it" for name in hidden]
    for other in others:
        theirs = {str(file) for file in other.files or ()}
        if both := sorted(set(wheel.files.values()) & theirs):
            faults.append(f"{wheel.name} and {other.name} both have {both[0]}: remove one of them")
    return faults


def _path_without(folder: Path) -> list[str]:
    return [each for each in sys.path if each != str(folder)]


def _finish_earlier(folder: Path) -> None:
    """A change that was killed between its two renames has not happened."""
    old = folder.with_name(f".{folder.name}.old")
    if old.exists() and not folder.exists():
        old.rename(folder)


def _replace(folder: Path, change: Callable[[Path], None]) -> None:
    """Change a copy of the folder, and let it take the folder's place."""
    new, old = folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")
    if not folder.parent.exists():
        folder.parent.mkdir(parents=True)
        folder.parent.chmod(0o755)  # whatever the umask is: the agent's user reads what is in it
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    if folder.exists():
        shutil.copytree(folder, new)
    else:
        new.mkdir()
    change(new)
    # The agent's user reads it, and cannot write what Python compiles.
    compileall.compile_dir(new, quiet=2)
    for path in (new, *new.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _unpack(wheel: Wheel, folder: Path) -> None:
    with zipfile.ZipFile(wheel.path) as archive:
        for member, place in wheel.files.items():
            target = folder / place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(member))


def _take_out(folder: Path, name: str) -> None:
    """Remove each version of a distribution: what its RECORD lists, and what was compiled of it."""
    for found in distributions(path=[str(folder)]):
        if canonicalize_name(found.name) != name:
            continue
        for file in found.files or ():
            path = folder / str(file)
            if not path.resolve().is_relative_to(folder.resolve()):
                continue
            path.unlink(missing_ok=True)
            for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
                compiled.unlink()
            for empty in (path.parent / "__pycache__", path.parent, *path.parent.parents):
                if empty.is_relative_to(folder) and empty != folder and empty.is_dir() and not any(empty.iterdir()):
                    empty.rmdir()
        for info in folder.glob("*.dist-info"):
            if canonicalize_name(info.name.partition("-")[0]) == name:
                shutil.rmtree(info)
