"""The keys that differ between two configurations: which a sender may change, and which need a restart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from agent.config.model import AgentConfig

Key = tuple[str, ...]
"""A key's steps; a sensor's is its name: ``("sensors", "board", "interval_s")``."""


LIVE: Final = (
    "logging.level",
    "logging.format",
    "commands.poll.fast_s",
    "commands.poll.idle_s",
    "sensors.*.interval_s",
    "sensors.*.report",
    "safe_mode",
)
"""The keys that come into force in the running agent; for every other key it restarts."""


def changed_keys(old: AgentConfig, new: AgentConfig) -> list[Key]:
    """The keys whose value is another one, sorted; what is there in only one of the two is one key as a whole."""
    return sorted(_differing(_plain(old), _plain(new), ()))


def needs_restart(old: AgentConfig, new: AgentConfig) -> tuple[list[Key], list[Key]]:
    """The keys that changed, and those among them that only a restart brings into force."""
    changed = changed_keys(old, new)
    # Their order decides which sensor may call its readings by their short names.
    if [sensor.name for sensor in old.sensors] != [sensor.name for sensor in new.sensors]:
        changed = sorted({*changed, ("sensors",)})
    return changed, [key for key in changed if not is_covered(key, LIVE)]


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
