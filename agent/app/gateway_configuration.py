"""The configuration of an agent that reaches the service through a gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from agent.config import AgentConfig
from agent.config.faults import sentences
from agent.config.first_file import first_file
from agent.errors import ConfigurationError
from agent.wire.address import host_and_port
from agent.wire.enrollment import EnrollmentAnswer

CONFIGURATION: Final = "config.yaml"
TOKEN: Final = "token"  # noqa: S105 - a file's name
AUTHORITY: Final = "ca.pem"


def gateway_configuration(handed: EnrollmentAnswer, device_dir: Path) -> str:
    """The text of ``config.yaml`` for a device that a gateway has handed this.

    Args:
        handed: what the gateway gave it.
        device_dir: where the token's and the authority's files lie on the device.

    Raises:
        ConfigurationError: the addresses do not make one.
    """
    return checked_file(AgentConfig, "device-agent", _values(handed, device_dir), "the device's configuration")


def checked_file(model: type[BaseModel], program: str, values: dict[str, Any], source: str) -> str:
    """A configuration file with these values, that its program takes.

    Args:
        model: of the whole configuration.
        program: which reads it.
        values: every other key has its default.
        source: what an error is about.

    Raises:
        ConfigurationError: the program would not take it.
    """
    try:
        model.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(sentences(error, model), source) from None
    return first_file(program, values)


def _values(handed: EnrollmentAnswer, device_dir: Path) -> dict[str, Any]:
    authority = {} if handed.authority is None else {"ca_file": str(device_dir / AUTHORITY)}
    values: dict[str, Any] = {
        "device": {"device_id": handed.device_id},
        "auth": {"mode": "bearer", "token_file": str(device_dir / TOKEN)},
        "sensors": [{"name": "board", "type": "system", "interval_s": 60}],
    }
    if handed.product_id:
        values["device"]["product_id"] = handed.product_id
    if handed.url is not None:
        values["service"] = {"base_url": handed.url}
        if handed.url.startswith("https://"):
            values["service"] |= authority
        elif handed.plain:
            values["service"]["allow_plain_http"] = True
    if handed.broker is not None:
        host, port = broker_address(handed.broker, "the device's configuration")
        values["mqtt"] = {"host": host, "tls": not handed.plain}
        values["mqtt"] |= {"allow_plain_mqtt": True} if handed.plain else authority
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
