"""The configuration of an agent that reaches the service through a gateway."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from agent.config import AgentConfig
from agent.config.faults import sentences
from agent.config.first_file import first_file
from agent.errors import ConfigurationError
from agent.wire.address import host_and_port

CONFIGURATION: Final = "config.yaml"
TOKEN: Final = "token"  # noqa: S105 - a file's name
AUTHORITY: Final = "ca.pem"


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """How a device reaches the gateway.

    Attributes:
        url: of the HTTP front; None for a device that speaks MQTT alone.
        broker: HOST or HOST:PORT; None for a device that speaks HTTP alone.
        plain: no TLS, for a closed test network.
        has_authority: the authority to trust lies in :data:`AUTHORITY`; False for a public one.
    """

    url: str | None = None
    broker: str | None = None
    plain: bool = False
    has_authority: bool = False


def gateway_configuration(device_id: str, address: GatewayAddress, device_dir: Path, product_id: str | None) -> str:
    """The text of ``config.yaml`` for an enrolled device.

    Args:
        device_id: of the device.
        address: where the gateway is.
        device_dir: where the token's and the authority's files lie on the device.
        product_id: of the device, where it is known.

    Raises:
        ConfigurationError: the addresses do not make one.
    """
    return checked_file(_values(device_id, address, device_dir, product_id), "the device's configuration")


def checked_file(values: dict[str, Any], source: str) -> str:
    """A configuration file with these values, that an agent takes.

    Raises:
        ConfigurationError: it would not, for ``source``.
    """
    try:
        AgentConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(sentences(error, AgentConfig), source) from None
    return first_file("device-agent", values)


def _values(device_id: str, address: GatewayAddress, device_dir: Path, product_id: str | None) -> dict[str, Any]:
    authority = {"ca_file": str(device_dir / AUTHORITY)} if address.has_authority else {}
    values: dict[str, Any] = {
        "device": {"device_id": device_id},
        "auth": {"mode": "bearer", "token_file": str(device_dir / TOKEN)},
        "sensors": [{"name": "board", "type": "system", "interval_s": 60}],
    }
    if product_id:
        values["device"]["product_id"] = product_id
    if address.url is not None:
        values["service"] = {"base_url": address.url}
        if address.url.startswith("https://"):
            values["service"] |= authority
        elif address.plain:
            values["service"]["allow_plain_http"] = True
    if address.broker is not None:
        host, port = broker_address(address.broker, "the device's configuration")
        values["mqtt"] = {"host": host, "tls": not address.plain}
        values["mqtt"] |= {"allow_plain_mqtt": True} if address.plain else authority
        if port is not None:
            values["mqtt"]["port"] = port
    return values


def broker_address(broker: str, source: str) -> tuple[str, int | None]:
    """Host and port of HOST or HOST:PORT; no port where none is given.

    Args:
        broker: as somebody typed it.
        source: what the error is about.

    Raises:
        ConfigurationError: it is no address.
    """
    try:
        return host_and_port(broker)
    except ValueError as error:
        raise ConfigurationError([f"--broker: {error}"], source) from None
