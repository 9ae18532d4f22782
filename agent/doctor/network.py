"""The way to the other side: name, port, certificate. Each step is judged by itself, so the fault has one place."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any, Final

from agent.config.section import is_this_machine
from agent.doctor.clock import shown
from agent.doctor.exchange import NETWORK_TIMEOUT_S
from agent.doctor.findings import Check, CheckStatus, Finding, failed, ok, unreachable, warning
from agent.doctor.installed import words_of
from agent.doctor.subject import Endpoint, Subject
from agent.wire.connecting import connect
from agent.wire.trust import OTHER_NAME, CertificateFault, trust_store

_NO_CHECK_TIME: Final = 0x200000  # X509_V_FLAG_NO_CHECK_TIME of OpenSSL's x509_vfy.h; the ssl module has no name for it
_SOON_S: Final = 14 * 86_400.0
# CONNECT of MQTT 3.1.1 (section 3.1) with a clean session, no client id and nothing else; 0x20 begins its answer.
_CONNECT: Final = bytes([0x10, 12, 0, 4]) + b"MQTT" + bytes([4, 2, 0, 10, 0, 0])
_HEAD_BYTES: Final = 8192
_TIMEOUT_S: Final = 4 * NETWORK_TIMEOUT_S

Look = Callable[[Subject, Endpoint], Finding]


def _each(look: Look) -> Callable[[Subject], Finding]:
    """The same look at each of the endpoints; the worst counts."""

    def all_of_them(subject: Subject) -> Finding:
        found = [look(subject, endpoint) for endpoint in subject.endpoints]
        order = (CheckStatus.FAILED, CheckStatus.WARNING)
        for verdict in order:
            for finding in found:
                if finding.verdict is verdict:
                    return finding
        good = [finding for finding in found if finding.verdict is CheckStatus.OK]
        return ok("; ".join(finding.seen for finding in good)) if good else found[0]

    return all_of_them


def _dns(subject: Subject, endpoint: Endpoint) -> Finding:
    del subject
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        cause = f"no address is known for it ({words_of(error) if isinstance(error, UnicodeError) else error.args[-1]})"
        fix = f"check {endpoint.key}, the network and the name server (resolvectl status, or /etc/resolv.conf)"
        return unreachable(f"{endpoint.what} {endpoint.host}", cause, fix)
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    return ok(f"{endpoint.host} is {', '.join(addresses[:4])}")


def _tcp(subject: Subject, endpoint: Endpoint) -> Finding:
    del subject
    try:
        with connect(endpoint.host, endpoint.port, NETWORK_TIMEOUT_S):
            return ok(f"{endpoint.what} {endpoint} takes connections")
    except ConnectionRefusedError:
        cause = "the machine is there, and nobody listens on that port"
        fix = f"start the {endpoint.what}, or correct the port in {endpoint.key}"
    except TimeoutError:
        cause = f"no answer within {NETWORK_TIMEOUT_S:g} s: the machine is off, or a firewall drops the packets"
        fix = f"let the firewall pass outgoing TCP port {endpoint.port}, or correct {endpoint.key}"
    except OSError as error:
        cause, fix = words_of(error), "check cable, radio and route (ip route), then try again"
    return unreachable(f"{endpoint.what} {endpoint}", cause, fix)


def _tls(subject: Subject, endpoint: Endpoint) -> Finding:
    if not endpoint.is_tls:
        return _judge_plain(endpoint)
    try:
        certificate, _ = _shake_hands(subject, endpoint, trust_store(endpoint.ca_file))
    except ssl.SSLCertVerificationError as error:
        return _judge_certificate(subject, endpoint, error)
    except OSError as error:  # ssl's errors are such
        return _judge_plain_port(endpoint) if _speaks_plain(endpoint) else _judge_handshake(endpoint, error)
    ends_s = ssl.cert_time_to_seconds(certificate["notAfter"])
    left_s = ends_s - subject.wall()
    seen = f"the certificate of {endpoint} is good until {shown(ends_s)}"
    if left_s < _SOON_S:
        cause = f"it ends in {max(0.0, left_s) / 86_400:.0f} days, and the device will not connect after that"
        return warning(seen, cause, f"have whoever runs the {endpoint.what} renew it")
    return ok(seen)


def _judge_plain(endpoint: Endpoint) -> Finding:
    if is_this_machine(endpoint.host):
        return ok(f"the {endpoint.what} is on this machine: no TLS is needed")
    cause = "anybody on the way reads the keys and changes commands"
    fix = "use https:// or mqtt.tls: true; plain is for closed test networks"
    return warning(f"the {endpoint.what} {endpoint} is configured without TLS", cause, fix)


def _judge_certificate(subject: Subject, endpoint: Endpoint, error: ssl.SSLCertVerificationError) -> Finding:
    seen = f"the certificate of {endpoint} is refused"
    section = "service" if endpoint.is_web else "mqtt"
    if error.verify_code in {CertificateFault.EXPIRED, CertificateFault.NOT_YET_VALID}:
        return _judge_time(subject, endpoint, seen, is_expired=error.verify_code == CertificateFault.EXPIRED)
    if error.verify_code in OTHER_NAME:
        cause = f"it is made out to another name ({error.verify_message})"
        return failed(seen, cause, f"write the name that the certificate shows into {endpoint.key}")
    cause = f"nobody whom this device trusts has signed it ({error.verify_message})"
    return failed(
        seen, cause, f"name the authority's PEM file in {section}.ca_file, or: apt-get install ca-certificates"
    )


def _judge_time(subject: Subject, endpoint: Endpoint, seen: str, *, is_expired: bool) -> Finding:
    """Is the certificate over, or this device's clock wrong? Asked again without regard to time, all else verified."""
    try:
        context = trust_store(endpoint.ca_file)
        context.verify_flags = ssl.VerifyFlags(int(context.verify_flags) | _NO_CHECK_TIME)
        certificate, server_s = _shake_hands(subject, endpoint, context)
    except (OSError, ssl.SSLError, ValueError) as error:
        cause = f"it is {'over' if is_expired else 'not valid yet'}, and has more faults ({words_of(error)})"
        return failed(seen, cause, f"have whoever runs the {endpoint.what} renew it; check this device's clock")
    begins_s = ssl.cert_time_to_seconds(certificate["notBefore"])
    ends_s = ssl.cert_time_to_seconds(certificate["notAfter"])
    span = f"it is valid from {shown(begins_s)} to {shown(ends_s)}"
    here = f"this device's clock shows {shown(subject.wall())}"
    if server_s is not None and begins_s <= server_s <= ends_s:
        cause = f"{span}; {here}, the server's {shown(server_s)}: the clock is wrong, not the certificate"
        return failed(seen, cause, "set the clock: timedatectl set-ntp true, or install chrony")
    if not is_expired:
        return failed(seen, f"{span}; {here}, which is probably behind", "set the clock: timedatectl set-ntp true")
    fix = f"have whoever runs the {endpoint.what} renew it (if it is still good, set this device's clock)"
    return failed(seen, f"{span}; {here}", fix)


def _judge_plain_port(endpoint: Endpoint) -> Finding:
    seen = f"{endpoint.what} {endpoint}"
    if endpoint.is_web:
        fix = "correct the port in service.base_url; or write http:// there, if this is a closed test network"
        return failed(seen, "that port does not speak TLS, but plain HTTP", fix)
    fix = "set mqtt.port to its TLS port (usually 8883); or set mqtt.tls: false, if this is a closed test network"
    return failed(seen, "that port does not speak TLS, but plain MQTT", fix)


def _speaks_plain(endpoint: Endpoint) -> bool:
    """Whether it answers without TLS; it is sent neither a credential nor a name."""
    first = b"HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" if endpoint.is_web else _CONNECT
    try:
        with connect(endpoint.host, endpoint.port, NETWORK_TIMEOUT_S) as sock:
            sock.sendall(first)
            answer = sock.recv(16)
    except OSError:
        return False
    return answer.startswith(b"HTTP/" if endpoint.is_web else b"\x20")


def _judge_handshake(endpoint: Endpoint, error: OSError) -> Finding:
    if not isinstance(error, ssl.SSLError):
        cause = f"the connection broke off during the handshake ({words_of(error)})"
        return unreachable(
            f"{endpoint.what} {endpoint}", cause, "look at the proxy or firewall in between, then try again"
        )
    reason = (error.reason or str(error)).upper()
    seen = f"{endpoint.what} {endpoint}"
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason or "HTTP_REQUEST" in reason:
        fix = "write http:// into service.base_url" if endpoint.is_web else "set mqtt.port to the broker's TLS port"
        return failed(
            seen, "that port does not speak TLS", f"{fix}, if this is a closed test network; else correct the port"
        )
    if "CERTIFICATE" in reason:
        return failed(
            seen, f"it refuses this device's certificate ({reason})", "renew mqtt.cert_file and mqtt.key_file"
        )
    return failed(
        seen, f"no common way to encrypt was found ({reason})", "update OpenSSL on the older of the two sides"
    )


def _shake_hands(subject: Subject, endpoint: Endpoint, context: ssl.SSLContext) -> tuple[dict[str, Any], float | None]:
    """The certificate, and the server's clock where it speaks HTTP; no credential is sent.

    Raises:
        OSError: the handshake failed; ssl's errors are such.
    """
    mqtt = subject.config.mqtt
    if not endpoint.is_web and mqtt is not None and mqtt.cert_file is not None:
        context.load_cert_chain(mqtt.cert_file, mqtt.key_file)
    with (
        connect(endpoint.host, endpoint.port, NETWORK_TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=endpoint.host) as sock,
    ):
        return dict(sock.getpeercert() or {}), _date_of(sock, endpoint) if endpoint.is_web else None


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


_CONFIGURED: Final = ("configuration",)
CHECKS: Final = (
    Check("dns", "addresses of service and broker", _each(_dns), _CONFIGURED, online=True),
    Check(
        "tcp",
        "connections to service and broker",
        _each(_tcp),
        ("configuration", "dns"),
        online=True,
        timeout_s=_TIMEOUT_S,
    ),
    Check(
        "tls",
        "certificates of service and broker",
        _each(_tls),
        ("configuration", "tcp"),
        online=True,
        timeout_s=_TIMEOUT_S,
    ),
)
