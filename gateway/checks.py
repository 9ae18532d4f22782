"""``device-gateway check``: looks for faults without starting the gateway."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from agent.app.lock import holder_of
from agent.config.credentials import Credentials
from agent.doctor.findings import Named, fault, no_answer, ok
from agent.doctor.quick_check import check_configuration, check_state_dir
from agent.errors import ConfigurationError, InvalidMessage, ServiceError, TransportError, UnexpectedAnswer
from agent.runtime.retry_policy import describe
from agent.wire.address import authority
from gateway.config import GatewayConfig, LoadedGateway
from gateway.core.budget import Budget
from gateway.devices.token_file import FILE_NAME as TOKENS_FILE_NAME
from gateway.devices.token_table import TokenTable
from gateway.http.front import http_settings, tls_context
from gateway.mqtt.front import check_broker_port, mqtt_settings
from gateway.service.meter import Meter, make_client
from gateway.service.offer import offered_words


def check_gateway(load: Callable[[], LoadedGateway], environ: Mapping[str, str], *, online: bool) -> list[Named]:
    """Every check; one that fails hides no other.

    Args:
        load: gives the configuration or raises :class:`~agent.errors.ConfigurationError`.
        environ: for systemd's credentials.
        online: ask the service and the broker too.
    """
    loaded, credentials, findings = check_configuration(load, lambda it: it.config.auth.credentials(environ))
    if loaded is None:
        return findings
    config = loaded.config
    findings.append(check_state_dir(config.state_dir, "gateway"))
    findings.append(check_tokens(config))
    findings += check_http(config)
    if online:
        findings += check_broker(config)
        if credentials is not None:
            findings.append(check_service(config, credentials))
    return findings


def check_tokens(config: GatewayConfig) -> Named:
    """Check the file of device tokens."""
    path = config.state_dir / TOKENS_FILE_NAME
    if not path.exists():
        return ("devices", ok("no device has a token yet: device-gateway devices add --device-id ID"))
    try:
        table = TokenTable(path)
    except ConfigurationError as error:
        return ("devices", fault(error.faults[0]))
    count = len(table.device_ids())
    table.close()
    return ("devices", ok(f"{count} have a valid token"))


def check_http(config: GatewayConfig) -> list[Named]:
    """Address and certificate of the front for HTTP; nothing where there is none."""
    if not config.http.enabled:
        return []
    try:
        tls_context(http_settings(config.http))
    except ConfigurationError as error:
        return [("http", fault(each)) for each in error.faults]
    scheme = "http" if config.http.certificate is None else "https"
    return [("http", ok(f"devices are to be served at {scheme}://{authority(config.http.host, config.http.port)}"))]


def check_broker(config: GatewayConfig) -> list[Named]:
    """A connection to the broker, unless the gateway runs; nothing where there is none."""
    if not config.mqtt.enabled:
        return []
    holder = holder_of(config.state_dir)
    if holder is not None:
        # Many brokers take the user name for the client id: a second connection would throw the gateway's out.
        text = f"left alone, since the running gateway (process {holder}) is connected: see device-gateway status"
        return [("mqtt", ok(text))]
    settings = mqtt_settings(config.mqtt, "gateway-check")
    gate = check_broker_port(settings)
    if gate is None:
        return [("mqtt", ok(f"the broker {authority(settings.host, settings.port)} takes the gateway"))]
    return [("mqtt", no_answer(gate))]


def check_service(config: GatewayConfig, credentials: Credentials) -> Named:
    """The service's answer to a request that changes nothing."""
    meter = Meter(Budget(), time.monotonic)
    try:
        with make_client(config.service, credentials, meter, 1) as client:
            words = offered_words(client, config.service.dialect.dialect())
            count = sum(1 for _ in client.devices(limit=1))
    except (TransportError, UnexpectedAnswer) as error:
        return ("service", no_answer(str(error)))
    except ConfigurationError as error:
        return ("service", fault("; ".join(error.faults)))
    except (ServiceError, InvalidMessage) as error:
        return ("service", fault(describe(error)[1]))
    devices = "has devices" if count else "has no device yet"
    return ("service", ok(f"it accepts the keys and {devices}; {words}"))
