"""From a file and the environment (``DEVICE_AGENT_SERVICE__BASE_URL``) to one configuration; all faults at once."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from agent.config.credentials import inline_secrets, read_credentials
from agent.config.faults import sentences
from agent.config.layer import layer_path, leaves_of, merge, read_layer
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


def load_config(path: Path | None, environ: Mapping[str, str]) -> LoadedConfig:
    """Defaults < file < what ``update_config`` changed < environment.

    A layer of ``update_config`` that cannot be used does not count, since an agent that does not start could not take
    a better one.

    Args:
        path: the file; None takes the defaults and the environment alone.
        environ: the environment, usually ``os.environ``.

    Raises:
        ConfigurationError: every fault of file, environment and, when the section ``auth`` is whole, key files.
    """
    layer = layer_path(state_dir_of(AgentConfig, path, environ, PREFIX))
    fault = ""
    if layer is not None:
        try:
            config, variables = load_layered(path, environ, read_layer(layer))
            return LoadedConfig(config, path, variables, layer)
        except ConfigurationError as error:
            fault = f"{layer}: {'; '.join(error.faults)}"
    config, variables = load_layered(path, environ, {})
    return LoadedConfig(config, path, variables, None, fault)


def load_layered(
    path: Path | None, environ: Mapping[str, str], layer: Mapping[str, Any]
) -> tuple[AgentConfig, tuple[str, ...]]:
    """Defaults < file < these values < environment; and the variables that took part.

    Raises:
        ConfigurationError: every fault.
    """
    return load_model(AgentConfig, path, environ, PREFIX, auth=AuthConfig.model_validate, layer=layer)


def state_dir_of(model: type[BaseModel], path: Path | None, environ: Mapping[str, str], prefix: str) -> Path:
    """The state directory, before anything else of the configuration counts; its faults are reported later.

    Args:
        model: of the whole file.
        path: the file; None takes the defaults and the environment alone.
        environ: the environment.
        prefix: of the variables that set keys.
    """
    given: Any = environ.get(f"{prefix}STATE_DIR", "").strip()
    if not given:
        try:
            values = _read(path).values
        except ConfigurationError:
            values = None
        given = values.get("state_dir") if isinstance(values, dict) else None
    if not isinstance(given, str) or not given:
        given = _systemds_directory(environ)
    return Path(given) if given else Path(model.model_fields["state_dir"].default)


def _systemds_directory(environ: Mapping[str, str]) -> str:
    # systemd gives a colon-separated list; ours is the only one of the unit.
    return environ.get("STATE_DIRECTORY", "").split(":", 1)[0]


def load_model(
    model: type[ModelT],
    path: Path | None,
    environ: Mapping[str, str],
    prefix: str,
    *,
    auth: Callable[[Any], AuthConfig] | None,
    layer: Mapping[str, Any] | None = None,
) -> tuple[ModelT, tuple[str, ...]]:
    """Any program's configuration: defaults < file < environment, ``state_dir`` from systemd where it is not given.

    Args:
        model: of the whole file.
        path: the file; None takes the defaults and the environment alone.
        environ: the environment.
        prefix: of the variables that set keys.
        auth: makes of the section ``auth`` which key files there are, to report their faults with all others; None
            leaves them alone.
        layer: values laid over the file's.

    Returns:
        The configuration, and the environment variables that took part.

    Raises:
        ConfigurationError: every fault.
    """
    document = _read(path)
    if document.values is not None and not isinstance(document.values, dict):
        raise ConfigurationError(["the file must hold sections such as 'service:', not a list or a word"], str(path))
    faults = list(document.faults)
    values: dict[str, Any] = merge(document.values or {}, layer or {})
    origins = dict.fromkeys(leaves_of(layer or {}), "update_config")
    variables, variable_faults = _overlay(values, environ, model.model_fields, prefix)
    faults += variable_faults
    origins |= variables
    faults += _take_secrets_out(values, document.lines, origins)
    if "state_dir" not in values and _systemds_directory(environ):
        values["state_dir"] = _systemds_directory(environ)
    config: ModelT | None = None
    try:
        config = model.model_validate(values)
    except ValidationError as error:
        faults += sentences(error, model, document.lines, origins)
    if auth is not None and (faults or config is None):
        with suppress(ValidationError):  # reported already
            faults += _key_file_faults(auth(values.get("auth") or {}), environ)
    if faults or config is None:
        raise ConfigurationError(faults, str(path or "environment"))
    return config, tuple(variables.values())


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


def _key_file_faults(auth: AuthConfig, environ: Mapping[str, str]) -> list[str]:
    try:
        read_credentials(auth, environ)
    except ConfigurationError as error:
        return error.faults
    return []


def _overlay(
    values: dict[str, Any], environ: Mapping[str, str], keys: Collection[str], prefix: str
) -> tuple[dict[KeyPath, str], list[str]]:
    """Put the environment's values into ``values``, in place: which variable set which key, and what is wrong.

    ``__`` goes one level down; a value that begins with ``[`` or ``{`` is read as YAML, so that a whole list fits; an
    empty variable counts as not set. Variables without ``__`` that are no key of the top level belong to options of
    the command line.
    """
    used: dict[KeyPath, str] = {}
    faults: list[str] = []
    for variable in sorted(environ):
        if not variable.startswith(prefix) or not environ[variable].strip():
            continue
        path = tuple(variable.removeprefix(prefix).lower().split("__"))
        if len(path) > 1 or path[0] in keys:
            fault = _put(values, path, environ[variable], variable)
            faults += [fault] if fault else []
            used[path] = variable
    return used, faults


def _put(values: dict[str, Any], path: tuple[str, ...], text: str, variable: str) -> str:
    holder: Any = values
    for depth, step in enumerate(path[:-1], start=1):
        if holder.get(step) is None:
            holder[step] = {}
        holder = holder[step]
        if not isinstance(holder, dict):
            return f"{variable}: {dotted(path[:depth])} is no section; give the whole of it as one YAML value"
    holder[path[-1]] = text
    if text.lstrip()[:1] in {"[", "{"}:
        document = read_document(text)
        holder[path[-1]] = document.values
        return f"{variable}: {document.faults[0]}" if document.faults else ""
    return ""
