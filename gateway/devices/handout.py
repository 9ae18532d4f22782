"""The files for one device: a ready configuration of the agent, its token, and the authority to trust."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from agent.adapters.files import replace_file
from agent.app.gateway_configuration import (
    AUTHORITY,
    CONFIGURATION,
    TOKEN,
    GatewayAddress,
    gateway_configuration,
)
from agent.errors import ConfigurationError
from agent.wire.secret import Secret


@dataclass(frozen=True, slots=True)
class GatewayAccess:
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
    reach: GatewayAccess
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
    reach = handout.reach
    address = GatewayAddress(reach.url, reach.broker, reach.plain, has_authority=reach.authority is not None)
    return gateway_configuration(handout.device_id, address, handout.device_dir, handout.product_id)


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


def write_handout(handout: Handout, directory: Path) -> list[str]:
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
    return [*lines, f"next: bring them to {handout.device_dir} on the device, owned by the agent's user"]
