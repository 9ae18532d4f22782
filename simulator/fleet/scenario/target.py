"""The target of a fleet: address, transport, and what the server can do."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from agent.config.dialect import DialectConfig
from simulator.fleet.settings import Seconds, Section
from simulator.fleet.transports import TRANSPORTS, Transport

if TYPE_CHECKING:
    TransportWord = str
else:
    TransportWord = Literal[tuple(TRANSPORTS)]
Through = Literal["service", "gateway"]


_ADDRESSES_MAX: Final = 65_536


def _form(value: Any) -> str:
    return "(list)" if isinstance(value, list | tuple) else "(number)"


def _check_networks(listed: tuple[str, ...]) -> tuple[str, ...]:
    try:
        count = count_addresses(listed)
    except ValueError as error:
        raise ValueError(f"{error}: write IPv4 addresses, such as 10.0.0.2, or networks, such as 10.0.0.0/24") from None
    if count > _ADDRESSES_MAX:
        raise ValueError(f"{count:,} addresses are more than {_ADDRESSES_MAX:,}: write smaller networks")
    return listed


def count_addresses(listed: tuple[str, ...]) -> int:
    """How many addresses a list of them and of networks has.

    Raises:
        ValueError: an entry is neither.
    """
    return sum(ipaddress.IPv4Network(each).num_addresses for each in listed)


SourceAddresses = Annotated[
    Annotated[int, Field(ge=1, le=250), Tag("(number)")]
    | Annotated[tuple[str, ...], Field(min_length=1, max_length=1000), AfterValidator(_check_networks), Tag("(list)")],
    Discriminator(_form),
]


class TlsSettings(Section):
    """TLS towards the target; it is used when the address begins with https."""

    ca_file: Path | None = Field(
        default=None, description="PEM file with the authority to trust; left out: the system's."
    )


class BrokerSettings(Section):
    """The MQTT broker, for transport mqtt."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Host name or address of the broker.")
    port: int = Field(default=1883, ge=1, le=65535, description="Its port; 8883 is usual with TLS.")
    tls: bool = Field(default=False, description="Speak TLS.")
    ca_file: Path | None = Field(
        default=None, description="PEM file with the authority to trust; left out: the system's."
    )


class KeySettings(Section):
    """One key pair of the pool; neighbouring devices share one, and each pair has as many."""

    api_key: str = Field(min_length=1, max_length=200, description="The public key, mk_...")
    secret_key_file: Path = Field(
        description="File with the secret key, msk_..., that only its owner can read (chmod 600)."
    )


class TargetSettings(Section):
    """The service or gateway under test."""

    base_url: str = Field(
        default="http://127.0.0.1:8080",
        min_length=1,
        description="Address of the service, or of the gateway's HTTP front. --base-url of 'run' wins over it.",
    )
    transport: TransportWord = Field(
        default="http_long_poll",
        description="How commands reach a device: asked for periodically, asked for with a poll that the server holds, "
        "or over MQTT (readings and results go the same way).",
    )
    through: Through = Field(
        default="service", description="Straight to the service, or through the gateway with a token for each device."
    )
    connections: Literal["pooled", "per_device"] = Field(
        default="pooled",
        description="pooled: the devices share connections; per_device: a socket for each, as in the field.",
    )
    pool: Annotated[int, Field(ge=1, le=65_536)] = Field(
        default=256, description="Connections of the whole run, for connections: pooled."
    )
    source_addresses: SourceAddresses = Field(
        default=1,
        description="Addresses to connect from, each with about 28,000 ports: how many of 127.0.0.1, 127.0.0.2, ..., "
        "for a target on this machine; or a list of IPv4 addresses and networks, of which a machine takes its own.",
    )
    timeout_s: Seconds = Field(default=10.0, description="Patience with one request; a held poll has its wait on top.")
    tls: TlsSettings | None = Field(default=None, description="TLS towards the target.")
    broker: BrokerSettings | None = Field(default=None, description="The MQTT broker; transport mqtt needs it.")
    keys: tuple[KeySettings, ...] = Field(
        default=(),
        max_length=1000,
        description="The pool of key pairs; left out: the key pair that 'run' is given on the command line.",
    )
    dialect: DialectConfig = Field(
        default_factory=DialectConfig,
        description="What is known of the service beforehand, as service.dialect of the agent's configuration.",
    )
    on_limited: Literal["obey", "defy"] = Field(
        default="obey", description="What a device of level core does about 429: wait as Retry-After says, or go on."
    )

    @property
    def source_count(self) -> int:
        """How many addresses to connect from there are, on all machines together, at most."""
        listed = self.source_addresses
        return listed if isinstance(listed, int) else count_addresses(listed)

    @property
    def traits(self) -> Transport:
        """What is known of the transport."""
        return TRANSPORTS[self.transport]

    @property
    def is_pooled(self) -> bool:
        """Whether devices share connections, ``pool`` of them."""
        return not self.traits.has_sessions and self.connections == "pooled"

    @property
    def uses_gateway(self) -> bool:
        """Whether devices talk to a gateway, with a token each, and not to the service."""
        return self.through == "gateway" or self.traits.needs_gateway
