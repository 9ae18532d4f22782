"""The agent's configuration: every key with its default and its rules.

What each key is for stands in ``configs/agent-http.yaml`` and ``configs/agent-mqtt.yaml``; a test compares them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from agent.config.commands import CommandsConfig
from agent.config.dialect import DialectConfig
from agent.config.mqtt import MqttConfig
from agent.config.section import Host, Identifier, Name, Seconds, Section, is_this_machine
from agent.wire.address import read_url

KEY_PAIR_REFUSAL = (
    "auth.mode 'key_pair' puts the secret key (msk_...) onto this device, and the specification says that it belongs "
    "on a server that you control: whoever holds the device could command your whole fleet. Better: let the device "
    "talk to the gateway with a device token, or use auth.mode 'bearer' with a scoped token. "
    "For a bench or one prototype, set auth.allow_secret_key_on_device: true"
)


class ServiceConfig(Section):
    """The service's address and time limits.

    Attributes:
        base_url: all paths are relative to it.
        ca_file: PEM file with the authorities to trust instead of the built-in list.
        timeout_s: of one request as a whole.
        dialect: what is known of this server beforehand.
    """

    base_url: str
    allow_plain_http: bool = False
    ca_file: Path | None = None
    timeout_s: Seconds = 10.0
    dialect: DialectConfig = Field(default_factory=DialectConfig)

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        read_url(value)
        return value.rstrip("/")

    @model_validator(mode="after")
    def _is_encrypted(self) -> Self:
        parts = urlsplit(self.base_url)
        if parts.scheme == "http" and not self.allow_plain_http and not is_this_machine(parts.hostname or ""):
            raise ValueError(
                "service.base_url begins with http://, so the keys would travel in the clear: use https://, "
                "or set service.allow_plain_http: true on a closed test network"
            )
        return self


class DeviceConfig(Section):
    """This device, by the ids that the service gave it.

    Attributes:
        product_id: only for a service without ``command-results``: the product's table takes results then.
    """

    device_id: Identifier
    product_id: Identifier | None = None


class AuthConfig(Section):
    """The credentials of the agent. A secret is always in a file of its own, and only named here."""

    mode: Literal["key_pair", "bearer"] = "key_pair"
    allow_secret_key_on_device: bool = False
    api_key_file: Path | None = None
    secret_key_file: Path | None = None
    token_file: Path | None = None

    @model_validator(mode="after")
    def _check_secret_key_allowed(self) -> Self:
        if self.mode == "key_pair" and not self.allow_secret_key_on_device:
            raise ValueError(KEY_PAIR_REFUSAL)
        return self


class ReportConfig(Section):
    """Which readings of a sensor are worth sending.

    Attributes:
        deadband: how far a value must move, in the reading's own unit; one number, or one for each reading by name.
        at_least_every_s: send after this long even if nothing moved, so that silence means a fault.
    """

    when: Literal["period", "change", "deadband"] = "period"
    deadband: float | dict[str, float] = 0.0
    at_least_every_s: Seconds | None = None

    @model_validator(mode="after")
    def _has_a_deadband(self) -> Self:
        numbers = self.deadband.values() if isinstance(self.deadband, dict) else [self.deadband]
        if any(number < 0 for number in numbers):
            raise ValueError("deadband must not be negative")
        if self.when == "deadband" and not any(numbers):
            raise ValueError("when: deadband needs a deadband above 0, such as deadband: 0.5")
        return self


class SensorConfig(Section):
    """One sensor.

    Attributes:
        name: in logs, in status and for ``set_interval``.
        timeout_s: of one read; without it the type's own.
        prefix: whether readings are sent as NAME_READING; without it where several sensors share a type.
        priority: which readings go first when many wait, and which are dropped last when the outbox is full.
    """

    name: Name
    type: Annotated[str, Field(min_length=1)]
    enabled: bool = True
    interval_s: Annotated[float, Field(ge=0.1, le=31 * 86400)] = 60.0
    timeout_s: Seconds | None = None
    prefix: bool | None = None
    priority: Literal["high", "normal", "low"] = "normal"
    report: ReportConfig = Field(default_factory=ReportConfig)
    settings: dict[str, Any] = Field(default_factory=dict)


class OutboxConfig(Section):
    """The bounds of the store of readings that wait for the service. What is dropped is counted and reported.

    Attributes:
        max_bytes: of the whole store on the disk: commands, readings and the write-ahead log.
        send_every_s: readings of this long share one write to the flash and one request.
    """

    max_rows: Annotated[int, Field(ge=100, le=10_000_000)] = 300_000
    max_bytes: Annotated[int, Field(ge=1024**2, le=16 * 1024**3)] = 64 * 1024 * 1024
    max_age_s: Annotated[float, Field(ge=60, le=366 * 86400)] = 7 * 86400.0
    send_every_s: Annotated[float, Field(ge=0, le=3600)] = 1.0


class LoggingConfig(Section):
    """The log on standard error, which journald keeps."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class SafeModeConfig(Section):
    """When the agent starts without plug-ins: after so many starts in a row that did not last; 0 is never."""

    starts: Annotated[int, Field(ge=0, le=100)] = 5


class MetricsConfig(Section):
    """Where the figures are served in the text format of Prometheus; needs the extra ``metrics``.

    Attributes:
        port: 0 takes a free one, which the log names.
        host: they have no password and no TLS, so another address than this machine's is for a network of one's own.
    """

    port: Annotated[int, Field(ge=0, le=65535)] = 9465
    host: Host = "127.0.0.1"


class AgentConfig(Section):
    """The whole configuration of one agent.

    Attributes:
        service: the service, or the gateway's HTTP side; may be missing where there is a broker.
        mqtt: the broker in front of the gateway; with both, commands come over MQTT and the list is asked for too.
        state_dir: of journal and outbox; it must survive a reboot.
        executables: commands that run a program, by name.
    """

    service: ServiceConfig | None = None
    mqtt: MqttConfig | None = None
    device: DeviceConfig
    auth: AuthConfig = Field(default_factory=dict, validate_default=True)
    state_dir: Path = Path("/var/lib/device-agent")
    commands: CommandsConfig = Field(default_factory=CommandsConfig)
    executables: dict[Annotated[str, Field(min_length=1, max_length=64)], dict[str, Any]] = Field(default_factory=dict)
    sensors: tuple[SensorConfig, ...] = ()
    outbox: OutboxConfig = Field(default_factory=OutboxConfig)
    logging: LoggingConfig = Field(default_factory=LoggingConfig)
    safe_mode: SafeModeConfig = Field(default_factory=SafeModeConfig)
    metrics: MetricsConfig | None = None

    @model_validator(mode="after")
    def _check_transport(self) -> Self:
        if self.service is None and self.mqtt is None:
            raise ValueError(
                "service is missing; add a section 'service:' with base_url, or a section 'mqtt:' with host"
            )
        if self.mqtt is not None and self.auth.mode != "bearer":
            raise ValueError(
                "auth.mode must be 'bearer' with mqtt: the broker takes the device token as the password; put the "
                "token into the file that auth.token_file names"
            )
        return self

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [sensor.name for sensor in self.sensors]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"sensors: two sensors are called {twice[0]!r}; give each a name of its own")
        if "poll" in names:
            raise ValueError("sensors: 'poll' is what set_interval calls the command poll; choose another name")
        if self.service is not None and self.service.dialect.recorded_at_reading in names:
            raise ValueError(
                f"service.dialect.recorded_at_reading: {self.service.dialect.recorded_at_reading!r} is the name of a "
                "sensor, so its readings would be mixed up with times: choose another name"
            )
        both = sorted(name for name in self.executables if self._settings_of(name))
        if both:
            raise ValueError(
                f"commands.handlers.{both[0]}: the settings of an executable belong under executables.{both[0]}"
            )
        return self

    @model_validator(mode="after")
    def _check_state_dir_apart(self) -> Self:
        folders = self._settings_of("write_file").get("folders")
        for folder in folders if isinstance(folders, list | tuple) else ():
            path = Path(str(folder))
            if path.is_relative_to(self.state_dir) or self.state_dir.is_relative_to(path):
                raise ValueError(
                    f"commands.handlers.write_file: the folder {folder} and state_dir {self.state_dir} must not lie in "
                    "each other: whoever may send files could rewrite the journal"
                )
        return self

    def _settings_of(self, name: str) -> dict[str, Any]:
        handler = self.commands.handlers.get(name)
        return {} if handler is None else handler.settings
