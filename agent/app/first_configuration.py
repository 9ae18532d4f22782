"""The configuration that a new device or gateway begins with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ValidationError

from agent.config import AgentConfig
from agent.config.faults import sentences
from agent.errors import ConfigurationError
from agent.wire.enrollment import EnrollmentAnswer
from agent.wire.network import host_and_port

CONFIGURATION: Final = "config.yaml"
TOKEN: Final = "token"  # noqa: S105 - a file's name
AUTHORITY: Final = "ca.pem"
USER: Final = "device-agent"
"""As whom the unit runs the agent."""


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
    values = {
        "device": {"device_id": handed.device_id, **({"product_id": handed.product_id} if handed.product_id else {})},
        "auth": {"mode": "bearer", "token_file": str(device_dir / TOKEN)},
        "sensors": [{"name": "board", "type": "system", "interval_s": 60}],
        "service": service,
        "mqtt": mqtt,
    }
    given = {name: value for name, value in values.items() if value is not None}
    return checked_file(AgentConfig, "device-agent", given, source)


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
