"""The files for one device: a ready configuration of the agent, its token, and the authority to trust."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml
from pydantic import ValidationError

from agent.adapters.files import replace_file
from agent.config import AgentConfig
from agent.config.document import commented_file
from agent.config.faults import sentences
from agent.errors import ConfigurationError
from agent.frozen import dataclass
from agent.wire.secret import Secret

CONFIGURATION: Final = "config.yaml"
TOKEN: Final = "token"  # noqa: S105 - a file's name
AUTHORITY: Final = "ca.pem"


@dataclass(frozen=True, slots=True)
class Reach:
    """How devices reach the gateway from where they are.

    Attributes:
        url: of the HTTP front, such as ``https://gateway.example.com:8443``; None for devices that only speak MQTT.
        broker: host, or host and port, of the broker; None for devices that only speak HTTP.
        authority: PEM file of the authority that signed the server's certificate; None for a public one.
        plain: no TLS, for a closed test network.
    """

    url: str | None = None
    broker: str | None = None
    authority: Path | None = None
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Handout:
    """The files for one device.

    Attributes:
        device_id: the device.
        token: its token.
        product_id: its product, where it is known.
        reach: where the gateway is.
        device_dir: where the files will lie on the device.
    """

    device_id: str
    token: Secret
    reach: Reach
    product_id: str | None = None
    device_dir: Path = Path("/etc/device-agent")


def qr_text(handout: Handout) -> str:
    """What a QR for the device holds: compact JSON with ``v``, ``device_id``, ``token``, ``url`` and ``broker``."""
    reach = handout.reach
    members = {
        "v": 1,
        "device_id": handout.device_id,
        "token": handout.token.reveal(),
        "url": reach.url,
        "broker": reach.broker,
    }
    return json.dumps({name: value for name, value in members.items() if value is not None}, separators=(",", ":"))


def agent_configuration(handout: Handout) -> str:
    """A commented ``config.yaml`` for the agent on this device.

    Raises:
        ConfigurationError: the addresses do not make one.
    """
    text = commented_file(_values(handout))
    try:
        AgentConfig.model_validate(yaml.safe_load(text))
    except ValidationError as error:
        raise ConfigurationError(sentences(error, AgentConfig, {}, {}), "the device's configuration") from None
    return text


def check_place(directory: Path, *, replace: bool) -> None:
    """Make sure of a place before there is a token to put there.

    Args:
        directory: made, mode 700, where there is none.
        replace: a configuration that is there already may be replaced.

    Raises:
        ConfigurationError: it cannot be written, or holds a configuration already.
    """
    path = directory / CONFIGURATION
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        there = path.exists()
    except OSError as error:
        fault = f"{error.filename or directory} cannot be written: {error.strerror}; give another --config-out"
        raise ConfigurationError([fault], "config-out") from None
    if there and not replace:
        fault = f"{path} is there already, and a device has a folder of its own: give another --config-out"
        raise ConfigurationError([fault], "config-out")


def write_handout(handout: Handout, directory: Path) -> tuple[str, ...]:
    """Write ``config.yaml``, ``token`` (mode 600) and, where there is an authority, ``ca.pem``.

    Returns:
        One sentence for each file, and what to do next.

    Raises:
        ConfigurationError: the addresses do not make a configuration, or a file cannot be read or written.
    """
    text = agent_configuration(handout)
    try:
        replace_file(directory / TOKEN, handout.token.reveal() + "\n", 0o600)
        replace_file(directory / CONFIGURATION, text, 0o644)
        lines = [f"wrote {directory / CONFIGURATION}", f"wrote {directory / TOKEN} (mode 600)"]
        if handout.reach.authority is not None:
            replace_file(directory / AUTHORITY, handout.reach.authority.read_bytes(), 0o644)
            lines.append(f"wrote {directory / AUTHORITY}")
    except OSError as error:
        fault = (
            f"{error.filename or directory} cannot be read or written: {error.strerror}; mend it and rotate the token"
        )
        raise ConfigurationError([fault], "config-out") from None
    return (*lines, f"next: bring them to {handout.device_dir} on the device, owned by the agent's user")


def _values(handout: Handout) -> dict[str, Any]:
    reach, here = handout.reach, handout.device_dir
    authority = {} if reach.authority is None else {"ca_file": str(here / AUTHORITY)}
    values: dict[str, Any] = {
        "device": {"device_id": handout.device_id},
        "auth": {"mode": "bearer", "token_file": str(here / TOKEN)},
        "sensors": [{"name": "board", "type": "system", "interval_s": 60}],
    }
    if handout.product_id:
        values["device"]["product_id"] = handout.product_id
    if reach.url is not None:
        values["service"] = {"base_url": reach.url}
        if reach.url.startswith("https://"):
            values["service"] |= authority
        elif reach.plain:
            values["service"]["allow_plain_http"] = True
    if reach.broker is not None:
        host, port = _host_and_port(reach.broker)
        values["mqtt"] = {"host": host, "tls": not reach.plain}
        values["mqtt"] |= {"allow_plain_mqtt": True} if reach.plain else authority
        if port is not None:
            values["mqtt"]["port"] = port
    return values


def _host_and_port(broker: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(f"//{broker}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.path or parts.username:
        fault = f"--broker {broker!r} is no address; write it as HOST or HOST:PORT"
        raise ConfigurationError([fault], "the device's configuration")
    return host, port
