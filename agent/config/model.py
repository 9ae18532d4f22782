"""Every key of the agent's configuration: what it means, its default, its unit and why one would change it.

The JSON Schema (``device-agent config schema``) is made from these models; ``configs/`` is kept by hand and compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from agent.config.commands import CommandsConfig
from agent.config.dialect import DialectConfig
from agent.config.metrics import MetricsConfig
from agent.config.mqtt import MqttConfig
from agent.config.section import Identifier, Name, Seconds, Section, is_this_machine, key

KEY_PAIR_REFUSAL = (
    "auth.mode 'key_pair' puts the secret key (msk_...) onto this device, and the specification says that it belongs "
    "on a server that you control: whoever holds the device could command your whole fleet. Better: let the device "
    "talk to the gateway with a device token, or use auth.mode 'bearer' with a scoped token. "
    "For a bench or one prototype, set auth.allow_secret_key_on_device: true"
)


class ServiceConfig(Section):
    """The service's address and time limits."""

    base_url: str = key("Address of the service; all paths are relative to it.", example="https://api.example.com/v1")
    allow_plain_http: bool = key(
        "Allow http:// to an address that is not this machine.",
        why="Without TLS anybody on the way reads the keys. Leave it off outside a closed test network.",
        default=False,
    )
    ca_file: Path | None = key(
        "PEM file with the certificate authorities to trust instead of the built-in list.",
        why="For a service or gateway behind a company's own authority.",
        default=None,
        example="/etc/device-agent/ca.pem",
    )
    timeout_s: Seconds = key(
        "How long one request may take as a whole before it counts as failed; a held poll may take its wait on top, "
        "and an answer that comes at 2 KiB/s or more may take up to 60 s.",
        unit="s",
        why="Raise it on a slow mobile link.",
        default=10.0,
    )
    max_answer_bytes: int = key(
        "The largest answer to read, after decompression; a larger one is refused.",
        unit="bytes",
        why="Bounds the memory that a broken or hostile server can take.",
        default=16 * 1024 * 1024,
        ge=64 * 1024,
        le=256 * 1024 * 1024,
    )
    dialect: DialectConfig = key(
        "What is known of this server beforehand; the agent finds out what is not said here.",
        default_factory=DialectConfig,
    )

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("write it as https://HOST or https://HOST/PATH")
        if parts.username or parts.password:
            raise ValueError("take the user name and password out of the address; keys go into files (see auth)")
        if parts.query or parts.fragment:
            raise ValueError("take everything from '?' or '#' on out of the address")
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
    """This device."""

    device_id: Identifier = key(
        "The id that the service gave this device when it was registered.",
        example="0190c7a4-5b1e-7cc1-9a55-000000000001",
    )
    product_id: Identifier | None = key(
        "The product that this device belongs to.",
        why="Only needed with a service that offers no 'command-results': results then go into the product's table "
        "command_results.",
        default=None,
        example="0190c7a4-5b1e-7cc1-9a55-0000000000aa",
    )


class AuthConfig(Section):
    """The credentials of the agent. A secret is always in a file of its own, and only named here."""

    mode: Literal["key_pair", "bearer"] = key(
        "'key_pair' sends x-api-key and x-secret-key; 'bearer' sends a token: a device token of the gateway, or a "
        "scoped token of the service.",
        why="The key pair may do everything with your account, a scoped token only what its scope allows, a device "
        "token only what concerns its own device.",
        default="key_pair",
    )
    allow_secret_key_on_device: bool = key(
        "Accept that the secret key lies on this device; key_pair is refused without it.",
        why="The specification keeps the secret key on a server that you control. Right for a bench or one prototype; "
        "a fleet uses the gateway, which gives each device a token of its own.",
        default=False,
    )
    api_key_file: Path | None = key(
        "File that holds the API key (mk_...), mode 600. The systemd credential 'api_key' goes before it.",
        default=None,
        example="/etc/device-agent/api_key",
    )
    secret_key_file: Path | None = key(
        "File that holds the secret key (msk_...), mode 600. The systemd credential 'secret_key' goes before it.",
        default=None,
        example="/etc/device-agent/secret_key",
    )
    token_file: Path | None = key(
        "File of mode 600 with a bearer token, which another program may renew: it is read again whenever it changes, "
        "and never written. The systemd credential 'token' goes before it.",
        default=None,
        example="/etc/device-agent/token",
    )

    @model_validator(mode="after")
    def _check_secret_key_allowed(self) -> Self:
        if self.mode == "key_pair" and not self.allow_secret_key_on_device:
            raise ValueError(KEY_PAIR_REFUSAL)
        return self


class ReportConfig(Section):
    """Which readings of a sensor are worth sending."""

    when: Literal["period", "change", "deadband"] = key(
        "'period' sends each reading, 'change' only what differs from the last one sent, 'deadband' only what moved by "
        "at least the deadband.",
        default="period",
    )
    deadband: float | dict[str, float] = key(
        "How far a value must move, in the reading's own unit: one number for all readings, or one for each by name.",
        default=0.0,
    )
    percent: bool = key("Take the deadband in percent of the value sent last.", default=False)
    at_least_every_s: Seconds | None = key(
        "Send after this long even if nothing moved, so that silence means a fault.",
        unit="s",
        default=None,
        example=3600,
    )

    @model_validator(mode="after")
    def _has_a_deadband(self) -> Self:
        numbers = self.deadband.values() if isinstance(self.deadband, dict) else [self.deadband]
        if any(number < 0 for number in numbers):
            raise ValueError("deadband must not be negative")
        if self.when == "deadband" and not any(numbers):
            raise ValueError("when: deadband needs a deadband above 0, such as deadband: 0.5")
        return self


class SensorConfig(Section):
    """One sensor."""

    name: Name = key("What this sensor is called in logs, in status and by set_interval; unique.", example="board")
    type: str = key("Which kind of sensor; device-agent sensors lists the types.", example="system", min_length=1)
    enabled: bool = key("False switches the sensor off.", default=True)
    interval_s: Annotated[float, Field(ge=0.1, le=31 * 86400)] = key(
        "How often to read it. Devices start at different moments of the interval.", unit="s", default=60.0
    )
    timeout_s: Seconds | None = key(
        "How long one read may take, then it counts as failed. Default: the type's own.",
        unit="s",
        default=None,
        example=5,
    )
    prefix: bool | None = key(
        "True sends NAME_READING always, false READING where it is free. Default: true when several sensors share a "
        "type.",
        default=None,
        example=True,
    )
    priority: Literal["high", "normal", "low"] = key(
        "Which readings go first when many wait, and which give way last when the outbox is full. Readings of the last "
        "minute go before all of them.",
        default="normal",
    )
    report: ReportConfig = key("Which readings are sent.", default_factory=dict, validate_default=True)
    settings: dict[str, Any] = key("The type's own settings.", default_factory=dict)


class OutboxConfig(Section):
    """The bounds of the store of readings that wait for the service. What is dropped is counted and reported."""

    max_rows: Annotated[int, Field(ge=100, le=10_000_000)] = key(
        "At most this many readings wait.",
        unit="readings",
        why="The default holds three days of one reading a second.",
        default=300_000,
    )
    max_bytes: Annotated[int, Field(ge=1024**2, le=16 * 1024**3)] = key(
        "What the store takes on the disk at most: commands, readings and the write-ahead log (a quarter of this, at "
        "most 4 MiB). The file keeps the size that it once had and is used again from within.",
        unit="bytes",
        why="Fit it to your flash.",
        default=64 * 1024 * 1024,
    )
    max_age_s: Annotated[float, Field(ge=60, le=366 * 86400)] = key(
        "Older readings are dropped.",
        unit="s",
        why="Yesterday's temperature may be worth nothing, or a proof.",
        default=7 * 86400.0,
    )
    send_every_s: Annotated[float, Field(ge=0, le=3600)] = key(
        "Readings of this long share one write to the flash and one request; those of sensors with priority high go at "
        "once.",
        unit="s",
        why="A power cut loses at most this much of readings. Longer spares the SD card and the mobile contract.",
        default=1.0,
    )


class LoggingConfig(Section):
    """The log on standard error, which journald keeps."""

    level: Literal["debug", "info", "warning", "error"] = key("The least severe lines to write.", default="info")
    format: Literal["text", "json"] = key("'text' writes key=value lines, 'json' one object per line.", default="text")


class SafeModeConfig(Section):
    """When the agent starts with its mending handlers alone."""

    starts: Annotated[int, Field(ge=0, le=100)] = key(
        "After so many starts in a row that did not last 60 s, the next one is in safe mode: only the handlers that "
        "mend, no plug-ins, no executables, no sensors; everything is tried again after 10 minutes, then 20, 40, up to "
        "a day. 0 switches safe mode off.",
        unit="starts",
        why="A plug-in that takes the agent down would otherwise take the way to mend it along.",
        default=5,
    )


class AgentConfig(Section):
    """The whole configuration of one agent."""

    service: ServiceConfig | None = key(
        "The service that this device belongs to, or the gateway's HTTP side. With a section mqtt it may be missing; "
        "with both, commands come over MQTT and the list is asked for now and then.",
        default=None,
    )
    mqtt: MqttConfig | None = key(
        "The broker in front of the gateway. Without this section the agent speaks HTTP only.", default=None
    )
    device: DeviceConfig = key("Which device this is.")
    auth: AuthConfig = key("How the agent proves who it is.", default_factory=dict, validate_default=True)
    state_dir: Path = key(
        "Directory of the journal and the outbox. Under systemd $STATE_DIRECTORY is the default.",
        why="It must survive a reboot: what is on a RAM disk is lost with the power.",
        default=Path("/var/lib/device-agent"),
    )
    commands: CommandsConfig = key(
        "Which commands are taken and how they run.", default_factory=dict, validate_default=True
    )
    executables: dict[str, dict[str, Any]] = key(
        "Commands that run a program of yours: the payload as JSON on its standard input, its result as JSON from its "
        "standard output, and its exit code decides.",
        default_factory=dict,
    )
    sensors: tuple[SensorConfig, ...] = key("What is read and sent, in this order.", default=())
    outbox: OutboxConfig = key("Bounds of the store of waiting readings.", default_factory=dict, validate_default=True)
    logging: LoggingConfig = key("What is logged.", default_factory=dict, validate_default=True)
    safe_mode: SafeModeConfig = key(
        "What an agent does that does not stay up.", default_factory=dict, validate_default=True
    )
    metrics: MetricsConfig | None = key(
        "Figures for Prometheus, on a port of this machine. Without this section none are served.",
        default=None,
    )

    @model_validator(mode="after")
    def _check_time_name(self) -> Self:
        name = self.service.dialect.recorded_at_reading if self.service is not None else None
        if name is not None and any(sensor.name == name for sensor in self.sensors):
            raise ValueError(
                f"service.dialect.recorded_at_reading: {name!r} is the name of a sensor, so its readings would be "
                "mixed up with times: choose another name"
            )
        return self

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

    @field_validator("executables")
    @classmethod
    def _have_names(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for name in value:
            if not name or len(name) > 64:
                raise ValueError("the name of an executable has 1 to 64 characters")
        return value

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [sensor.name for sensor in self.sensors]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"sensors: two sensors are called {twice[0]!r}; give each a name of its own")
        both = sorted(name for name in self.executables if self._settings_of(name))
        if both:
            raise ValueError(
                f"commands.handlers.{both[0]}: the settings of an executable belong under executables.{both[0]}"
            )
        if "poll" in names:
            raise ValueError("sensors: 'poll' is what set_interval calls the command poll; choose another name")
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
