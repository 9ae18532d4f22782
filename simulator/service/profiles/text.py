"""Profiles as people write them: a name, a file, ``axis=value,...``, or a JSON object of axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from agent.errors import ConfigurationError
from simulator.service.errors import nearest
from simulator.service.profiles.model import AXES, COMPLETE, EXTENSIONS, PROFILES, ServerProfile, values_of

BASE: Final = "base"
"""In a file or a body: the named profile that the other axes are changes of."""
Faults = list[tuple[str, str]]


class ProfileFaultsError(Exception):
    """What a profile's text gets wrong.

    Attributes:
        faults: (axis, issue) for each.
    """

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        super().__init__("; ".join(f"{axis}: {issue}" for axis, issue in faults))


def change(profile: ServerProfile, axes: Mapping[str, Any]) -> ServerProfile:
    """The profile with some axes changed; ``base`` replaces all of them first.

    Raises:
        ProfileFaultsError: unknown axes or values, all at once.
    """
    faults: Faults = []
    wanted = dict(axes)
    base = wanted.pop(BASE, None)
    if base is not None:
        named = PROFILES.get(base) if isinstance(base, str) else None
        if named is None:
            faults.append((BASE, f"must be one of: {', '.join(PROFILES)}{nearest(str(base), PROFILES)}"))
        profile = named or profile
    for axis in wanted:
        if axis not in AXES:
            faults.append((str(axis), f"there is no such axis{nearest(str(axis), AXES)}; axes: {', '.join(AXES)}"))
    known = {axis: value for axis, value in wanted.items() if axis in AXES}
    try:
        changed = ServerProfile.model_validate({**profile.model_dump(), **known})
    except ValidationError as exc:
        wrong = dict.fromkeys(str(fault["loc"][0]) for fault in exc.errors(include_url=False, include_input=False))
        faults.extend((axis, _issue(axis, known.get(axis))) for axis in wrong)
        raise ProfileFaultsError(faults) from None
    if faults:
        raise ProfileFaultsError(faults)
    return changed


def read_all(texts: Sequence[str]) -> ServerProfile:
    """What several ``--profile`` options give together: the later one changes what the earlier ones said.

    Raises:
        ConfigurationError: naming the text, the axis and its values.
    """
    profile = COMPLETE
    faults: list[str] = []
    for text in texts:
        try:
            profile = _read(profile, text)
        except ProfileFaultsError as exc:
            faults.extend(f"--profile {text}: {axis}: {issue}" for axis, issue in exc.faults)
    if faults:
        raise ConfigurationError(faults, "service")
    return profile


def name_of(profile: ServerProfile) -> str:
    """The profile's name, or how it differs from the complete service: ``id_name=_id,list_shape=bare``."""
    for name, known in PROFILES.items():
        if profile == known:
            return name
    differing = (axis for axis in AXES if getattr(profile, axis) != getattr(COMPLETE, axis))
    return ",".join(f"{axis}={_write(getattr(profile, axis))}" for axis in differing)


def _read(profile: ServerProfile, text: str) -> ServerProfile:
    if text in PROFILES:
        return PROFILES[text]
    if Path(text).suffix in {".yaml", ".yml", ".json"}:
        return change(profile, _read_file(Path(text)))
    if "=" not in text:
        issue = f"is no profile{nearest(text, PROFILES)}: give {', '.join(PROFILES)}, axis=value,... or a .yaml file"
        raise ProfileFaultsError([(text or "(empty)", issue)])
    axes: dict[str, Any] = {}
    for part in text.split(","):
        axis, equals, value = part.partition("=")
        if not equals:
            issue = "must be axis=value; commas separate the axes"
            if axis.strip() in PROFILES:
                issue += f", and a profile goes before them in an option of its own: --profile {axis.strip()}"
            raise ProfileFaultsError([(axis.strip() or "(empty)", issue)])
        axes[axis.strip()] = _read_value(axis.strip(), value.strip())
    return change(profile, axes)


def _read_value(axis: str, value: str) -> Any:
    if axis == "extensions":
        words = {"all": EXTENSIONS, "none": ()}
        return words.get(value, tuple(value.split("+")))
    if axis in AXES and isinstance(getattr(COMPLETE, axis), int):
        try:
            return int(value)
        except ValueError:
            return value
    return value


def _read_file(path: Path) -> Mapping[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ProfileFaultsError([(str(path), f"cannot be read: {exc.strerror}")]) from None
    except (UnicodeDecodeError, yaml.YAMLError):
        raise ProfileFaultsError([(str(path), "is not YAML: write one axis: value on each line")]) from None
    if not isinstance(found, dict):
        raise ProfileFaultsError([(str(path), "must hold axis: value on each line")])
    return found


def _issue(axis: str, value: Any) -> str:
    field = ServerProfile.model_json_schema()["properties"][axis]
    if axis == "extensions":
        given = value if isinstance(value, list | tuple) else [value]
        wrong = next((str(one) for one in given if one not in EXTENSIONS), str(value))
        return f"{wrong!r} is no extension{nearest(wrong, EXTENSIONS)}; extensions: {', '.join(EXTENSIONS)}"
    if "minimum" in field:
        return f"must be a whole number from {field['minimum']} to {field['maximum']}"
    allowed = [str(one) for one in values_of(axis)]
    return f"must be one of: {', '.join(allowed)}{nearest(str(value), allowed)}"


def _write(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(value) or "none"
    return str(value)
