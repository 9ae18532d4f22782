"""How a gateway is: ``check`` before it runs, ``status`` while it does and after."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.app.lock import holder_of
from agent.app.status import StatusFile, newest_status, process_state, status_path
from agent.config.credentials import Credentials
from agent.doctor.checks import check_state_dir
from agent.doctor.findings import Named, failed, ok, unreachable, warning
from agent.errors import ConfigurationError, InvalidMessage, ServiceError, TransportError, UnexpectedAnswer
from agent.retry import describe
from agent.wire.network import authority
from gateway.broker import LIMITS, PASSWORDS
from gateway.certificates import certificate_trouble
from gateway.config import GatewayConfig, HttpConfig
from gateway.devices import service_client
from gateway.http_server import tls_context
from gateway.mqtt import check_broker_port
from gateway.tokens import FILE_NAME, with_tokens

WHO: Final = "gateway"
"""Owner of the status file."""
_RUNTIME: Final = Path("/run/device-gateway/status.json")
_BROKER_FILES: Final = (Path("/etc/mosquitto/conf.d/device-gateway.conf"), Path("/etc/mosquitto/device-gateway"))


# --- check ------------------------------------------------------------------------------------------------------------


def check_gateway(load: Callable[[], GatewayConfig], environ: Mapping[str, str], *, online: bool) -> list[Named]:
    """Every check; one that fails hides no other.

    Args:
        load: gives the configuration or raises :class:`~agent.errors.ConfigurationError`.
        environ: for systemd's credentials.
        online: ask the service and the broker too.
    """
    try:
        config = load()
        credentials = config.auth.credentials(environ)
    except ConfigurationError as error:
        return [("configuration", failed(each)) for each in error.faults]
    findings = [
        ("configuration", ok("it is whole and consistent, and the key files can be read")),
        ("state_dir", check_state_dir(config.state_dir, "gateway")),
        _check_tokens(config),
    ]
    if config.http.enabled:
        findings.append(_check_http(config.http))
    if config.mqtt.enabled:
        findings += _check_broker_files()
        if online:
            findings.append(_check_broker(config))
    if online:
        findings.append(_check_service(config, credentials))
    return findings


def _check_tokens(config: GatewayConfig) -> Named:
    if not (config.state_dir / FILE_NAME).exists():
        return ("devices", ok("no device has a token yet: device-gateway devices add --device-id ID"))
    try:
        count = with_tokens(config.state_dir, lambda tokens: len(tokens.device_ids()))
    except ConfigurationError as error:
        return ("devices", failed(error.faults[0]))
    return ("devices", ok(f"{count} have a valid token"))


def _check_http(http: HttpConfig) -> Named:
    try:
        tls_context(http)
    except ConfigurationError as error:
        return ("http", failed(error.faults[0]))
    state, trouble = certificate_state(http, time.time())
    if state != "ok":
        return ("http", failed(trouble))
    scheme = "http" if http.certificate is None else "https"
    return ("http", ok(f"devices are to be served at {scheme}://{authority(http.host, http.port)}"))


def _check_broker_files() -> list[Named]:
    """Where ``broker-config`` has written the system's broker: does its queue outlive a restart, and is it bounded?"""
    configuration, directory = _BROKER_FILES
    if not (directory / PASSWORDS).exists():
        return []  # another broker, or one on another machine
    try:
        lines = configuration.read_text("utf-8").splitlines()
    except OSError as error:
        return [("broker files", warning(str(configuration), f"it cannot be read: {error.strerror}", "use sudo"))]
    wanted = [line for line in (*LIMITS, "persistence true") if not line.startswith("#")]
    missing = [line for line in wanted if line not in lines]
    if missing:
        cause = f"it lacks: {', '.join(missing)}"
        return [("broker files", warning(str(configuration), cause, "run device-gateway broker-config again"))]
    return [("broker files", ok(f"{configuration}: messages wait on the disk, within bounds"))]


def _check_broker(config: GatewayConfig) -> Named:
    holder = holder_of(config.state_dir)
    if holder is not None:
        # A second connection with the gateway's client id would throw the running one out.
        text = f"left alone, since the running gateway (process {holder}) is connected: see device-gateway status"
        return ("mqtt", ok(text))
    problem = check_broker_port(config.mqtt)
    if problem is None:
        return ("mqtt", ok(f"the broker {authority(config.mqtt.host, config.mqtt.port)} takes the gateway"))
    return ("mqtt", unreachable(problem))


def _check_service(config: GatewayConfig, credentials: Credentials) -> Named:
    """The service's answer to requests that change nothing."""
    configured = config.service.dialect.dialect().extensions
    try:
        with service_client(config.service, credentials) as client:
            names = client.discover().extensions if configured is None else configured
            count = sum(1 for _ in client.devices(limit=1))
    except (TransportError, UnexpectedAnswer) as error:
        return ("service", unreachable(str(error)))
    except ConfigurationError as error:
        return ("service", failed("; ".join(error.faults)))
    except (ServiceError, InvalidMessage) as error:
        return ("service", failed(describe(error)[1]))
    devices = "has devices" if count else "has no device yet"
    words = ", ".join(sorted(names)) or "none, a plain server"
    return ("service", ok(f"it accepts the keys and {devices}; extensions: {words}"))


def certificate_state(http: HttpConfig, now_s: float) -> tuple[str, str]:
    """``ok``, or a word and a sentence on the certificate of the HTTP front."""
    trouble = "" if http.certificate is None else certificate_trouble(http.certificate, now_s)
    return ("certificate", trouble) if trouble else ("ok", "")


# --- status -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """What can be known without asking the gateway.

    Attributes:
        state: ``running``, ``stopped``, ``died`` (it left no stop record) or ``never started``.
        is_healthy: whether it runs and every part of it is well.
        process_id: of the running gateway.
        last_status: the last status that a process wrote.
        devices: with a valid token; None when the file of tokens cannot be read.
    """

    state: str
    is_healthy: bool
    state_dir: Path
    process_id: int | None
    last_status: StatusFile | None
    devices: int | None


def read_gateway_status(config: GatewayConfig, environ: Mapping[str, str]) -> GatewayStatus:
    """Read files alone: the running program is not disturbed."""
    state_dir = config.state_dir
    holder = holder_of(state_dir)
    last = newest_status([status_path(state_dir, environ), status_path(state_dir, {}), _RUNTIME], WHO)
    has_file = (state_dir / FILE_NAME).exists()
    devices: int | None = 0
    if has_file:
        try:
            devices = with_tokens(state_dir, lambda tokens: len(tokens.device_ids()))
        except ConfigurationError:
            devices = None
    state = process_state(holder, last, has_store=has_file)
    is_well = all(part.state == "ok" for part in last.parts.values()) if last else False
    is_healthy = state == "running" and devices is not None and is_well
    return GatewayStatus(state, is_healthy, state_dir, holder, last, devices)
