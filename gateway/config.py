"""Every key of the gateway's configuration: what it means, its default, its unit and why one would change it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import Field, model_validator
from pydantic.config import JsonDict

from agent.config.credentials import Credentials, read_credentials
from agent.config.load import load_model
from agent.config.model import AuthConfig, LoggingConfig, ServiceConfig
from agent.config.mqtt import MqttVersion
from agent.config.section import Host, Seconds, Section, is_this_machine

PREFIX: Final = "DEVICE_GATEWAY_"
"""``DEVICE_GATEWAY_SERVICE__BASE_URL`` sets ``service.base_url``."""

Port = Annotated[int, Field(ge=0, le=65_535)]
Word = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


def key(what: str, *, unit: str | None = None, why: str | None = None, example: Any = None, **rules: Any) -> Any:
    """A field with its documentation; ``rules`` go to :func:`pydantic.Field` (``default``, ``ge``, ...)."""
    extra: JsonDict = {name: value for name, value in (("unit", unit), ("why", why)) if value is not None}
    if example is not None:
        rules["examples"] = [example]
    return Field(description=what, json_schema_extra=extra or None, **rules)


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
    host: Host = key(
        "Address to listen on; :: is every one of this machine, 0.0.0.0 every one of IPv4.",
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
    trusted_proxies: tuple[str, ...] = key(
        "Addresses of proxies whose X-Forwarded-For is believed; tries to enroll are counted by it.",
        default=("127.0.0.1", "::1"),
        example=["10.0.0.5"],
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
    host: Host = key("The broker's name or address.", default="127.0.0.1")
    port: Annotated[int, Field(ge=1, le=65_535)] = key("The broker's port; 8883 is usual with TLS.", default=1883)
    user_name: Word | None = key(
        "The gateway's user name at the broker, which is its client id as well; device-gateway broker-config writes "
        "rules for 'gateway'.",
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
    version: MqttVersion = key("Version of MQTT; 3.1.1 for a broker that does not speak 5.", default="5")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.enabled and not self.tls and not self.allow_plain_mqtt and not is_this_machine(self.host):
            raise ValueError(
                "mqtt.tls is off, so the gateway's password and all messages would travel in the clear: set "
                "mqtt.tls: true, or mqtt.allow_plain_mqtt: true on a network of your own"
            )
        if not self.tls and self.ca_file:
            raise ValueError("mqtt.ca_file needs mqtt.tls: true")
        if self.password_file is not None and self.user_name is None:
            raise ValueError("mqtt.password_file needs mqtt.user_name beside it")
        return self


class CommandFetchConfig(Section):
    """How commands are fetched, for devices that are there."""

    poll_s: Seconds = key(
        "How often to ask about a device where the service has no stream of commands.",
        unit="s",
        why="Each question is a request of the key's quota.",
        default=5.0,
    )
    reconcile_s: Seconds = key("How often to ask about a device while the stream runs.", unit="s", default=900.0)


class GatewayMetricsConfig(Section):
    """Figures for Prometheus (text format, GET /metrics)."""

    enabled: bool = key("True serves the figures.", default=True)
    host: Host = key("Address to listen on.", why="They name no device and hold no secret.", default="127.0.0.1")
    port: Port = key("Port to listen on; 0 takes a free one.", default=9464)


class GatewayConfig(Section):
    """The whole configuration of one gateway."""

    service: ServiceConfig = key("The service that the devices belong to.")
    auth: KeysConfig = key("Where the key pair is.", default_factory=KeysConfig)
    state_dir: Path = key(
        "Directory of the device tokens and codes. Under systemd $STATE_DIRECTORY is the default.",
        default=Path("/var/lib/device-gateway"),
    )
    http: HttpConfig = key("The front for devices that speak HTTP.", default_factory=HttpConfig)
    mqtt: MqttFrontConfig = key("The front for devices that speak MQTT.", default_factory=MqttFrontConfig)
    commands: CommandFetchConfig = key("How commands are fetched.", default_factory=CommandFetchConfig)
    requests_per_minute: Annotated[int, Field(ge=1, le=10_000_000)] | None = key(
        "Requests to the service in one minute at most. Default: what its answers announce.",
        unit="1/min",
        why="Leaves room for other programs that use the same key.",
        default=None,
        example=800,
    )
    metrics: GatewayMetricsConfig = key("Figures for monitoring.", default_factory=GatewayMetricsConfig)
    logging: LoggingConfig = key("What is logged.", default_factory=LoggingConfig)

    @model_validator(mode="after")
    def _check_has_front(self) -> Self:
        if not self.http.enabled and not self.mqtt.enabled:
            raise ValueError("http.enabled and mqtt.enabled are both false: no device could reach the gateway")
        return self


def load_gateway(path: Path | None, environ: Mapping[str, str], *, with_keys: bool = True) -> GatewayConfig:
    """Defaults < file < environment.

    Args:
        path: of the file.
        environ: of the process.
        with_keys: False for what needs no key pair, so that it runs where the key files cannot be read.

    Raises:
        ConfigurationError: every fault of file and environment; where there is none, those of the key files.
    """
    config = load_model(GatewayConfig, path, environ, PREFIX)
    if with_keys:
        config.auth.credentials(environ)
    return config
