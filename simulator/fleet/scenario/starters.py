"""Scenarios to start from: the files of ``configs/scenarios``, which are package data of the wheel."""

from __future__ import annotations

import difflib
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError
from simulator.whole_files import cannot_write, write_whole

_SUFFIX: Final = ".yaml"


def starter_names() -> list[str]:
    """What there is, the smallest first."""
    names = sorted(item.name.removesuffix(_SUFFIX) for item in _folder().iterdir() if item.name.endswith(_SUFFIX))
    return sorted(names, key=lambda name: name != "smoke")


def starter_text(name: str) -> str:
    """One of them, with its comments.

    Raises:
        ConfigurationError: there is none of this name.
    """
    names = starter_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
        raise ConfigurationError([f"there is no scenario {name!r} to start from; {hint}"], "--from")
    return (_folder() / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


def write_starter(name: str, path: Path | None, *, force: bool) -> Path:
    """Write one of them to a file.

    Args:
        name: which.
        path: where to; None takes its name, in the current folder.
        force: overwrite a file that is there.

    Returns:
        The file.

    Raises:
        ConfigurationError: there is no such scenario, or the file is there or cannot be written.
    """
    text = starter_text(name)
    target = path or Path(f"{name}{_SUFFIX}")
    try:
        if target.exists() and not force:
            raise ConfigurationError([f"{target} is there already; give --force, or another --out"], "--out")
        write_whole(target, text)
    except OSError as error:
        raise ConfigurationError([cannot_write(target, error, "another --out")], "--out") from None
    return target


def _folder() -> Traversable:
    packed = files("simulator.fleet.scenario") / "starters"
    # A checkout has them where people look for them; only a wheel has them beside this module.
    return packed if packed.is_dir() else Path(__file__).parents[3] / "configs" / "scenarios"
