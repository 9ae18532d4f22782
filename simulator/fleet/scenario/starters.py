"""Scenarios to start from: the files of ``configs/scenarios``, which are package data of the wheel."""

from __future__ import annotations

import contextlib
import difflib
import json
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError
from simulator.fleet.scenario.model import scenario_schema, schema_text
from simulator.whole_files import cannot_write, write_whole

_SUFFIX: Final = ".yaml"
SCHEMA_FILE: Final = "fleet-scenario.schema.json"
_SCHEMA_LINE: Final = "# yaml-language-server: $schema="
"""Editors with the YAML language server read the schema's path after it, from the file's folder."""


def starter_names() -> list[str]:
    """What there is, the smallest first."""
    names = sorted(item.name.removesuffix(_SUFFIX) for item in _folder().iterdir() if item.name.endswith(_SUFFIX))
    return sorted(names, key=lambda name: name != "smoke")


def starter_text(name: str) -> str:
    """The text of a starter scenario, with its comments.

    Raises:
        ConfigurationError: there is none of this name.
    """
    names = starter_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
        raise ConfigurationError([f"there is no scenario {name!r} to start from; {hint}"], "--from")
    return (_folder() / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


def write_scenario(path: Path, text: str, *, force: bool) -> tuple[Path, Path]:
    """Write a scenario, and the JSON Schema that its first line names for editors.

    Args:
        path: of the scenario; the schema comes beside it.
        text: of the scenario.
        force: overwrite files that are there. A schema of this program always is.

    Returns:
        What was written, the scenario first.

    Raises:
        ConfigurationError: a file is there already, or cannot be written; then none is there that was not before.
    """
    wanted = {
        path: f"{_SCHEMA_LINE}{SCHEMA_FILE}\n{text}",
        path.parent / SCHEMA_FILE: schema_text(),
    }
    new: list[Path] = []
    path_now = path
    try:
        there = [each for each in wanted if each.exists() and not (force or _is_our_schema(each))]
        if there:
            names = ", ".join(map(str, there))
            is_one = "is" if len(there) == 1 else "are"
            raise ConfigurationError([f"{names} {is_one} there already; give --force, or another --out"], "--out")
        for path_now, content in wanted.items():
            if not path_now.exists():
                new.append(path_now)
            write_whole(path_now, content)
    except OSError as error:
        for each in new:
            with contextlib.suppress(OSError):
                each.unlink(missing_ok=True)
        raise ConfigurationError([cannot_write(path_now, error, "another --out")], "--out") from None
    return path, path.parent / SCHEMA_FILE


def _is_our_schema(path: Path) -> bool:
    if path.name != SCHEMA_FILE:
        return False
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and document.get("title") == scenario_schema()["title"]


def _folder() -> Traversable:
    packed = files("simulator.fleet.scenario") / "starters"
    # A checkout has them where people look for them; only a wheel has them beside this module.
    return packed if packed.is_dir() else Path(__file__).parents[3] / "configs" / "scenarios"
