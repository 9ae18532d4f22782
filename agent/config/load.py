"""From a file and the environment to one :class:`AgentConfig`, with all faults in one message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from agent.config.credentials import inline_secrets, read_credentials
from agent.config.environment import PREFIX, overlay
from agent.config.model import AgentConfig, AuthConfig
from agent.config.text import MAX_BYTES, Document, KeyPath, dotted, read_document
from agent.errors import ConfigurationError

ModelT = TypeVar("ModelT", bound=BaseModel)

DEFAULT_PATH: Final = Path("/etc/device-agent/config.yaml")


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration that is whole and consistent.

    Attributes:
        path: the file; None when everything came from the environment.
        variables: the environment variables that took part.
    """

    config: AgentConfig
    path: Path | None
    variables: tuple[str, ...]


def load_config(path: Path | None, environ: Mapping[str, str]) -> LoadedConfig:
    """Defaults < file < environment.

    Args:
        path: the file; None takes the defaults and the environment alone.
        environ: the environment, usually ``os.environ``.

    Raises:
        ConfigurationError: every fault of file, environment and, when the section ``auth`` is whole, key files.
    """
    config, origins = load_model(AgentConfig, path, environ, PREFIX, _key_file_faults)
    return LoadedConfig(config, path, tuple(origins.values()))


def load_model(
    model: type[ModelT],
    path: Path | None,
    environ: Mapping[str, str],
    prefix: str,
    key_file_faults: Callable[[dict[str, Any], Mapping[str, str]], list[str]],
) -> tuple[ModelT, dict[KeyPath, str]]:
    """Any program's configuration: defaults < file < environment, ``state_dir`` from systemd where it is not given.

    Args:
        model: of the whole file.
        path: the file; None takes the defaults and the environment alone.
        environ: the environment.
        prefix: of the variables that set keys.
        key_file_faults: what is wrong with the key files, to be told with all other faults.

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
    values = document.values
    faults = list(document.faults)
    origins, variable_faults = overlay(values, environ, model.model_fields, prefix)
    faults += variable_faults
    faults += _take_secrets_out(values, document.lines, origins)
    if "state_dir" not in values and environ.get("STATE_DIRECTORY"):
        # systemd gives a colon-separated list; ours is the only one of the unit.
        values["state_dir"] = environ["STATE_DIRECTORY"].split(":", 1)[0]
    config: ModelT | None = None
    try:
        config = model.model_validate(values)
    except ValidationError as error:
        from agent.config.faults import sentences  # only for a file with faults

        faults += sentences(error, model, document.lines, origins)
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
    try:
        return read_document(raw.decode("utf-8-sig"))
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
            # Out of sight of every later message; the fault is told already.
            del holder[path[-1]]
    return faults


def _key_file_faults(values: dict[str, Any], environ: Mapping[str, str]) -> list[str]:
    try:
        auth = AuthConfig.model_validate(values.get("auth") or {})
        read_credentials(auth, environ)
    except ConfigurationError as error:
        return error.faults
    except ValidationError:
        return []  # told already
    return []
