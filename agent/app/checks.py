"""What ``device-agent check``, ``handlers`` and ``sensors`` find out, without starting the agent."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

from agent.app.device_look import knows_device
from agent.app.links import open_client
from agent.app.lock import holder_of
from agent.app.plugins import load_handlers
from agent.app.sensor_look import SensorFindings, read_in_process
from agent.app.tokens import look_at_tokens
from agent.config import AgentConfig, Credentials, LoadedConfig, read_credentials
from agent.config.mqtt import MqttConfig
from agent.errors import (
    ConfigurationError,
    InvalidMessage,
    LockedOut,
    NotFound,
    Offline,
    ServiceError,
    TransportError,
    UnexpectedAnswer,
)
from agent.frozen import dataclass
from agent.handlers.registry import HandlerRegistry
from agent.plugins import PluginInfo, PluginStatus
from agent.runtime.retry_policy import describe


class Verdict(StrEnum):
    """How a check went."""

    OK = "ok"
    FAILED = "FAIL"
    UNREACHABLE = "DOWN"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the check."""

    part: str
    verdict: Verdict
    text: str


def is_usable(info: PluginInfo) -> bool:
    """Ready, or switched off on purpose."""
    return info.status in {PluginStatus.READY, PluginStatus.DISABLED}


def read_all_sensors(config: AgentConfig) -> SensorFindings:
    """Read each configured sensor once, each within its timeout; those of installed types in a process of their own."""
    from agent.app.plugin_probe import read_installed_sensors

    installed = read_installed_sensors(config)
    here = read_in_process(config, without=installed)
    by_name = installed | {sensor.name: sensor for sensor in here.sensors}
    return SensorFindings(tuple(by_name[sensor.name] for sensor in config.sensors), here.types)


def survey_handlers(config: AgentConfig) -> HandlerRegistry:
    """Load every handler, as ``device-agent run`` does, but survive those that end their process."""
    from agent.app.plugin_probe import leave_out_deadly_handlers

    leave_out_deadly_handlers(config)
    return load_handlers(config)


def check_all(load: Callable[[], LoadedConfig], environ: Mapping[str, str], *, online: bool) -> list[Finding]:
    """Every check; one that fails hides no other.

    Args:
        load: gives the configuration or raises :class:`~agent.errors.ConfigurationError`.
        environ: for systemd's credentials.
        online: ask the service and the broker too.
    """
    try:
        loaded = load()
    except ConfigurationError as error:
        return [Finding("configuration", Verdict.FAILED, fault) for fault in error.faults]
    source = str(loaded.path) if loaded.path else "the environment"
    findings = [Finding("configuration", Verdict.OK, f"{source} is whole and consistent")]
    config = loaded.config
    credentials: Credentials | None = None
    try:
        credentials = read_credentials(config.auth, environ)
        findings.append(Finding("credentials", Verdict.OK, "the key files can be read and only by this user"))
        if credentials.tokens is not None:
            findings.append(_check_tokens(config, environ))
    except ConfigurationError as error:
        findings += [Finding("configuration", Verdict.FAILED, fault) for fault in error.faults]
    if config.commands.signing.mode != "off":
        findings += _check_signing(config)
    findings += _check_handlers(config)
    findings += _check_sensors(config)
    findings.append(check_state_dir(config.state_dir))
    if online and credentials is not None and config.service is not None:
        findings += _check_service(config, credentials)
    if online and credentials is not None and config.mqtt is not None:
        findings.append(_check_broker(config, config.mqtt, credentials))
    return findings


def _check_tokens(config: AgentConfig, environ: Mapping[str, str]) -> Finding:
    standing = look_at_tokens(config, environ, time.time())
    return Finding("tokens", Verdict.OK if standing.is_usable else Verdict.FAILED, standing.text)


def _check_signing(config: AgentConfig) -> list[Finding]:
    from agent.app.signing import make_seals  # cryptography, only where commands are signed

    try:
        key_ids = make_seals(config).key_ids
    except ConfigurationError as error:
        return [Finding("configuration", Verdict.FAILED, fault) for fault in error.faults]
    return [Finding("signing", Verdict.OK, f"{config.commands.signing.mode}; trusted: {', '.join(key_ids)}")]


def _check_handlers(config: AgentConfig) -> list[Finding]:
    registry = survey_handlers(config)
    faults = [info for info in registry.listing() if not is_usable(info)]
    names = ", ".join(registry.names())
    findings = [Finding("handlers", Verdict.OK, f"{len(registry.names())} ready: {names}")]
    return findings + [
        Finding("handlers", Verdict.FAILED, f"{info.name} is {info.status}: {info.reason}") for info in faults
    ]


def _check_sensors(config: AgentConfig) -> list[Finding]:
    found = read_all_sensors(config)
    if not found.sensors:
        return [Finding("sensors", Verdict.OK, "none is configured, so no readings will be sent")]
    findings = []
    for sensor in found.sensors:
        if sensor.state == "ok":
            text = f"{sensor.name} reads {', '.join(f'{name}={value:g}' for name, value in sensor.values.items())}"
            findings.append(Finding("sensors", Verdict.OK, text))
        elif sensor.state == str(PluginStatus.DISABLED):
            findings.append(Finding("sensors", Verdict.OK, f"{sensor.name} is switched off"))
        else:
            findings.append(Finding("sensors", Verdict.FAILED, f"{sensor.name} is {sensor.state}: {sensor.reason}"))
    return findings


def check_state_dir(state_dir: Path, whose: str = "agent") -> Finding:
    """Whether the state directory of ``whose`` program can be used; nothing is left in it."""
    holder = holder_of(state_dir)
    if holder is not None:
        return Finding("state_dir", Verdict.OK, f"{state_dir} is in use by the running {whose} (process {holder})")
    # The nearest directory that exists decides: the agent makes the rest.
    nearest = next(path for path in (state_dir, *state_dir.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest) as file:
            file.write(b"x")
    except OSError as error:
        fix = "make room there" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "chown it"
        text = f"{state_dir} cannot be written by this user: {error.strerror}; {fix}, or set state_dir"
        return Finding("state_dir", Verdict.FAILED, text)
    room = os.statvfs(nearest)
    free_mb = room.f_bavail * room.f_frsize // 1_000_000
    return Finding("state_dir", Verdict.OK, f"{state_dir} can be written, {free_mb} MB are free")


def _check_service(config: AgentConfig, credentials: Credentials) -> list[Finding]:
    try:
        with open_client(config, credentials) as client:
            if client is None:
                return []
            configured = config.service.dialect.dialect().extensions if config.service is not None else None
            offered = client.discover() if configured is None else configured
            is_known = knows_device(client, config.device.device_id, offered)
    except (TransportError, UnexpectedAnswer) as error:
        return [Finding("service", Verdict.UNREACHABLE, str(error))]
    except NotFound as error:
        text = f"it does not know device {config.device.device_id} ({error}); check device.device_id and base_url"
        return [Finding("service", Verdict.FAILED, text)]
    except ConfigurationError as error:
        return [Finding("configuration", Verdict.FAILED, fault) for fault in error.faults]
    except (ServiceError, InvalidMessage) as error:
        return [Finding("service", Verdict.FAILED, describe(error)[1])]
    extensions = ", ".join(sorted(offered)) or "none (a plain server)"
    known = "and knows this device" if is_known else "and does not tell whether it knows this device"
    return [Finding("service", Verdict.OK, f"it accepts the keys {known}; extensions: {extensions}")]


def _check_broker(config: AgentConfig, mqtt: MqttConfig, credentials: Credentials) -> Finding:
    holder = holder_of(config.state_dir)
    if holder is not None:
        # A second connection with the same id would throw the agent's out.
        text = f"left alone, since the running agent (process {holder}) is connected: see device-agent status"
        return Finding("broker", Verdict.OK, text)
    try:
        text = try_broker(config, mqtt, credentials)
    except ConfigurationError as error:
        return Finding("configuration", Verdict.FAILED, error.faults[0])
    except LockedOut as error:
        return Finding("broker", Verdict.FAILED, str(error))
    except Offline as error:
        return Finding(
            "broker", Verdict.FAILED if error.state == "bad_certificate" else Verdict.UNREACHABLE, str(error)
        )
    return Finding("broker", Verdict.OK, text)


def try_broker(config: AgentConfig, mqtt: MqttConfig, credentials: Credentials) -> str:
    """Connect and subscribe once as this device, which a running agent would not survive; a sentence when it worked.

    Raises:
        ConfigurationError: the device id cannot be a user of a broker.
        Offline: it did not work, and why.
    """
    from agent.adapters.mqtt_device import probe
    from agent.app.mqtt_links import make_broker, make_token

    broker = make_broker(config, mqtt)
    version = probe(broker, config.device.device_id, make_token(credentials)(), mqtt.version)
    return f"{broker} takes this device's token and speaks MQTT {version}"
