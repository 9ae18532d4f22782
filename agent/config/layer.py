"""The layer that commands lay over the local file: ``config.d/remote.yaml`` in ``state_dir``.

It is laid over the local file's values as a JSON merge patch (RFC 7396): sections are merged, everything else is
replaced, and null takes a key out of the file, so that its default counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent.config.yaml_file import KeyPath, parse_sections, read_sections
from agent.errors import ConfigurationError

FOLDER: Final = "config.d"
LAYER: Final = "remote.yaml"
PROTECTED: Final = ("auth", "device", "state_dir")
"""Sections that no layer may touch: who this device is, its keys, and where its memory lies."""


def layer_path(state_dir: Path) -> Path | None:
    """The layer of this state directory; None when there is none, or when this user may not look."""
    path = state_dir / FOLDER / LAYER
    try:
        return path if path.is_file() else None
    except OSError:
        return None


def parse_layer(text: str, source: str) -> dict[str, Any]:
    """The values of a configuration layer, from its text.

    Raises:
        ConfigurationError: it is no YAML of ours, no mapping, or touches what no layer may touch.
    """
    values, _ = parse_sections(text.encode("utf-8", "surrogatepass"), source)
    return _without_protected(values, source)


def read_layer(path: Path) -> dict[str, Any]:
    """The values of a layer's file.

    Raises:
        ConfigurationError: it cannot be read or used.
    """
    return _without_protected(read_sections(path)[0], str(path))


def _without_protected(values: dict[str, Any], source: str) -> dict[str, Any]:
    faults = [f"{name}: only the local file may set it; take it out" for name in PROTECTED if name in values]
    if faults:
        raise ConfigurationError(faults, source)
    return values


def merge(target: Any, patch: Any) -> Any:
    """RFC 7396, section 2; neither argument is changed."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def leaves_of(values: Mapping[str, Any], path: KeyPath = ()) -> list[KeyPath]:
    """The path of every key that holds no section."""
    found: list[KeyPath] = []
    for name, value in values.items():
        here = (*path, name)
        found += leaves_of(value, here) if isinstance(value, dict) and value else [here]
    return found
