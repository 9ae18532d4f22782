"""One configuration of defaults, the file, what a command changed, and the environment; all faults at once.

What ``update_config`` changed is a layer over the local file, ``config.d/remote.yaml`` in ``state_dir``: a JSON merge
patch (RFC 7396), in which sections are merged, everything else is replaced, and null takes a key out of the file, so
that its default counts. A variable such as ``DEVICE_AGENT_SERVICE__BASE_URL`` sets one key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from agent.config.credentials import INLINE_KEY_REFUSAL, find_secrets
from agent.config.faults import place_of, sentences
from agent.config.model import AgentConfig
from agent.config.yaml_file import KeyPath, Lines, dotted, parse_sections, parse_yaml, read_sections
from agent.errors import ConfigurationError

ModelT = TypeVar("ModelT", bound=BaseModel)

DEFAULT_PATH: Final = Path("/etc/device-agent/config.yaml")
PREFIX: Final = "DEVICE_AGENT_"
FOLDER: Final = "config.d"
LAYER: Final = "remote.yaml"
PROTECTED: Final = ("auth", "device", "state_dir")
"""Sections that no layer may touch: who this device is, its keys, and where its memory lies."""
_OTHER_FILE: Final = "; name one that this user may read with --config FILE; configs/ has examples"


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration that is whole and consistent.

    Attributes:
        path: the file; None when everything came from the environment.
        layer_fault: why what ``update_config`` changed does not count; empty when it does, or when there is nothing.
    """

    config: AgentConfig
    path: Path | None
    layer_fault: str = ""


def load_config(path: Path | None, environ: Mapping[str, str]) -> LoadedConfig:
    """Defaults < file < what ``update_config`` changed < environment.

    A layer of ``update_config`` that cannot be used does not count, since an agent that does not start could not take
    a better one.

    Args:
        path: the file; None takes the defaults and the environment alone.
        environ: the environment, usually ``os.environ``.

    Raises:
        ConfigurationError: every fault of file and environment.
    """
    layer = layer_path(state_dir_of(AgentConfig, path, environ, PREFIX))
    fault = ""
    if layer is not None:
        try:
            return LoadedConfig(load_layered(path, environ, read_layer(layer)), path)
        except ConfigurationError as error:
            fault = f"{layer}: {'; '.join(error.faults)}"
    return LoadedConfig(load_layered(path, environ, {}), path, fault)


def load_layered(path: Path | None, environ: Mapping[str, str], layer: Mapping[str, Any]) -> AgentConfig:
    """Defaults < file < these values < environment.

    Raises:
        ConfigurationError: every fault.
    """
    return load_model(AgentConfig, path, environ, PREFIX, layer)


def state_dir_of(model: type[BaseModel], path: Path | None, environ: Mapping[str, str], prefix: str) -> Path:
    """The state directory, before anything else of the configuration counts; its faults are reported later."""
    given: Any = environ.get(f"{prefix}STATE_DIR", "").strip()
    if not given and path is not None:
        with suppress(ConfigurationError):
            given = read_sections(path)[0].get("state_dir")
    return Path(given if isinstance(given, str) and given else model.model_fields["state_dir"].default)


def load_model(
    model: type[ModelT], path: Path | None, environ: Mapping[str, str], prefix: str, layer: Mapping[str, Any] = {}
) -> ModelT:
    """Any program's configuration: defaults < file < environment.

    Args:
        model: of the whole file.
        path: the file; None takes the defaults and the environment alone.
        environ: the environment.
        prefix: of the variables that set keys.
        layer: values laid over the file's.

    Raises:
        ConfigurationError: every fault; where a secret stands in the file or the environment, this one alone.
    """
    source = str(path or "environment")
    lines: Lines = {}
    values: dict[str, Any] = {}
    if path is not None:
        values, lines = read_sections(path, hint=_OTHER_FILE)
    values = merge(values, layer)
    origins = dict.fromkeys(leaves_of(layer), "update_config")
    origins |= _overlay(values, environ, model.model_fields, prefix)
    places = [f"{dotted(key)}{place_of(key, lines, origins)}" for key in find_secrets(values)]
    if places:
        raise ConfigurationError([f"{place}: {INLINE_KEY_REFUSAL}" for place in places], source)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(sentences(error, model, lines, origins), source) from None


def _overlay(
    values: dict[str, Any], environ: Mapping[str, str], keys: Collection[str], prefix: str
) -> dict[KeyPath, str]:
    """Put the environment's values into ``values``, in place; which variable set which key.

    ``__`` goes one level down; a value that begins with ``[`` or ``{`` is read as YAML, so that a whole list fits; an
    empty variable counts as not set. Variables without ``__`` that are no key of the top level belong to options of
    the command line.

    Raises:
        ConfigurationError: a variable cannot be used.
    """
    used: dict[KeyPath, str] = {}
    for variable in sorted(environ):
        text = environ[variable]
        path = tuple(variable.removeprefix(prefix).lower().split("__"))
        if not variable.startswith(prefix) or not text.strip() or (len(path) == 1 and path[0] not in keys):
            continue
        holder: Any = values
        for step in path[:-1]:
            if holder.get(step) is None:
                holder[step] = {}
            holder = holder[step]
            if not isinstance(holder, dict):
                raise ConfigurationError([f"{step} is no section; give the whole of it as one YAML value"], variable)
        holder[path[-1]] = parse_yaml(text, variable)[0] if text.lstrip()[:1] in {"[", "{"} else text
        used[path] = variable
    return used


# --- the layer of update_config ---------------------------------------------------------------------------------------


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


# --- what differs -----------------------------------------------------------------------------------------------------

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
