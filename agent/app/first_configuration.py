"""The files that a new device begins with: one template of a configuration, and files for its keys."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ValidationError

from agent.config import AgentConfig
from agent.config.credentials import PLACEHOLDER
from agent.config.faults import sentences
from agent.errors import ConfigurationError
from agent.files import replace_file
from agent.wire.address import host_and_port
from agent.wire.enrollment import EnrollmentAnswer

CONFIGURATION: Final = "config.yaml"
TOKEN: Final = "token"  # noqa: S105 - a file's name
AUTHORITY: Final = "ca.pem"
USER: Final = "device-agent"
"""As whom the unit runs the agent."""
KEY_FILES: Final = {"api_key": f"mk_{PLACEHOLDER}_THE_API_KEY_HERE", "secret_key": f"msk_{PLACEHOLDER}_THE_SECRET_KEY"}
TOKEN_PLACEHOLDER: Final = f"{PLACEHOLDER}_THE_DEVICE_TOKEN_HERE"


def device_configuration(
    directory: Path,
    device_id: str,
    *,
    product_id: str | None = None,
    service: Mapping[str, Any] | None,
    mqtt: Mapping[str, Any] | None = None,
    has_key_pair: bool = False,
    state_dir: Path | None = None,
    source: str,
) -> str:
    """The text of ``config.yaml`` of a device.

    Args:
        directory: where the files with token or keys lie on the device.
        device_id: of the device.
        product_id: of its product; None where it is not known.
        service: the section ``service``; None for a device that speaks MQTT alone.
        mqtt: the section ``mqtt``; None for a device that speaks HTTP alone.
        has_key_pair: it uses the key pair of the service instead of a token.
        state_dir: of journal and outbox; None for the default.
        source: what an error is about.

    Raises:
        ConfigurationError: the values do not make one.
    """
    auth: dict[str, Any] = {"mode": "bearer", "token_file": str(directory / TOKEN)}
    if has_key_pair:
        auth = {"allow_secret_key_on_device": True, **{f"{name}_file": str(directory / name) for name in KEY_FILES}}
    values = {
        "device": {"device_id": device_id, **({"product_id": product_id} if product_id else {})},
        "auth": auth,
        "sensors": [{"name": "board", "type": "system", "interval_s": 60}],
        "service": service,
        "mqtt": mqtt,
        "state_dir": None if state_dir is None else str(state_dir),
    }
    given = {name: value for name, value in values.items() if value is not None}
    return checked_file(AgentConfig, "device-agent", given, source)


def gateway_configuration(handed: EnrollmentAnswer, device_dir: Path) -> str:
    """The text of ``config.yaml`` for a device that a gateway has handed this.

    Args:
        handed: what the gateway gave it.
        device_dir: where the token's and the authority's files lie on the device.

    Raises:
        ConfigurationError: the addresses do not make one.
    """
    source = "the device's configuration"
    authority = {} if handed.authority is None else {"ca_file": str(device_dir / AUTHORITY)}
    service: dict[str, Any] | None = None
    mqtt: dict[str, Any] | None = None
    if handed.url is not None:
        is_plain = handed.url.startswith("http:")
        service = {"base_url": handed.url, **({"allow_plain_http": True} if is_plain and handed.plain else {})}
        service |= {} if is_plain else authority
    if handed.broker is not None:
        try:
            host, port = host_and_port(handed.broker)
        except ValueError as error:
            raise ConfigurationError([f"--broker: {error}"], source) from None
        mqtt = {"host": host, **({} if port is None else {"port": port})}
        mqtt |= {"tls": False, "allow_plain_mqtt": True} if handed.plain else {"tls": True, **authority}
    return device_configuration(
        device_dir, handed.device_id, product_id=handed.product_id, service=service, mqtt=mqtt, source=source
    )


def checked_file(model: type[BaseModel], program: str, values: Mapping[str, Any], source: str) -> str:
    """A configuration file with these values, that its program takes.

    Args:
        model: of the whole configuration.
        program: ``device-agent`` or ``device-gateway``.
        values: nested like the file; every other key has its default.
        source: what an error is about.

    Raises:
        ConfigurationError: the program would not take it.
    """
    try:
        model.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(sentences(error, model), source) from None
    head = (
        f"# Configuration of {program}. What is not here has its default; every key with its meaning is in configs/\n"
        f"# of the repository, and in /usr/share/doc/{program}/examples/ of the package. Secrets are never here, but\n"
        f"# in files of mode 600. Check it with: {program} check --config THIS_FILE\n\n"
    )
    return head + yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)


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
