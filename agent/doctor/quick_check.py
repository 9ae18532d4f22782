"""``device-agent check``: looks for faults without starting the agent; each fault in a sentence of its own."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from agent.app.links import make_broker, make_token, open_client
from agent.app.lock import holder_of
from agent.app.plugins import is_usable, list_handlers, read_sensors
from agent.app.status import read_running
from agent.app.status_file import StatusFile
from agent.config import AgentConfig, Credentials, LoadedConfig, read_credentials
from agent.config.mqtt import MqttConfig
from agent.doctor.exchange import knows_device
from agent.doctor.findings import Named, fault, no_answer, ok
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
from agent.plugins import PluginStatus
from agent.runtime.retry_policy import describe


class _FromFile(Protocol):
    @property
    def path(self) -> Path | None: ...


_Loaded = TypeVar("_Loaded", bound=_FromFile)


def check_all(load: Callable[[], LoadedConfig], environ: Mapping[str, str], *, online: bool) -> list[Named]:
    """Every check; one that fails hides no other.

    Args:
        load: gives the configuration or raises :class:`~agent.errors.ConfigurationError`.
        environ: for systemd's credentials.
        online: ask the service and the broker too.
    """
    loaded, credentials, findings = check_configuration(load, lambda it: read_credentials(it.config.auth, environ))
    if loaded is None:
        return findings
    config = loaded.config
    if config.commands.signing.mode != "off":
        findings += _check_signing(config)
    running = read_running(config, environ)
    findings += _check_handlers(config, running)
    findings += _check_sensors(config, running)
    findings.append(check_state_dir(config.state_dir))
    if online and credentials is not None and config.service is not None:
        findings += _check_service(config, credentials)
    if online and credentials is not None and config.mqtt is not None:
        findings.append(_check_broker(config, config.mqtt, credentials))
    return findings


def check_configuration(
    load: Callable[[], _Loaded], read: Callable[[_Loaded], Credentials]
) -> tuple[_Loaded | None, Credentials | None, list[Named]]:
    """The first two checks of every program: configuration and key files.

    Args:
        load: gives the configuration or raises :class:`~agent.errors.ConfigurationError`.
        read: the key files of a configuration; raises the same.

    Returns:
        The configuration and the credentials, each None when it cannot be used, and what was found.
    """
    try:
        loaded = load()
    except ConfigurationError as error:
        return None, None, [("configuration", fault(each)) for each in error.faults]
    source = str(loaded.path) if loaded.path else "the environment"
    findings = [("configuration", ok(f"{source} is whole and consistent"))]
    try:
        credentials = read(loaded)
    except ConfigurationError as error:
        return loaded, None, [*findings, *(("configuration", fault(each)) for each in error.faults)]
    return loaded, credentials, [*findings, ("credentials", ok("the key files can be read and only by this user"))]


def _check_signing(config: AgentConfig) -> list[Named]:
    from agent.app.signing import make_signature_policy  # cryptography, only where commands are signed

    try:
        key_ids = make_signature_policy(config).key_ids
    except ConfigurationError as error:
        return [("configuration", fault(each)) for each in error.faults]
    return [("signing", ok(f"{config.commands.signing.mode}; trusted: {', '.join(key_ids)}"))]


def _check_handlers(config: AgentConfig, running: StatusFile | None) -> list[Named]:
    listing = list_handlers(config, running)
    faults = [info for info in listing if not is_usable(info)]
    names = [info.name for info in listing if info.status is PluginStatus.READY]
    findings = [("handlers", ok(f"{len(names)} ready: {', '.join(names)}"))]
    return findings + [("handlers", fault(f"{info.name} is {info.status}: {info.reason}")) for info in faults]


def _check_sensors(config: AgentConfig, running: StatusFile | None) -> list[Named]:
    found = read_sensors(config, running)
    if not found:
        return [("sensors", ok("none is configured, so no readings will be sent"))]
    findings = []
    for sensor in found:
        if sensor.state == "ok":
            text = f"{sensor.name} reads {', '.join(f'{name}={value:g}' for name, value in sensor.values.items())}"
            findings.append(("sensors", ok(text)))
        elif sensor.state == str(PluginStatus.DISABLED):
            findings.append(("sensors", ok(f"{sensor.name} is switched off")))
        else:
            findings.append(("sensors", fault(f"{sensor.name} is {sensor.state}: {sensor.reason}")))
    return findings


def check_state_dir(state_dir: Path, whose: str = "agent") -> Named:
    """Whether the state directory of ``whose`` program can be used; nothing is left in it."""
    holder = holder_of(state_dir)
    if holder is not None:
        return ("state_dir", ok(f"{state_dir} is in use by the running {whose} (process {holder})"))
    # The nearest directory that exists decides: the agent makes the rest.
    nearest = next(path for path in (state_dir, *state_dir.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest) as file:
            file.write(b"x")
    except OSError as error:
        fix = "make room there" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "chown it"
        text = f"{state_dir} cannot be written by this user: {error.strerror}; {fix}, or set state_dir"
        return ("state_dir", fault(text))
    room = os.statvfs(nearest)
    free_mb = room.f_bavail * room.f_frsize // 1_000_000
    return ("state_dir", ok(f"{state_dir} can be written, {free_mb} MB are free"))


def _check_service(config: AgentConfig, credentials: Credentials) -> list[Named]:
    try:
        with open_client(config, credentials) as client:
            if client is None:
                return []
            configured = config.service.dialect.dialect().extensions if config.service is not None else None
            offered = client.discover() if configured is None else configured
            is_known = knows_device(client, config.device.device_id, offered)
    except (TransportError, UnexpectedAnswer) as error:
        return [("service", no_answer(str(error)))]
    except NotFound as error:
        text = f"it does not know device {config.device.device_id} ({error}); check device.device_id and base_url"
        return [("service", fault(text))]
    except ConfigurationError as error:
        return [("configuration", fault(each)) for each in error.faults]
    except (ServiceError, InvalidMessage) as error:
        return [("service", fault(describe(error)[1]))]
    extensions = ", ".join(sorted(offered)) or "none (a plain server)"
    known = "and knows this device" if is_known else "and does not say whether it knows this device"
    return [("service", ok(f"it accepts the keys {known}; extensions: {extensions}"))]


def _check_broker(config: AgentConfig, mqtt: MqttConfig, credentials: Credentials) -> Named:
    holder = holder_of(config.state_dir)
    if holder is not None:
        # A second connection with the same id would throw the agent's out.
        text = f"left alone, since the running agent (process {holder}) is connected: see device-agent status"
        return ("broker", ok(text))
    try:
        text = try_broker(config, mqtt, credentials)
    except ConfigurationError as error:
        return ("configuration", fault(error.faults[0]))
    except LockedOut as error:
        return ("broker", fault(str(error)))
    except Offline as error:
        return ("broker", (fault if error.state == "bad_certificate" else no_answer)(str(error)))
    return ("broker", ok(text))


def try_broker(config: AgentConfig, mqtt: MqttConfig, credentials: Credentials) -> str:
    """Connect and subscribe once as this device, which a running agent would not survive; a sentence when it worked.

    Raises:
        ConfigurationError: the device id cannot be a user of a broker.
        Offline: it did not work, and why.
    """
    from agent.adapters.mqtt_device import probe

    broker = make_broker(config, mqtt)
    version = probe(broker, config.device.device_id, make_token(credentials)(), mqtt.version)
    return f"{broker} takes this device's token and speaks MQTT {version}"
