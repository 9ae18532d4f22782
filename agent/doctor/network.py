"""The way to the other side: name, port, certificate, broker. Each is judged by itself, so a fault has one place."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from agent.app.transport import make_broker, make_token
from agent.config import AgentConfig, Credentials
from agent.config.model import MqttConfig
from agent.doctor.device import Device
from agent.doctor.findings import Check, Finding, failed, ok, skipped, unreachable, warning
from agent.doctor.machine import SET_CLOCK, shown
from agent.errors import LockedOut, Offline
from agent.wire.network import OTHER_NAME, CertificateFault, authority, connect, is_this_machine, trust_store

TIMEOUT_S: Final = 5.0
"""How long one request or connection of the checks may take."""

_SOON_S: Final = 14 * 86_400.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that the agent talks to.

    Attributes:
        what: ``service``, ``broker`` or ``gateway``.
        trust: the authorities to trust, with the device's own certificate; None for a connection without TLS.
        address: what says where it is, such as the keys of the configuration.
        name_authority: how to name another authority.
    """

    what: str
    host: str
    port: int
    trust: Callable[[], ssl.SSLContext] | None
    address: str
    name_authority: str

    def __str__(self) -> str:
        return authority(self.host, self.port)


def endpoints_of(config: AgentConfig) -> Iterator[Endpoint]:
    """Service and broker, as far as they are configured."""
    if config.service is not None:
        parts, ca_file = urlsplit(config.service.base_url), config.service.ca_file
        trust = (lambda: trust_store(ca_file)) if parts.scheme == "https" else None
        port = parts.port or (443 if trust else 80)
        fix = "name the authority's PEM file in service.ca_file"
        yield Endpoint("service", parts.hostname or "", port, trust, "service.base_url", fix)
    if config.mqtt is not None:
        mqtt, fix = config.mqtt, "name the authority's PEM file in mqtt.ca_file"
        broker_trust = (lambda: _broker_trust(mqtt)) if mqtt.tls else None
        yield Endpoint("broker", mqtt.host, mqtt.port_in_use, broker_trust, "mqtt.host and mqtt.port", fix)


def _broker_trust(mqtt: MqttConfig) -> ssl.SSLContext:
    context = trust_store(mqtt.ca_file)
    if mqtt.cert_file is not None:
        context.load_cert_chain(mqtt.cert_file, mqtt.key_file)
    return context


def _each(judge: Callable[[Endpoint, float], Finding]) -> Callable[[Device], Iterator[Finding]]:
    return lambda device: (judge(endpoint, device.wall()) for endpoint in endpoints_of(device.config))


def _connection(endpoint: Endpoint, _wall_s: float) -> Finding:
    try:
        with connect(endpoint.host, endpoint.port, TIMEOUT_S):
            return ok(f"{endpoint.what} {endpoint} takes connections")
    except (socket.gaierror, UnicodeError) as error:
        cause = f"no address is known for it ({error.args[-1]})"
        fix = f"check {endpoint.address}, the network and the name server (resolvectl status, or /etc/resolv.conf)"
    except ConnectionRefusedError:
        cause = "the machine is there, and nobody listens on that port"
        fix = f"start the {endpoint.what}, or correct the port in {endpoint.address}"
    except TimeoutError:
        cause = f"no answer within {TIMEOUT_S:g} s: the machine is off, or a firewall drops the packets"
        fix = f"let the firewall pass outgoing TCP port {endpoint.port}, or correct {endpoint.address}"
    except OSError as error:
        cause, fix = error.strerror or str(error), "check cable, radio and route (ip route), then try again"
    return unreachable(f"{endpoint.what} {endpoint}", cause, fix)


def judge_tls(endpoint: Endpoint, wall_s: float) -> Finding:
    """The certificate of one server, and whether it speaks TLS at all; no credential is sent.

    Args:
        endpoint: the server.
        wall_s: what this device's clock shows, epoch seconds.
    """
    if endpoint.trust is None:
        if is_this_machine(endpoint.host):
            return ok(f"the {endpoint.what} is on this machine: no TLS is needed")
        fix = "use https:// or mqtt.tls: true; plain is for closed test networks"
        seen = f"the {endpoint.what} {endpoint} is configured without TLS"
        return warning(seen, "anybody on the way reads the keys and changes commands", fix)
    try:
        with (
            connect(endpoint.host, endpoint.port, TIMEOUT_S) as plain,
            endpoint.trust().wrap_socket(plain, server_hostname=endpoint.host) as sock,
        ):
            certificate: dict[str, Any] = dict(sock.getpeercert() or {})
    except ssl.SSLCertVerificationError as error:
        return _judge_certificate(endpoint, wall_s, error)
    except OSError as error:  # ssl's errors are such
        return _judge_handshake(endpoint, error)
    ends_s = ssl.cert_time_to_seconds(certificate["notAfter"])
    seen = f"the certificate of {endpoint} is good until {shown(ends_s)}"
    if ends_s - wall_s < _SOON_S:
        cause = f"it ends in {max(0.0, ends_s - wall_s) / 86_400:.0f} days, and the device will not connect after that"
        return warning(seen, cause, f"have whoever runs the {endpoint.what} renew it")
    return ok(seen)


def _judge_certificate(endpoint: Endpoint, wall_s: float, error: ssl.SSLCertVerificationError) -> Finding:
    seen = f"the certificate of {endpoint} is refused"
    if error.verify_code in {CertificateFault.EXPIRED, CertificateFault.NOT_YET_VALID}:
        cause = f"this device's clock shows {shown(wall_s)}, and by that it is not good ({error.verify_message})"
        fix = f"if the clock is wrong, {SET_CLOCK}; if not, have whoever runs the {endpoint.what} renew the certificate"
    elif error.verify_code in OTHER_NAME:
        cause = f"it is made out to another name ({error.verify_message})"
        fix = f"write the name that the certificate shows into {endpoint.address}"
    else:
        cause = f"nobody whom this device trusts has signed it ({error.verify_message})"
        fix = f"{endpoint.name_authority}, or: apt-get install ca-certificates"
    return failed(seen, cause, fix)


def _judge_handshake(endpoint: Endpoint, error: OSError) -> Finding:
    seen, reason = f"{endpoint.what} {endpoint}", getattr(error, "reason", "") or error.strerror or str(error)
    if "CERTIFICATE" in reason.upper():
        return failed(seen, f"it refuses this device's certificate ({reason})", "renew mqtt.cert_file, mqtt.key_file")
    cause = f"the TLS handshake failed ({reason})"
    fix = f"correct the port in {endpoint.address}, which may not speak TLS; look at the proxy or firewall in between"
    return unreachable(seen, cause, fix)


def _broker(device: Device) -> Iterator[Finding]:
    mqtt = device.config.mqtt
    if mqtt is None:
        yield skipped("no broker is configured: the agent speaks HTTP only")
        return
    if device.status.process_id is not None:
        # A second connection with the same id would throw the agent's out.
        part = None if device.running is None else device.running.parts.get("broker")
        if part is None or part.state == "ok":
            yield ok(f"left alone: the agent runs{'' if part is None else ' and is connected'}")
        else:
            yield failed(f"left alone: the running agent is not connected: {part.state}", part.detail or part.state)
        return
    broker = make_broker(device.config, mqtt)
    try:
        try_broker(device.config, mqtt, device.credentials)
    except LockedOut as error:
        yield failed(str(broker), str(error))
    except Offline as error:
        yield (failed if error.state == "bad_certificate" else unreachable)(str(broker), str(error))
    else:
        yield ok(f"{broker} takes this device's token and speaks MQTT {mqtt.version}")


def try_broker(config: AgentConfig, mqtt: MqttConfig, credentials: Credentials) -> None:
    """Connect and subscribe once as this device, which takes the connection from a running agent.

    Raises:
        ConfigurationError: the device id cannot be a user of a broker.
        Offline: it did not work, and why.
    """
    from agent.transports.mqtt_connection import try_connection  # paho, only where there is a broker
    from agent.transports.mqtt_device import subscriptions_of

    broker, token = make_broker(config, mqtt), make_token(credentials)()
    trouble = try_connection(broker, token, subscriptions_of(config.device.device_id))
    if trouble is not None:
        raise trouble


_TIMEOUT_S: Final = 4 * TIMEOUT_S
CHECKS: Final[tuple[Check[Device], ...]] = (
    Check("connection", _each(_connection), ("configuration",), online=True, timeout_s=_TIMEOUT_S),
    Check("tls", _each(judge_tls), ("connection",), online=True, timeout_s=_TIMEOUT_S),
    Check("broker", _broker, ("key_files", "tls"), online=True, timeout_s=45.0),
)
