"""The files that a new device begins with."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from agent.adapters.files import replace_file
from agent.app.gateway_configuration import broker_address
from agent.config import AgentConfig
from agent.config.credentials import PLACEHOLDER
from agent.config.faults import sentences
from agent.config.first_file import first_file
from agent.config.section import is_this_machine
from agent.errors import ConfigurationError

USER: Final = "device-agent"
"""As whom the unit runs the agent."""
KEY_FILES: Final = {"api_key": f"mk_{PLACEHOLDER}_THE_API_KEY_HERE", "secret_key": f"msk_{PLACEHOLDER}_THE_SECRET_KEY"}
_DEVICE_PLACEHOLDER: Final = "PASTE-THE-DEVICE-ID-HERE"
_URL_PLACEHOLDER: Final = "https://PASTE-THE-ADDRESS-HERE"
_BROKER_PLACEHOLDER: Final = "PASTE-THE-NAME-OF-THE-BROKER-HERE"
_TOKEN_PLACEHOLDER: Final = f"{PLACEHOLDER}_THE_DEVICE_TOKEN_HERE"


@dataclass(frozen=True, slots=True)
class InitialFiles:
    """Values of a first configuration; empty texts become placeholders to be filled in.

    Attributes:
        broker: HOST or HOST:PORT of the broker in front of the gateway; None for a device that speaks HTTP.
    """

    directory: Path
    base_url: str
    device_id: str
    product_id: str | None
    state_dir: Path | None
    allow_secret_key_on_device: bool
    broker: str | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """One sentence for each file, and what to do next."""

    lines: tuple[str, ...]


def write_initial_files(wanted: InitialFiles, keys: Mapping[str, str], *, force: bool) -> Written:
    """Write ``config.yaml`` and the key files.

    A key file that is there already is kept, also with ``force``: it may hold the only copy of a key.

    Raises:
        ConfigurationError: a file is there already, a value is not usable, or the directory cannot be written.
    """
    path = wanted.directory / "config.yaml"
    if path.exists() and not force:
        raise ConfigurationError([f"{path} is there already; give --force to replace it, or another --dir"], "init")
    text = first_file("device-agent", _values(wanted))
    _check(text)
    lines: list[str] = []
    try:
        wanted.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        replace_file(path, text, 0o644)
        lines.append(f"wrote {path}")
        if wanted.allow_secret_key_on_device:
            lines += [write_key(wanted.directory / name, keys.get(name, ""), USER) for name in KEY_FILES]
        elif wanted.broker is not None:
            lines.append(write_key(wanted.directory / "token", keys.get("token", ""), USER, _TOKEN_PLACEHOLDER))
    except OSError as error:
        reason = f"{error.filename or path} cannot be written: {error.strerror}; choose another --dir or use sudo"
        raise ConfigurationError([reason], "init") from None
    if not (wanted.base_url if wanted.broker is None else wanted.broker) or not wanted.device_id:
        lines.append(f"next: replace what begins with {PLACEHOLDER} in {path}")
    if wanted.broker is None and not wanted.allow_secret_key_on_device:
        lines.append("next: choose in the section auth how this device proves who it is (see docs/operations.md)")
    lines.append(f"next: device-agent check --config {path} --online")
    lines.append(f"then: device-agent run --config {path}")
    return Written(tuple(lines))


def _values(wanted: InitialFiles) -> dict[str, Any]:
    values: dict[str, Any] = {
        "device": {"device_id": wanted.device_id or _DEVICE_PLACEHOLDER},
        "sensors": [{"name": "board", "type": "system", "interval_s": 60}],
    }
    if wanted.broker is not None:
        values["mqtt"] = _broker_values(wanted.broker) if wanted.broker else {"host": _BROKER_PLACEHOLDER}
    if wanted.broker is None or wanted.base_url:
        values["service"] = {"base_url": wanted.base_url or _URL_PLACEHOLDER}
    if wanted.product_id:
        values["device"]["product_id"] = wanted.product_id
    if wanted.state_dir is not None:
        values["state_dir"] = str(wanted.state_dir)
    if wanted.allow_secret_key_on_device:
        values["auth"] = {
            "allow_secret_key_on_device": True,
            "api_key_file": str(wanted.directory / "api_key"),
            "secret_key_file": str(wanted.directory / "secret_key"),
        }
    else:
        values["auth"] = {"mode": "bearer", "token_file": str(wanted.directory / "token")}
    return values


def _broker_values(broker: str) -> dict[str, Any]:
    host, port = broker_address(broker, "init")
    values: dict[str, Any] = {"host": host} if port is None else {"host": host, "port": port}
    if is_this_machine(host):
        values["tls"] = False  # nobody is in between
    return values


def _check(text: str) -> None:
    try:
        AgentConfig.model_validate(yaml.safe_load(text))
    except ValidationError as error:
        raise ConfigurationError(sentences(error, AgentConfig), "init") from None


def write_key(path: Path, key: str, user: str, placeholder: str = "") -> str:
    """Write a key file, or keep the one that is there when no key is given; a sentence that says so.

    Mode 600; what root writes stays root's and has mode 640, for the group of the program's user.

    Args:
        path: its name says what it holds.
        key: what to write; empty writes the placeholder.
        user: as whom the program runs.
        placeholder: of a file that is not in :data:`KEY_FILES`.

    Raises:
        OSError: it could not be written.
    """
    if path.exists() and not key:
        return f"kept {path}, which was there already"
    replace_file(path, (key or placeholder or KEY_FILES[path.name]) + "\n", 0o600, group=user)
    mode = stat.S_IMODE(path.stat().st_mode)
    return f"wrote {path} (mode {mode:o})" + ("" if key else f"; replace its content by the {path.name}")
