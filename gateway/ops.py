"""``device-gateway check`` before the gateway runs, and ``status`` while it does and after."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from agent.app.lock import holder_of
from agent.app.status import newest_status, process_state, status_path
from agent.cli.check import end_with_findings
from agent.cli.program import json_option, print_json, print_parts
from agent.config.credentials import Credentials
from agent.doctor import Named, failed, ok, unreachable
from agent.doctor.checks import check_state_dir
from agent.errors import (
    EXIT_CHECK_FAILED,
    ConfigurationError,
    InvalidMessage,
    ServiceError,
    TransportError,
    UnexpectedAnswer,
)
from agent.health import describe
from agent.wire.network import authority
from gateway.certificates import certificate_trouble
from gateway.config import GatewayConfig
from gateway.mqtt import check_broker_port
from gateway.options import extensions_of, gateway_config_option, load, service_client
from gateway.run import WHO, listen, tls_context
from gateway.tokens import FILE_NAME, with_tokens

_RUNTIME: Final = Path("/run/device-gateway/status.json")


# --- check ------------------------------------------------------------------------------------------------------------


@click.command()
@gateway_config_option
@json_option
@click.option(
    "--online",
    is_flag=True,
    envvar="DEVICE_GATEWAY_ONLINE",
    show_envvar=True,
    help="Also ask the service and the broker: can they be reached, are keys and password good?",
)
def check(config_path: Path, *, as_json: bool, online: bool) -> None:
    """Check everything at once: configuration, key files, state directory, device tokens, certificate.

    Exit code 0 when all is good, 2 when the configuration is wrong, 5 when service or broker cannot be reached, else 1.
    """
    logging.disable(logging.CRITICAL)  # the list says it better
    end_with_findings(_findings(config_path, online=online), as_json=as_json)


def _findings(config_path: Path, *, online: bool) -> list[Named]:
    """Every check; one that fails hides no other."""
    try:
        config = load(config_path)
        credentials = config.auth.credentials(os.environ)
    except ConfigurationError as error:
        return [("configuration", failed(error.source, each)) for each in error.faults]
    findings = [
        ("configuration", ok("it is whole and consistent, and the key files can be read")),
        ("state_dir", check_state_dir(config.state_dir, "gateway")),
        _check_tokens(config),
        _check_http(config),
    ]
    if config.mqtt.enabled and online:
        findings.append(_check_broker(config))
    if online:
        findings.append(_check_service(config, credentials))
    return findings


def _check_tokens(config: GatewayConfig) -> Named:
    if not (config.state_dir / FILE_NAME).exists():
        return ("devices", ok("no device has a token yet: device-gateway devices add --device-id ID"))
    try:
        count = with_tokens(config.state_dir, lambda tokens: len(tokens.passwords()))
    except ConfigurationError as error:
        return ("devices", failed(error.faults[0]))
    return ("devices", ok(f"{count} have a valid token"))


def _check_http(config: GatewayConfig) -> Named:
    http = config.http
    try:
        tls_context(http)
        if holder_of(config.state_dir) is None:  # else the running gateway has the port
            listen(http.host, http.port).close()
    except OSError as error:
        return ("http", failed(error.strerror or str(error)))
    except ConfigurationError as error:
        return ("http", failed(error.faults[0]))
    trouble = certificate_trouble(http.certificate, time.time())
    if trouble:
        return ("http", failed(trouble))
    scheme = "http" if http.certificate is None else "https"
    return ("http", ok(f"devices are to be served at {scheme}://{authority(http.host, http.port)}"))


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
    try:
        with service_client(config.service, credentials, is_patient=False) as client:
            names = extensions_of(client, config.service)
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


# --- status -----------------------------------------------------------------------------------------------------------


@click.command()
@gateway_config_option
@json_option
def status(config_path: Path, *, as_json: bool) -> None:
    """Show how the gateway is, while it runs and after it died. It reads files alone.

    Exit code 0 when it runs and all its parts are well, else 1.
    """
    state_dir = load(config_path).state_dir
    holder = holder_of(state_dir)
    last = newest_status([status_path(state_dir, os.environ), status_path(state_dir, {}), _RUNTIME], WHO)
    has_file = (state_dir / FILE_NAME).exists()
    devices: int | None = 0
    if has_file:
        try:
            devices = with_tokens(state_dir, lambda tokens: len(tokens.passwords()))
        except ConfigurationError:
            devices = None
    state = process_state(holder, last, has_store=has_file)
    is_well = last is not None and all(part.state == "ok" for part in last.parts.values())
    is_healthy = state == "running" and devices is not None and is_well
    if as_json:
        shown = {"state": state, "is_healthy": is_healthy, "state_dir": state_dir, "process_id": holder}
        print_json({**shown, "last_status": None if last is None else asdict(last), "devices": devices})
    else:
        process = f" (process {holder})" if holder else ""
        click.echo(f"gateway    {state}{process}, state in {state_dir}")
        if last is not None:
            print_parts(state, last)
        click.echo(f"devices    {'unusable file of tokens' if devices is None else devices}")
    raise SystemExit(0 if is_healthy else EXIT_CHECK_FAILED)
