"""The files that a new device begins with."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.app.gateway_configuration import TOKEN, broker_address, checked_file
from agent.config import AgentConfig
from agent.config.credentials import PLACEHOLDER
from agent.config.section import is_this_machine
from agent.errors import ConfigurationError
from agent.files import replace_file

USER: Final = "device-agent"
"""As whom the unit runs the agent."""
KEY_FILES: Final = {"api_key": f"mk_{PLACEHOLDER}_THE_API_KEY_HERE", "secret_key": f"msk_{PLACEHOLDER}_THE_SECRET_KEY"}
_TOKEN_PLACEHOLDER: Final = f"{PLACEHOLDER}_THE_DEVICE_TOKEN_HERE"


@dataclass(frozen=True, slots=True)
class InitialFiles:
    """Values of a first configuration.

    Attributes:
        base_url: of service or gateway; None for a device that speaks MQTT alone.
        broker: HOST or HOST:PORT of the broker in front of the gateway; None for a device that speaks HTTP.
        has_key_pair: it uses the key pair of the service instead of a token.
    """

    directory: Path
    device_id: str
    base_url: str | None = None
    broker: str | None = None
    product_id: str | None = None
    state_dir: Path | None = None
    has_key_pair: bool = False


def write_initial_files(wanted: InitialFiles, *, force: bool) -> tuple[str, ...]:
    """Write ``config.yaml`` and files for the keys; one sentence for each, and what to do next.

    A key file that is there already is kept, also with ``force``: it may hold the only copy of a key.

    Raises:
        ConfigurationError: a file is there already, a value is not usable, or the directory cannot be written.
    """
    path = wanted.directory / "config.yaml"
    if path.exists() and not force:
        raise ConfigurationError([f"{path} is there already; give --force to replace it, or another --dir"], "init")
    text = checked_file(AgentConfig, "device-agent", _values(wanted), "init")
    names = list(KEY_FILES) if wanted.has_key_pair else [TOKEN]
    try:
        wanted.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        replace_file(path, text, 0o644)
        lines = [f"wrote {path}"]
        lines += [write_key(wanted.directory / name, "", USER, _TOKEN_PLACEHOLDER) for name in names]
    except OSError as error:
        reason = f"{error.filename or path} cannot be written: {error.strerror}; choose another --dir or use sudo"
        raise ConfigurationError([reason], "init") from None
    check, run = f"device-agent check --config {path} --online", f"device-agent run --config {path}"
    return (*lines, f"next: {check}", f"then: {run}")


def _values(wanted: InitialFiles) -> dict[str, Any]:
    directory = wanted.directory
    values: dict[str, Any] = {
        "device": {"device_id": wanted.device_id},
        "auth": {"mode": "bearer", "token_file": str(directory / TOKEN)},
        "sensors": [{"name": "board", "type": "system", "interval_s": 60}],
    }
    if wanted.has_key_pair:
        values["auth"] = {f"{name}_file": str(directory / name) for name in KEY_FILES}
        values["auth"]["allow_secret_key_on_device"] = True
    if wanted.base_url is not None:
        values["service"] = {"base_url": wanted.base_url}
    if wanted.broker is not None:
        host, port = broker_address(wanted.broker, "init")
        # With a broker on this machine nobody is in between.
        values["mqtt"] = {"host": host, "tls": not is_this_machine(host), **({"port": port} if port else {})}
    if wanted.product_id:
        values["device"]["product_id"] = wanted.product_id
    if wanted.state_dir is not None:
        values["state_dir"] = str(wanted.state_dir)
    return values


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
    replace_file(path, (key or KEY_FILES.get(path.name, placeholder)) + "\n", 0o600, group=user)
    mode = stat.S_IMODE(path.stat().st_mode)
    return f"wrote {path} (mode {mode:o})" + ("" if key else f"; replace its content by the {path.name}")
