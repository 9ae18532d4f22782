"""The keys that differ between two configurations, and which of them a sender may change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent.config.model import AgentConfig

Key = tuple[str, ...]
"""A key's steps; a sensor's is its name: ``("sensors", "board", "interval_s")``."""


def changed_keys(old: AgentConfig, new: AgentConfig) -> list[Key]:
    """The keys whose value is another one, sorted; what is there in only one of the two is one key as a whole."""
    return sorted(_differing(_plain(old), _plain(new), ()))


def is_covered(key: Key, patterns: Iterable[str]) -> bool:
    """A pattern names this key or a section that it is in; ``*`` stands for one step."""
    for pattern in patterns:
        steps = pattern.split(".")
        if len(steps) <= len(key) and all(step in {"*", name} for step, name in zip(steps, key, strict=False)):
            return True
    return False


def _plain(config: AgentConfig) -> dict[str, Any]:
    values = config.model_dump(mode="json")
    # By name: a sensor that moved in the list is the same sensor.
    values["sensors"] = {sensor["name"]: sensor for sensor in values["sensors"]}
    return values


def _differing(old: Any, new: Any, path: Key) -> Iterable[Key]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in old.keys() | new.keys():
            here = (*path, str(name))
            if name in old and name in new:
                yield from _differing(old[name], new[name], here)
            else:
                yield here
    elif old != new:
        yield path
