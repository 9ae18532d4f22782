"""What a scenario says of its target: how devices connect, with which keys, and how the service speaks."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from agent.config.model import DialectConfig
from agent.wire.network import read_url
from simulator.fleet.settings import KeyPairFile, Seconds, Section

_ADDRESSES_MAX: Final = 65_536
_POOL: Final = 256


PoolSize = Annotated[int, Field(ge=1, le=65_536)]


def count_addresses(listed: tuple[str, ...]) -> int:
    """How many addresses a list of them and of networks has.

    Raises:
        ValueError: an entry is neither.
    """
    return sum(ipaddress.IPv4Network(each).num_addresses for each in listed)


def _check_networks(listed: tuple[str, ...]) -> tuple[str, ...]:
    try:
        count = count_addresses(listed)
    except ValueError as error:
        raise ValueError(f"{error}: write IPv4 addresses, such as 10.0.0.2, or networks, such as 10.0.0.0/24") from None
    if count > _ADDRESSES_MAX:
        raise ValueError(f"{count:,} addresses are more than {_ADDRESSES_MAX:,}: write smaller networks")
    return listed


def _check_url(text: str) -> str:
    read_url(text)
    return text


def _check_keys(keys: tuple[KeyPairFile, ...]) -> tuple[KeyPairFile, ...]:
    if len({pair.api_key for pair in keys}) < len(keys):
        raise ValueError("holds a key pair twice; each pair of a pool is another one")
    return keys


class AnyTarget(Section):
    """What is said of the target whatever is played; each kind adds its own, as a key or for good."""

    base_url: Annotated[str, AfterValidator(_check_url)] = Field(
        default="http://127.0.0.1:8080",
        description="Address of the service. --base-url of 'run' wins over it.",
    )
    timeout_s: Seconds = Field(default=10.0, description="Patience with one request; a held poll has its wait on top.")
    ca_file: Path | None = Field(
        default=None, description="PEM file with the authority that alone is trusted over TLS; left out: the system's."
    )
    keys: Annotated[tuple[KeyPairFile, ...], AfterValidator(_check_keys)] = Field(
        default=(),
        max_length=1000,
        description="The pool of key pairs; left out: the key pair that 'run' is given on the command line.",
    )
    dialect: DialectConfig = Field(
        default_factory=DialectConfig,
        description="What is known of the service beforehand, as service.dialect of the agent's configuration.",
    )
    if TYPE_CHECKING:

        @property
        def transport(self) -> str: ...
        @property
        def through(self) -> Literal["service", "gateway"]: ...
        @property
        def connections(self) -> int | None: ...
        @property
        def source_addresses(self) -> tuple[str, ...]: ...

    @property
    def source_count(self) -> int:
        """How many addresses to connect from there are, on all machines together, at most."""
        return count_addresses(self.source_addresses) or 1

    @property
    def protocol(self) -> Literal["http", "mqtt"]:
        """First part of the names of its devices' operations, as in ``http.sensor_data``."""
        return "mqtt" if self.transport == "mqtt" else "http"

    @property
    def holds_polls(self) -> bool:
        """Whether commands come by a poll that the service holds."""
        return self.transport == "http_long_poll"

    @property
    def is_pooled(self) -> bool:
        """Whether devices share connections, ``pool`` of them."""
        return self.connections is not None

    @property
    def pool(self) -> int:
        """How many connections are shared where some are."""
        return self.connections or _POOL

    @property
    def uses_gateway(self) -> bool:
        """Whether devices talk to a gateway, with a token each, and not to the service."""
        return self.through == "gateway"


class _SocketTarget(AnyTarget):
    source_addresses: Annotated[tuple[str, ...], Field(max_length=1000), AfterValidator(_check_networks)] = Field(
        default=(),
        description="IPv4 addresses and networks to connect from, each address with about 28,000 ports; a machine "
        "takes its own of them, and has all of 127.0.0.0/8 for a target on itself. Left out: the system's choice.",
    )


class _HttpTarget(_SocketTarget):
    through: Literal["service", "gateway"] = Field(
        default="service",
        description="Straight to the service, or through the gateway with a token for each device.",
    )
    connections: PoolSize | None = Field(
        default=None,
        description="Connections of the whole run, which devices share; left out: a socket for each, as in the field.",
    )


class RequestTarget(_HttpTarget):
    """The service or gateway that requests are made to."""

    transport: ClassVar[str] = "http_poll"


class HttpTarget(_HttpTarget):
    """The service or gateway under test, over HTTP."""

    transport: Literal["http_poll", "http_long_poll"] = Field(
        default="http_long_poll",
        description="How commands reach a device: asked for periodically, or with a poll that the server holds.",
    )


class MqttTarget(_SocketTarget):
    """The gateway under test, over MQTT: readings, commands and results."""

    through: ClassVar[Literal["gateway"]] = "gateway"
    connections: ClassVar[None] = None
    transport: Literal["mqtt"] = Field(description="Over MQTT, with a session for each device.")


class ServiceTarget(AnyTarget):
    """The service itself."""

    transport: ClassVar[str] = "http_poll"
    through: ClassVar[Literal["service"]] = "service"
    source_addresses: ClassVar[tuple[str, ...]] = ()
    connections: PoolSize = Field(default=_POOL, description="Connections of the whole run.")


def _transport(value: Any) -> str:
    given = value.get("transport") if isinstance(value, dict) else getattr(value, "transport", None)
    return "mqtt" if given == "mqtt" else "http"


DeviceTarget = Annotated[
    Annotated[HttpTarget, Tag("http")] | Annotated[MqttTarget, Tag("mqtt")], Discriminator(_transport)
]
