"""Every key of the gateway's configuration: what it means, its default, its unit and why one would change it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, ValidationError, model_validator

from agent.config.credentials import Credentials, read_credentials
from agent.config.first_file import first_file
from agent.config.load import load_model
from agent.config.model import AuthConfig, LoggingConfig, ServiceConfig
from agent.config.mqtt import MqttVersion
from agent.config.section import Seconds, Section, is_this_machine, json_schema, key
from agent.errors import ConfigurationError
from gateway.core.share import Share
from gateway.core.thinning import MergeBy, ThinningMode, ThinningPolicy

DEFAULT_PATH: Final = Path("/etc/device-gateway/config.yaml")
PREFIX: Final = "DEVICE_GATEWAY_"
"""``DEVICE_GATEWAY_SERVICE__BASE_URL`` sets ``service.base_url``."""

Port = Annotated[int, Field(ge=0, le=65_535)]
Word = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


class KeysConfig(Section):
    """The key pair of the service. It lies on this server and nowhere else."""

    api_key_file: Path | None = key(
        "File that holds the API key (mk_...), mode 600. The systemd credential 'api_key' goes before it.",
        default=None,
        example="/etc/device-gateway/api_key",
    )
    secret_key_file: Path | None = key(
        "File that holds the secret key (msk_...), mode 600. The systemd credential 'secret_key' goes before it.",
        default=None,
        example="/etc/device-gateway/secret_key",
    )

    @property
    def files(self) -> AuthConfig:
        """The same files as the section ``auth`` of an agent."""
        return AuthConfig(
            mode="key_pair",
            allow_secret_key_on_device=True,  # this is the server that the secret key belongs on
            api_key_file=self.api_key_file,
            secret_key_file=self.secret_key_file,
        )

    def credentials(self, environ: Mapping[str, str]) -> Credentials:
        """What the files hold.

        Raises:
            ConfigurationError: one sentence for each file that cannot be used.
        """
        return read_credentials(self.files, environ)


class HttpConfig(Section):
    """Where devices reach the gateway over HTTP."""

    enabled: bool = key("False serves no device over HTTP.", default=True)
    host: str = key(
        "Address to listen on; 0.0.0.0 is every one of this machine.",
        why="Loopback suits a proxy in front that ends TLS.",
        default="127.0.0.1",
    )
    port: Port = key("Port to listen on; 0 takes a free one.", default=8081)
    certificate: Path | None = key(
        "PEM file with this server's certificate and those above it. Without it the port speaks plain HTTP, which is "
        "refused on any address but loopback.",
        default=None,
        example="/etc/device-gateway/server.pem",
    )
    private_key: Path | None = key(
        "PEM file with the certificate's key, when it is not in the same file.",
        default=None,
        example="/etc/device-gateway/server.key",
    )
    allow_plain_http: bool = key(
        "Allow plain HTTP on an address that is not loopback.",
        why="Without TLS anybody on the way reads the device tokens. Right behind a proxy on a network of your own.",
        default=False,
    )
    requests_per_minute: Annotated[int, Field(ge=0, le=1_000_000)] = key(
        "How many requests one device may make; above it the answer is 429. 0 counts nothing.",
        unit="1/min",
        default=600,
    )
    body_timeout_s: Seconds = key(
        "How long the body of a request may take for each 2 KiB of it, and a device to read as much of an answer.",
        why="A body that keeps to this may take any time as a whole; one that stands still or trickles is ended.",
        unit="s",
        default=30.0,
    )

    @model_validator(mode="after")
    def _is_encrypted(self) -> Self:
        if self.private_key is not None and self.certificate is None:
            raise ValueError("http.private_key needs http.certificate beside it")
        if self.enabled and self.certificate is None and not is_this_machine(self.host) and not self.allow_plain_http:
            raise ValueError(
                f"http.host {self.host} would take device tokens in the clear: set http.certificate, listen on "
                "127.0.0.1 behind a proxy, or set http.allow_plain_http: true on a network of your own"
            )
        return self


class MqttFrontConfig(Section):
    """The broker that devices reach the gateway through."""

    enabled: bool = key("True serves devices over MQTT.", default=False)
    host: str = key("The broker's name or address.", default="127.0.0.1", min_length=1)
    port: Annotated[int, Field(ge=1, le=65_535)] = key("The broker's port; 8883 is usual with TLS.", default=1883)
    client_id: Word | None = key(
        "The gateway's client id. Default: one made up at the first start and kept in state_dir.",
        why="Two gateways with one id throw each other out.",
        default=None,
        example="gateway-1",
    )
    user_name: Word | None = key(
        "The gateway's user name at the broker; device-gateway broker-config writes rules for 'gateway'.",
        default=None,
        example="gateway",
    )
    password_file: Path | None = key(
        "File that holds the gateway's password at the broker, mode 600; read again for each connection.",
        default=None,
        example="/etc/device-gateway/mqtt_password",
    )
    tls: bool = key("Encrypt the connection to the broker.", default=False)
    allow_plain_mqtt: bool = key(
        "Allow tls: false to a broker that is not this machine.",
        why="For a network of your own between gateway and broker.",
        default=False,
    )
    ca_file: Path | None = key(
        "PEM file with the authorities to trust instead of the system's.",
        default=None,
        example="/etc/device-gateway/ca.pem",
    )
    cert_file: Path | None = key(
        "PEM file with the gateway's own certificate, where the broker asks for one.",
        default=None,
        example="/etc/device-gateway/client.pem",
    )
    key_file: Path | None = key(
        "PEM file with the key of cert_file, when it is not in the same file.",
        default=None,
        example="/etc/device-gateway/client.key",
    )
    websocket_path: str | None = key(
        "Connect over WebSockets at this path.", default=None, example="/mqtt", pattern=r"^/"
    )
    version: MqttVersion = key("'auto' begins with 5 and falls back to 3.1.1.", default="auto")
    group: str = key(
        "Name of the shared subscription; gateways with the same one split the devices' messages between them. Empty "
        "subscribes without one, for a broker that knows no shared subscriptions (then run one gateway).",
        default="gateway",
        pattern=r"^[A-Za-z0-9_.-]*$",
        max_length=64,
    )
    keepalive_s: Annotated[int, Field(ge=5, le=3600)] = key(
        "After this long without a word both sides look whether the other is there.", unit="s", default=30
    )
    session_expiry_s: Annotated[int, Field(ge=0, le=31 * 86_400)] = key(
        "How long the broker keeps devices' messages for a gateway that is away (MQTT 5).",
        unit="s",
        why="0 with several gateways: the others take them.",
        default=3600,
    )

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.enabled and not self.tls and not self.allow_plain_mqtt and not is_this_machine(self.host):
            raise ValueError(
                "mqtt.tls is off, so the gateway's password and all messages would travel in the clear: set "
                "mqtt.tls: true, or mqtt.allow_plain_mqtt: true on a network of your own"
            )
        if not self.tls and (self.ca_file or self.cert_file or self.key_file):
            raise ValueError("mqtt.ca_file, mqtt.cert_file and mqtt.key_file need mqtt.tls: true")
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("mqtt.key_file needs mqtt.cert_file beside it")
        if self.password_file is not None and self.user_name is None:
            raise ValueError("mqtt.password_file needs mqtt.user_name beside it")
        return self


class CommandFetchConfig(Section):
    """How commands are fetched. How fast it really goes also hangs on the key's quota."""

    events: Literal["auto", "off"] = key(
        "'auto' takes the service's stream of commands when it offers one; polling then only reconciles.",
        default="auto",
    )
    fast_s: Seconds = key("How often to ask about a device that was active just now.", unit="s", default=2.0)
    idle_s: Seconds = key("How often to ask about a device that was not.", unit="s", default=60.0)
    reconcile_s: Seconds = key("How often to ask about any device while the stream runs.", unit="s", default=900.0)

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if not self.fast_s <= self.idle_s <= self.reconcile_s:
            raise ValueError("commands: fast_s must not be above idle_s, nor idle_s above reconcile_s")
        return self


class ShareConfig(Section):
    """Which devices' commands this gateway fetches, where several gateways have one key."""

    index: Annotated[int, Field(ge=0, le=999)] = key(
        "Which part is this gateway's: another one for each gateway, from 0 to count - 1.", default=0
    )
    count: Annotated[int, Field(ge=1, le=1000)] = key(
        "How many gateways share the devices, by a hash of the device id. The same for all of them; 1 fetches the "
        "commands of every device.",
        why="So that no device is asked about twice. Readings and results are taken from any device all the same.",
        default=1,
    )

    @model_validator(mode="after")
    def _check_index(self) -> Self:
        if self.index >= self.count:
            raise ValueError(
                f"share.index {self.index} is none of {self.count} part(s): with share.count {self.count} the gateways "
                f"have the indexes 0 to {self.count - 1}"
            )
        return self

    def value(self) -> Share:
        """As the roster has it."""
        return Share(self.index, self.count)


class ReadingsConfig(Section):
    """How readings are handed on."""

    gather_s: Annotated[float, Field(ge=0, le=60)] = key(
        "How long a reading may wait for others to share one request with.", unit="s", default=1.0
    )
    when_short: Literal["keep-all", "merge", "thin"] = key(
        "What to do where one request carries one reading and the quota is too short for all: keep-all sends every one "
        "of them late, merge joins the readings of a device within window_s, thin leaves some out.",
        default="merge",
    )
    short_after_s: Seconds = key(
        "The quota counts as short when a reading has waited for this long.", unit="s", default=60.0
    )
    window_s: Seconds = key("For merge: readings closer together than this become one.", unit="s", default=300.0)
    merge_by: Literal["last", "mean"] = key("For merge: which value stands for several.", default="last")
    every: Annotated[int, Field(ge=1, le=10_000)] = key("For thin: one of so many is always sent.", default=10)
    deadband: Annotated[float, Field(ge=0)] = key(
        "For thin: a value that differs by more than this from the one sent before it is sent too.", default=0.0
    )

    def policy(self) -> ThinningPolicy:
        """As the core has it."""
        return ThinningPolicy(
            ThinningMode(self.when_short),
            self.short_after_s,
            self.window_s,
            MergeBy(self.merge_by),
            self.every,
            self.deadband,
        )


class QuotaConfig(Section):
    """How the key's quota is divided while every kind of request wants more than it gets; unused parts are lent."""

    commands: Annotated[float, Field(gt=0, le=1000)] = key("Part of asking for commands.", default=0.45)
    results: Annotated[float, Field(gt=0, le=1000)] = key("Part of reporting results.", default=0.30)
    readings: Annotated[float, Field(gt=0, le=1000)] = key("Part of handing readings on.", default=0.20)
    upkeep: Annotated[float, Field(gt=0, le=1000)] = key("Part of everything else.", default=0.05)


class StoreConfig(Section):
    """How much may wait for the service. Beyond rows and bytes devices are asked to keep what they have."""

    max_rows: Annotated[int, Field(ge=100, le=100_000_000)] = key(
        "At most this many readings wait.", unit="readings", default=1_000_000
    )
    max_bytes: Annotated[int, Field(ge=1024 * 1024, le=1024**4)] = key(
        "At most this much waits.", unit="bytes", default=1024**3
    )
    max_age_s: Annotated[float, Field(ge=60, le=366 * 86_400)] = key(
        "Readings that have waited longer are dropped and counted.", unit="s", default=7 * 86_400.0
    )
    max_results: Annotated[int, Field(ge=100, le=10_000_000)] = key(
        "At most this many results wait.", unit="results", default=100_000
    )


class GatewayMetricsConfig(Section):
    """Figures for Prometheus (text format, GET /metrics)."""

    enabled: bool = key("True serves the figures.", default=True)
    host: str = key("Address to listen on.", why="They name no device and hold no secret.", default="127.0.0.1")
    port: Port = key("Port to listen on; 0 takes a free one.", default=9464)


class GatewayConfig(Section):
    """The whole configuration of one gateway."""

    service: ServiceConfig = key("The service that the devices belong to.")
    auth: KeysConfig = key("Where the key pair is.", default_factory=KeysConfig)
    state_dir: Path = key(
        "Directory of the store and the device tokens. Under systemd $STATE_DIRECTORY is the default.",
        default=Path("/var/lib/device-gateway"),
    )
    http: HttpConfig = key("The front for devices that speak HTTP.", default_factory=HttpConfig)
    mqtt: MqttFrontConfig = key("The front for devices that speak MQTT.", default_factory=MqttFrontConfig)
    commands: CommandFetchConfig = key("How commands are fetched.", default_factory=CommandFetchConfig)
    share: ShareConfig = key("Which devices' commands are fetched here.", default_factory=ShareConfig)
    readings: ReadingsConfig = key("How readings are handed on.", default_factory=ReadingsConfig)
    quota: QuotaConfig = key("How the key's quota is divided.", default_factory=QuotaConfig)
    connections: Annotated[int, Field(ge=1, le=64)] = key(
        "Requests of each kind (commands, results, readings) that may be under way at the same time.",
        why="More for a service that is far away: one connection makes one request for each round trip.",
        default=4,
    )
    store: StoreConfig = key("How much may wait.", default_factory=StoreConfig)
    metrics: GatewayMetricsConfig = key("Figures for monitoring.", default_factory=GatewayMetricsConfig)
    logging: LoggingConfig = key("What is logged.", default_factory=LoggingConfig)

    @model_validator(mode="after")
    def _check_has_front(self) -> Self:
        if not self.http.enabled and not self.mqtt.enabled:
            raise ValueError("http.enabled and mqtt.enabled are both false: no device could reach the gateway")
        return self


@dataclass(frozen=True, slots=True)
class LoadedGateway:
    """A configuration that is whole and consistent.

    Attributes:
        path: the file; None when everything came from the environment.
    """

    config: GatewayConfig
    path: Path | None


def load_gateway(path: Path | None, environ: Mapping[str, str]) -> LoadedGateway:
    """Defaults < file < environment.

    Raises:
        ConfigurationError: every fault of file, environment and key files.
    """
    config, _ = load_model(GatewayConfig, path, environ, PREFIX, _key_file_faults)
    return LoadedGateway(config, path)


def gateway_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the file."""
    return json_schema(GatewayConfig, "device-gateway configuration")


def gateway_file(values: Mapping[str, Any]) -> str:
    """A configuration file with these values; every other key has its default."""
    return first_file("device-gateway", values)


def _key_file_faults(values: dict[str, Any], environ: Mapping[str, str]) -> list[str]:
    try:
        KeysConfig.model_validate(values.get("auth") or {}).credentials(environ)
    except ConfigurationError as error:
        return error.faults
    except ValidationError:
        return []  # reported already
    return []
