"""The way to the other side: name, port, certificate, broker. Each is judged by itself, so a fault has one place."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import Any, Final

from agent.app.links import make_broker, make_token
from agent.config import AgentConfig, Credentials
from agent.config.mqtt import MqttConfig
from agent.config.section import is_this_machine
from agent.doctor.device import Device, Endpoint
from agent.doctor.findings import Check, Finding, failed, ok, skipped, unreachable, warning
from agent.doctor.machine import SET_CLOCK, shown
from agent.errors import ConfigurationError, LockedOut, Offline
from agent.wire.network import OTHER_NAME, CertificateFault, connect, trust_store

TIMEOUT_S: Final = 5.0
"""How long one request or connection of the checks may take."""

_NO_CHECK_TIME: Final = 0x200000  # X509_V_FLAG_NO_CHECK_TIME of OpenSSL's x509_vfy.h; the ssl module has no name for it
_SOON_S: Final = 14 * 86_400.0
_HEAD_BYTES: Final = 8192


def _each(judge: Callable[[Device, Endpoint], Finding]) -> Callable[[Device], Iterator[Finding]]:
    return lambda device: (judge(device, endpoint) for endpoint in device.endpoints)


def _dns(_device: Device, endpoint: Endpoint) -> Finding:
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        fix = f"check {endpoint.address}, the network and the name server (resolvectl status, or /etc/resolv.conf)"
        return unreachable(f"{endpoint.what} {endpoint.host}", f"no address is known for it ({error.args[-1]})", fix)
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    return ok(f"{endpoint.host} is {', '.join(addresses[:4])}")


def _tcp(_device: Device, endpoint: Endpoint) -> Finding:
    try:
        with connect(endpoint.host, endpoint.port, TIMEOUT_S):
            return ok(f"{endpoint.what} {endpoint} takes connections")
    except ConnectionRefusedError:
        cause = "the machine is there, and nobody listens on that port"
        fix = f"start the {endpoint.what}, or correct the port in {endpoint.address}"
    except TimeoutError:
        cause = f"no answer within {TIMEOUT_S:g} s: the machine is off, or a firewall drops the packets"
        fix = f"let the firewall pass outgoing TCP port {endpoint.port}, or correct {endpoint.address}"
    except OSError as error:
        cause, fix = error.strerror or str(error), "check cable, radio and route (ip route), then try again"
    return unreachable(f"{endpoint.what} {endpoint}", cause, fix)


def judge_tls(device: Device, endpoint: Endpoint) -> Finding:
    """The certificate of one server, and whether it speaks TLS at all; no credential is sent."""
    if not endpoint.is_tls and is_this_machine(endpoint.host):
        return ok(f"the {endpoint.what} is on this machine: no TLS is needed")
    if not endpoint.is_tls:
        fix = "use https:// or mqtt.tls: true; plain is for closed test networks"
        seen = f"the {endpoint.what} {endpoint} is configured without TLS"
        return warning(seen, "anybody on the way reads the keys and changes commands", fix)
    try:
        certificate, _ = _shake_hands(device, endpoint, trust_store(endpoint.ca_file))
    except ssl.SSLCertVerificationError as error:
        return _judge_certificate(device, endpoint, error)
    except OSError as error:  # ssl's errors are such
        return _judge_handshake(endpoint, error)
    ends_s = ssl.cert_time_to_seconds(certificate["notAfter"])
    left_s = ends_s - device.wall()
    seen = f"the certificate of {endpoint} is good until {shown(ends_s)}"
    if left_s < _SOON_S:
        cause = f"it ends in {max(0.0, left_s) / 86_400:.0f} days, and the device will not connect after that"
        return warning(seen, cause, f"have whoever runs the {endpoint.what} renew it")
    return ok(seen)


def _judge_certificate(device: Device, endpoint: Endpoint, error: ssl.SSLCertVerificationError) -> Finding:
    seen = f"the certificate of {endpoint} is refused"
    if error.verify_code in {CertificateFault.EXPIRED, CertificateFault.NOT_YET_VALID}:
        return _judge_time(device, endpoint, seen, is_expired=error.verify_code == CertificateFault.EXPIRED)
    if error.verify_code in OTHER_NAME:
        cause = f"it is made out to another name ({error.verify_message})"
        return failed(seen, cause, f"write the name that the certificate shows into {endpoint.address}")
    cause = f"nobody whom this device trusts has signed it ({error.verify_message})"
    fix = f"name the authority's PEM file in {endpoint.section}.ca_file, or: apt-get install ca-certificates"
    return failed(seen, cause, fix)


def _judge_time(device: Device, endpoint: Endpoint, seen: str, *, is_expired: bool) -> Finding:
    """Is the certificate over, or this device's clock wrong? Asked again without regard to time, all else verified."""
    renew = f"have whoever runs the {endpoint.what} renew it (if it is still good, set this device's clock)"
    try:
        context = trust_store(endpoint.ca_file)
        context.verify_flags = ssl.VerifyFlags(int(context.verify_flags) | _NO_CHECK_TIME)
        certificate, server_s = _shake_hands(device, endpoint, context)
    except OSError as error:
        return failed(seen, f"it is {'over' if is_expired else 'not valid yet'}, and has more faults ({error})", renew)
    begins_s = ssl.cert_time_to_seconds(certificate["notBefore"])
    ends_s = ssl.cert_time_to_seconds(certificate["notAfter"])
    span = f"it is valid from {shown(begins_s)} to {shown(ends_s)}"
    here = f"this device's clock shows {shown(device.wall())}"
    if server_s is not None and begins_s <= server_s <= ends_s:
        cause = f"{span}; {here}, the server's {shown(server_s)}: the clock is wrong, not the certificate"
        return failed(seen, cause, SET_CLOCK)
    if not is_expired:
        return failed(seen, f"{span}; {here}, which is probably behind", SET_CLOCK)
    return failed(seen, f"{span}; {here}", renew)


def _judge_handshake(endpoint: Endpoint, error: OSError) -> Finding:
    seen = f"{endpoint.what} {endpoint}"
    reason = (getattr(error, "reason", "") or str(error)).upper()
    if any(word in reason for word in ("WRONG_VERSION_NUMBER", "RECORD_LAYER", "HTTP_REQUEST")):
        plain = "write http:// there" if endpoint.what == "service" else "set mqtt.tls: false"
        fix = f"correct the port in {endpoint.address}; or {plain}, if this is a closed test network"
        return failed(seen, "that port does not speak TLS", fix)
    if "CERTIFICATE" in reason:
        return failed(seen, f"it refuses this device's certificate ({reason})", "renew mqtt.cert_file, mqtt.key_file")
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        cause = f"no common way to encrypt was found ({reason})"
        return failed(seen, cause, "update OpenSSL on the older of the two sides")
    cause = f"the connection broke off during the TLS handshake ({error.strerror or error})"
    fix = f"correct the port in {endpoint.address}, which may not speak TLS; look at the proxy or firewall in between"
    return unreachable(seen, cause, fix)


def _shake_hands(device: Device, endpoint: Endpoint, context: ssl.SSLContext) -> tuple[dict[str, Any], float | None]:
    """The certificate, and the server's clock where it speaks HTTP; no credential is sent.

    Raises:
        OSError: the handshake failed; ssl's errors are such.
    """
    mqtt = device.config.mqtt
    if endpoint.what == "broker" and mqtt is not None and mqtt.cert_file is not None:
        context.load_cert_chain(mqtt.cert_file, mqtt.key_file)
    with (
        connect(endpoint.host, endpoint.port, TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=endpoint.host) as sock,
    ):
        return dict(sock.getpeercert() or {}), _date_of(sock, endpoint) if endpoint.what == "service" else None


def _date_of(sock: ssl.SSLSocket, endpoint: Endpoint) -> float | None:
    try:
        sock.sendall(f"HEAD / HTTP/1.1\r\nHost: {endpoint.host}\r\nConnection: close\r\n\r\n".encode("ascii"))
        head = b""
        while b"\r\n\r\n" not in head and len(head) < _HEAD_BYTES and (part := sock.recv(2048)):
            head += part
        for line in head.decode("latin-1").split("\r\n"):
            name, _, value = line.partition(":")
            if name.lower() == "date":
                return parsedate_to_datetime(value.strip()).timestamp()
    except (OSError, ValueError, TypeError, OverflowError):
        pass  # a hint that is missing
    return None


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
        spoken = try_broker(device.config, mqtt, device.credentials)
    except ConfigurationError as error:
        yield failed(str(broker), error.faults[0])
    except LockedOut as error:
        yield failed(str(broker), str(error))
    except Offline as error:
        yield (failed if error.state == "bad_certificate" else unreachable)(str(broker), str(error))
    else:
        yield ok(f"{broker} takes this device's token and speaks MQTT {spoken}")


def try_broker(config: AgentConfig, mqtt: MqttConfig, credentials: Credentials) -> str:
    """Connect and subscribe once as this device, which a running agent would not survive; the version of MQTT.

    Raises:
        ConfigurationError: the device id cannot be a user of a broker.
        Offline: it did not work, and why.
    """
    from agent.transports.mqtt_device import probe  # paho, only where there is a broker

    token = make_token(credentials)()
    return probe(make_broker(config, mqtt), config.device.device_id, token, mqtt.version)


_TIMEOUT_S: Final = 4 * TIMEOUT_S
CHECKS: Final[tuple[Check[Device], ...]] = (
    Check("dns", "addresses of service and broker", _each(_dns), ("configuration",), online=True),
    Check("tcp", "connections to service and broker", _each(_tcp), ("dns",), online=True, timeout_s=_TIMEOUT_S),
    Check("tls", "certificates of service and broker", _each(judge_tls), ("tcp",), online=True, timeout_s=_TIMEOUT_S),
)
BROKER: Final[Check[Device]] = Check(
    "broker",
    "whether the broker takes this device and lets it subscribe",
    _broker,
    ("key_files", "tls"),
    online=True,
    timeout_s=45.0,
)
