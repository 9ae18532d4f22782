"""The agent's configuration: every key with its default and its rules.

What each key is for stands in ``configs/agent-http.yaml`` and ``configs/agent-mqtt.yaml``; a test compares them.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from agent.wire.network import is_this_machine, read_host, read_url
from agent.wire.server import ALL_EXTENSIONS, RESULTS_TABLE, CommandLists, Dialect, ResultPlace

Seconds = Annotated[float, Field(gt=0, le=31 * 86400)]
Host = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(read_host)]
Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
Identifier = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")]


class Section(BaseModel):
    """The base of all sections: frozen, and an unknown key is a fault."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


# --- service and broker -----------------------------------------------------------------------------------------------

AUTO: Final = "auto"


class DialectConfig(Section):
    """How this server speaks where the specification leaves it open; with ``auto`` the agent finds out by itself.

    Attributes:
        extensions: additions to the specification, by the names of the discovery document; none is a plain server.
        command_id: the member of a listed command that holds its id, with dots for members inside members.
        time_zone: of times that the server writes without one; a name or an offset.
        recorded_at_reading: of a server without ``recorded_at``: a name in ``sensor_data`` for the time of reading.
        results: where results of commands go.
        results_table: the runtime-data table that takes them.
        command_lists: what a list of commands holds: open ones alone, everything for ever, or each command once.
    """

    extensions: Literal["auto"] | tuple[str, ...] = AUTO
    command_id: Annotated[str, Field(pattern=r"^[^.\x00-\x1f\x7f]+(\.[^.\x00-\x1f\x7f]+)*$", max_length=255)] = AUTO
    time_zone: str = AUTO
    recorded_at_reading: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    results: Literal["auto", "endpoint", "table", "none"] = AUTO
    results_table: Annotated[str, Field(min_length=1, max_length=255)] = RESULTS_TABLE
    command_lists: Literal["auto", "open", "everything", "once"] = AUTO

    @field_validator("extensions")
    @classmethod
    def _are_known(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        unknown = [] if isinstance(value, str) else sorted(set(value) - ALL_EXTENSIONS)
        if unknown:
            raise ValueError(f"{unknown[0]!r} is no extension; there are {', '.join(sorted(ALL_EXTENSIONS))}")
        return value

    @field_validator("time_zone")
    @classmethod
    def _is_a_zone(cls, value: str) -> str:
        _zone(value)
        return value

    def dialect(self) -> Dialect:
        """The section as the client takes it."""
        path = None if self.command_id == AUTO else tuple(self.command_id.split("."))
        return Dialect(
            extensions=None if self.extensions == AUTO else frozenset(self.extensions),
            command_id_path=path,
            zone=_zone(self.time_zone),
            recorded_at_reading=self.recorded_at_reading,
            results=None if self.results == AUTO else ResultPlace(self.results),
            results_table=self.results_table,
            command_lists=None if self.command_lists == AUTO else CommandLists(self.command_lists),
        )


def _zone(name: str) -> tzinfo:
    if name in {AUTO, "UTC"}:
        return UTC
    try:
        return datetime.strptime(name, "%z").tzinfo or UTC
    except ValueError:
        pass  # no offset
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        text = f"{name!r} is no zone of this machine: write an offset such as +02:00, or install tzdata"
        raise ValueError(text) from None


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


def _version_as_text(value: object) -> object:
    return "5" if value == 5 and not isinstance(value, bool) else value


MqttVersion = Annotated[Literal["5", "3.1.1"], BeforeValidator(_version_as_text)]


class MqttConfig(Section):
    """The broker. Client id and user name are the device id, the password is its token.

    Attributes:
        port: see :attr:`port_in_use` for its default.
        ca_file: PEM file with the authorities to trust instead of the system's; read at each connection.
        cert_file, key_file: PEM files of this device's own certificate, for a broker that asks for one.
        version: of MQTT; 3.1.1 for a broker that does not speak 5.
        reconnect_max_s: the longest wait between two attempts to connect.
        receipt_timeout_s: how long to wait for a receipt before the same is sent again.
    """

    host: Host
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    tls: bool = True
    allow_plain_mqtt: bool = False
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    version: MqttVersion = "5"
    reconnect_max_s: Annotated[float, Field(ge=1, le=3600)] = 120.0
    receipt_timeout_s: Seconds = 10.0

    @model_validator(mode="after")
    def _is_encrypted(self) -> Self:
        if not self.tls and not self.allow_plain_mqtt and not is_this_machine(self.host):
            raise ValueError(
                "mqtt.tls is off, so the device's token would travel in the clear: leave it on, or set "
                "mqtt.allow_plain_mqtt: true on a closed test network"
            )
        if not self.tls and (self.ca_file or self.cert_file or self.key_file):
            raise ValueError("mqtt.tls is off, and a certificate file is named: set tls: true or remove the file")
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("mqtt.cert_file and mqtt.key_file go together: name both or none")
        return self

    @property
    def port_in_use(self) -> int:
        """The port, as given or by default."""
        return self.port or (8883 if self.tls else 1883)


# --- the device, and what it shows ------------------------------------------------------------------------------------

KEY_PAIR_REFUSAL = (
    "auth.mode 'key_pair' puts the secret key (msk_...) onto this device, and the specification says that it belongs "
    "on a server that you control: whoever holds the device could command your whole fleet. Better: let the device "
    "talk to the gateway with a device token, or use auth.mode 'bearer' with a scoped token. "
    "For a bench or one prototype, set auth.allow_secret_key_on_device: true"
)


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


# --- commands ---------------------------------------------------------------------------------------------------------


class PollConfig(Section):
    """How often the agent asks for commands where the service cannot hold a poll open.

    Attributes:
        fast_s: while commands come in.
        idle_s: when nothing has come for long.
        spread_s: the first contact comes within this after the start, at a moment that follows from the device id.
    """

    fast_s: Seconds = 2.0
    idle_s: Seconds = 60.0
    spread_s: Annotated[float, Field(ge=0, le=3600)] = 2.0

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.fast_s > self.idle_s:
            raise ValueError("fast_s must not be above idle_s")
        return self


class HandlerConfig(Section):
    """One handler, by its name; without ``timeout_s`` its own counts."""

    enabled: bool = True
    timeout_s: Seconds | None = None
    settings: dict[str, Any] = Field(default_factory=dict)


class SigningConfig(Section):
    """Commands that carry their sender's signature (docs/security.md, "Signed commands").

    Attributes:
        mode: ``off`` rejects signed commands, ``accept`` takes them too, ``require`` takes nothing else.
        trusted_keys: files with public keys.
        require_for: handlers whose commands must be signed although the mode is ``accept``.
    """

    mode: Literal["off", "accept", "require"] = "off"
    trusted_keys: tuple[Path, ...] = ()
    require_for: tuple[Name, ...] = ()

    @model_validator(mode="after")
    def _has_keys(self) -> Self:
        if self.mode != "off" and not self.trusted_keys:
            raise ValueError(
                f"commands.signing.mode is {self.mode!r} and no key is trusted: name at least one public key file in "
                "commands.signing.trusted_keys (device-agent keys writes one)"
            )
        if self.mode == "off" and self.require_for:
            raise ValueError(
                "commands.signing.require_for has no effect while commands.signing.mode is off: set mode to accept"
            )
        return self


class CommandsConfig(Section):
    """Commands: which are taken and how they run.

    Attributes:
        handler_key: the member of ``command_payload`` that names the handler; the specification leaves it open.
        first_contact: whether commands from before this device's first contact run, which nobody calls open.
        long_poll_s: how long the service may hold one poll open; 0 never.
        handlers: by name; a handler that is not here runs with its defaults.
    """

    handler_key: Annotated[str, Field(min_length=1, max_length=64)] = "command"
    first_contact: Literal["skip-history", "all"] = "skip-history"
    poll: PollConfig = Field(default_factory=PollConfig)
    long_poll_s: Annotated[float, Field(ge=0, le=30)] = 25.0
    signing: SigningConfig = Field(default_factory=SigningConfig)
    handlers: dict[str, HandlerConfig] = Field(default_factory=dict)


# --- readings, and the rest -------------------------------------------------------------------------------------------


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
