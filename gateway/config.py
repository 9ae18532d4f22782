"""The gateway's configuration: every key with its default and its rules.

What each key is for stands in ``configs/gateway.yaml``; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from agent.config.credentials import Credentials, read_credentials
from agent.config.load import load_model
from agent.config.model import AuthConfig, Host, LoggingConfig, MqttVersion, Seconds, Section, ServiceConfig
from agent.wire.network import is_this_machine

PREFIX: Final = "DEVICE_GATEWAY_"
"""``DEVICE_GATEWAY_SERVICE__BASE_URL`` sets ``service.base_url``."""

Port = Annotated[int, Field(ge=0, le=65_535)]
Word = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


class KeysConfig(Section):
    """The key pair of the service. It lies on this server and nowhere else."""

    api_key_file: Path | None = None
    secret_key_file: Path | None = None

    def credentials(self, environ: Mapping[str, str]) -> Credentials:
        """What the files hold.

        Raises:
            ConfigurationError: one sentence for each file that cannot be used.
        """
        files = AuthConfig(
            mode="key_pair",
            allow_secret_key_on_device=True,  # this is the server that the secret key belongs on
            api_key_file=self.api_key_file,
            secret_key_file=self.secret_key_file,
        )
        return read_credentials(files, environ)


class HttpConfig(Section):
    """Where devices reach the gateway over HTTP.

    Attributes:
        certificate: without it the port speaks plain HTTP, which is refused on any address but loopback.
        requests_per_minute: of one device; 0 counts nothing.
        trusted_proxies: whose X-Forwarded-For is believed.
    """

    host: Host = "127.0.0.1"
    port: Port = 8081
    certificate: Path | None = None
    private_key: Path | None = None
    allow_plain_http: bool = False
    requests_per_minute: Annotated[int, Field(ge=0, le=1_000_000)] = 600
    trusted_proxies: tuple[str, ...] = ("127.0.0.1", "::1")

    @model_validator(mode="after")
    def _is_encrypted(self) -> Self:
        if self.private_key is not None and self.certificate is None:
            raise ValueError("http.private_key needs http.certificate beside it")
        if self.certificate is None and not is_this_machine(self.host) and not self.allow_plain_http:
            raise ValueError(
                f"http.host {self.host} would take device tokens in the clear: set http.certificate, listen on "
                "127.0.0.1 behind a proxy, or set http.allow_plain_http: true on a network of your own"
            )
        return self


class MqttFrontConfig(Section):
    """The broker that devices reach the gateway through.

    Attributes:
        user_name: at the broker, and the client id as well.
        password_file: read again for each connection.
    """

    enabled: bool = False
    host: Host = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65_535)] = 1883
    user_name: Word = "gateway"
    password_file: Path | None = None
    tls: bool = False
    allow_plain_mqtt: bool = False
    ca_file: Path | None = None
    version: MqttVersion = "5"

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.enabled and not self.tls and not self.allow_plain_mqtt and not is_this_machine(self.host):
            raise ValueError(
                "mqtt.tls is off, so the gateway's password and all messages would travel in the clear: set "
                "mqtt.tls: true, or mqtt.allow_plain_mqtt: true on a network of your own"
            )
        if not self.tls and self.ca_file:
            raise ValueError("mqtt.ca_file needs mqtt.tls: true")
        return self


class CommandFetchConfig(Section):
    """How commands are fetched, for devices that are there.

    Attributes:
        poll_s: where the service has no stream of commands.
        reconcile_s: while the stream runs.
    """

    poll_s: Seconds = 5.0
    reconcile_s: Seconds = 900.0


class GatewayMetricsConfig(Section):
    """Figures for Prometheus (text format, GET /metrics)."""

    enabled: bool = True
    host: Host = "127.0.0.1"
    port: Port = 9464


class GatewayConfig(Section):
    """The whole configuration of one gateway.

    Attributes:
        state_dir: of the device tokens and codes.
        requests_per_minute: to the service; None: what its answers announce.
    """

    service: ServiceConfig
    auth: KeysConfig = Field(default_factory=KeysConfig)
    state_dir: Path = Path("/var/lib/device-gateway")
    http: HttpConfig = Field(default_factory=HttpConfig)
    mqtt: MqttFrontConfig = Field(default_factory=MqttFrontConfig)
    commands: CommandFetchConfig = Field(default_factory=CommandFetchConfig)
    requests_per_minute: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    metrics: GatewayMetricsConfig = Field(default_factory=GatewayMetricsConfig)
    logging: LoggingConfig = Field(default_factory=LoggingConfig)


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
