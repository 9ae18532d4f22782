"""From a file and the environment (``DEVICE_AGENT_SERVICE__BASE_URL``) to one configuration; all faults at once."""

from __future__ import annotations

import difflib
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, RootModel, ValidationError

from agent.config.credentials import inline_secrets, read_credentials
from agent.config.faults import sentences
from agent.config.layer import merge, origins_of, read_layer
from agent.config.model import AgentConfig, AuthConfig
from agent.config.text import MAX_BYTES, Document, KeyPath, dotted, read_document
from agent.errors import ConfigurationError

ModelT = TypeVar("ModelT", bound=BaseModel)

DEFAULT_PATH: Final = Path("/etc/device-agent/config.yaml")
PREFIX: Final = "DEVICE_AGENT_"


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration that is whole and consistent.

    Attributes:
        path: the file; None when everything came from the environment.
        variables: the environment variables that took part.
        layer: the file with what ``update_config`` changed; None when there is none, or when it cannot be used.
        layer_fault: why a layer that is there does not count; empty when none does not.
    """

    config: AgentConfig
    path: Path | None
    variables: tuple[str, ...]
    layer: Path | None = None
    layer_fault: str = ""


def find_layer(state_dir: Path) -> Path | None:
    """The layer in force; None when there is none, or when this user may not look."""
    try:
        if not (state_dir / "config.d").is_dir():
            return None
        from agent.config.layer import layer_in_force  # only where update_config was ever used

        return layer_in_force(state_dir)
    except OSError:
        return None


FindLayer = Callable[[Path], Path | None]


def load_config(path: Path | None, environ: Mapping[str, str], find_layer: FindLayer = find_layer) -> LoadedConfig:
    """Defaults < file < what ``update_config`` changed < environment.

    A layer of ``update_config`` that cannot be used does not count, since an agent that does not start could not take
    a better one.

    Args:
        path: the file; None takes the defaults and the environment alone.
        environ: the environment, usually ``os.environ``.
        find_layer: given the state directory, where the layer lies.

    Raises:
        ConfigurationError: every fault of file, environment and, when the section ``auth`` is whole, key files.
    """
    layer = find_layer(state_dir_of(AgentConfig, path, environ, PREFIX))
    fault = ""
    if layer is not None:
        try:
            config, origins = load_layered(path, environ, read_layer(layer))
            return LoadedConfig(config, path, tuple(origins.values()), layer)
        except ConfigurationError as error:
            fault = f"{layer}: {'; '.join(error.faults)}"
    config, origins = load_model(AgentConfig, path, environ, PREFIX, _key_file_faults)
    return LoadedConfig(config, path, tuple(origins.values()), None, fault)


def load_layered(
    path: Path | None, environ: Mapping[str, str], layer: Mapping[str, Any]
) -> tuple[AgentConfig, dict[KeyPath, str]]:
    """Defaults < file < these values < environment; which variable set which key.

    Raises:
        ConfigurationError: every fault.
    """
    return load_model(AgentConfig, path, environ, PREFIX, _key_file_faults, layer=layer)


def state_dir_of(model: type[BaseModel], path: Path | None, environ: Mapping[str, str], prefix: str) -> Path:
    """The state directory, before anything else of the configuration counts; its faults are reported later.

    Args:
        model: of the whole file.
        path: the file; None takes the defaults and the environment alone.
        environ: the environment.
        prefix: of the variables that set keys.
    """
    given: Any = environ.get(f"{prefix}STATE_DIR", "").strip()
    if not given and path is not None:
        try:
            values = _read(path).values
        except ConfigurationError:
            values = None
        given = values.get("state_dir") if isinstance(values, dict) else None
    if not isinstance(given, str) or not given:
        given = environ.get("STATE_DIRECTORY", "").split(":", 1)[0]
    return Path(given) if given else Path(model.model_fields["state_dir"].default)


def load_model(
    model: type[ModelT],
    path: Path | None,
    environ: Mapping[str, str],
    prefix: str,
    key_file_faults: Callable[[dict[str, Any], Mapping[str, str]], list[str]],
    *,
    layer: Mapping[str, Any] | None = None,
) -> tuple[ModelT, dict[KeyPath, str]]:
    """Any program's configuration: defaults < file < environment, ``state_dir`` from systemd where it is not given.

    Args:
        model: of the whole file.
        path: the file; None takes the defaults and the environment alone.
        environ: the environment.
        prefix: of the variables that set keys.
        key_file_faults: what is wrong with the key files, to be reported with all other faults.
        layer: values laid over the file's.

    Returns:
        The configuration, and which variable set which key.

    Raises:
        ConfigurationError: every fault.
    """
    document = _read(path)
    if document.values is None:
        document.values = {}
    if not isinstance(document.values, dict):
        raise ConfigurationError(["the file must hold sections such as 'service:', not a list or a word"], str(path))
    values: dict[str, Any] = document.values
    faults = list(document.faults)
    sources: dict[KeyPath, str] = {}
    if layer is not None:
        values = merge(values, layer)
        sources = origins_of(layer, "update_config")
    origins, variable_faults = overlay(values, environ, model.model_fields, prefix)
    faults += variable_faults
    sources |= origins
    faults += _take_secrets_out(values, document.lines, sources)
    if "state_dir" not in values and environ.get("STATE_DIRECTORY"):
        # systemd gives a colon-separated list; ours is the only one of the unit.
        values["state_dir"] = environ["STATE_DIRECTORY"].split(":", 1)[0]
    config: ModelT | None = None
    try:
        # A validator for this once: the model would keep its own for good, and it is worth more than the agent's code.
        config = RootModel[model].model_validate(values).root  # type: ignore[valid-type]  # it is a class at run time
    except ValidationError as error:
        faults += sentences(error, model, document.lines, sources)
    if faults or config is None:
        raise ConfigurationError(faults + key_file_faults(values, environ), str(path or "environment"))
    return config, origins


def _read(path: Path | None) -> Document:
    if path is None:
        return Document()
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        fault = "there is no such file; write one with device-agent init, or name yours with --config FILE"
        raise ConfigurationError([fault], str(path)) from None
    except OSError as error:
        fault = f"cannot be read: {error.strerror}; name a file that this user may read with --config FILE"
        raise ConfigurationError([fault], str(path)) from None
    if len(raw) > MAX_BYTES:
        raise ConfigurationError([f"is larger than {MAX_BYTES} bytes; is it the right file?"], str(path))
    raw = raw.removeprefix(BOM_UTF8)
    try:
        return read_document(raw.decode())
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigurationError([f"line {line} is not UTF-8 text; save the file as UTF-8"], str(path)) from None


def _take_secrets_out(values: dict[str, Any], lines: dict[KeyPath, int], origins: dict[KeyPath, str]) -> list[str]:
    faults = []
    for path, instead in inline_secrets(values):
        line = lines.get(path)
        where = f" (from {origins[path]})" if path in origins else f" (line {line})" if line else ""
        faults.append(f"{dotted(path)}{where}: {instead}")
        holder: Any = values
        for step in path[:-1]:
            holder = holder[int(step)] if isinstance(holder, list) else holder[step]
        if isinstance(holder, dict):
            # Out of sight of every later message; the fault is reported already.
            del holder[path[-1]]
    return faults


def _key_file_faults(values: dict[str, Any], environ: Mapping[str, str]) -> list[str]:
    try:
        auth = AuthConfig.model_validate(values.get("auth") or {})
        read_credentials(auth, environ)
    except ConfigurationError as error:
        return error.faults
    except ValidationError:
        return []  # reported already
    return []


def overlay(
    values: dict[str, Any], environ: Mapping[str, str], keys: Collection[str], prefix: str = PREFIX
) -> tuple[dict[KeyPath, str], list[str]]:
    """Put the environment's values into ``values``, in place.

    ``__`` goes one level down; a value that begins with ``[`` or ``{`` is read as YAML, so that a whole list fits; an
    empty variable counts as not set. Variables without ``__`` that are no key of the top level belong to options of
    the command line and are left alone, unless they look like a misspelt key.

    Args:
        values: what the file holds.
        environ: the environment.
        keys: of the top level.
        prefix: of the variables.

    Returns:
        Which variable set which key, and one sentence for each variable that could not be used.
    """
    origins: dict[KeyPath, str] = {}
    faults: list[str] = []
    for variable in sorted(environ):
        if not variable.startswith(prefix) or not environ[variable].strip():
            continue
        path = tuple(variable.removeprefix(prefix).lower().split("__"))
        if len(path) == 1 and path[0] not in keys:
            near = difflib.get_close_matches(path[0], list(keys), n=1, cutoff=0.8)
            if near:
                faults.append(f"{variable}: no such key; did you mean {prefix}{near[0].upper()}?")
            continue
        fault = _put(values, path, environ[variable], variable)
        if fault:
            faults.append(fault)
        else:
            origins[path] = variable
    return origins, faults


def _put(values: dict[str, Any], path: tuple[str, ...], text: str, variable: str) -> str | None:
    holder: Any = values
    for depth, step in enumerate(path[:-1], start=1):
        if holder.get(step) is None:
            holder[step] = {}
        holder = holder[step]
        if not isinstance(holder, dict):
            return f"{variable}: {dotted(path[:depth])} is no section; give the whole of it as one YAML value"
    if text.lstrip()[:1] in {"[", "{"}:
        document = read_document(text)
        if document.faults:
            return f"{variable}: {document.faults[0]}"
        holder[path[-1]] = document.values
    else:
        holder[path[-1]] = text
    return None
