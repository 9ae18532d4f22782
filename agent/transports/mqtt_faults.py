"""What went wrong with a broker, as errors whose sentence names the fix.

Sources: MQTT 5.0 (OASIS, 2019), sections 2.4, 3.2.2.2, 3.14.2.1; MQTT 3.1.1, section 3.2.2.3, whose codes paho
translates into those of version 5.
"""

from __future__ import annotations

import socket
import ssl
from typing import Final

from agent.errors import LockedOut, Offline, RateLimited, ServiceError, SessionTakenOver, UnexpectedAnswer
from agent.wire.address import authority
from agent.wire.network import OTHER_NAME, CertificateFault

UNSUPPORTED_VERSION: Final = 0x84
TAKEN_OVER: Final = 0x8E
NOT_AUTHORIZED: Final = 0x87
QUOTA_EXCEEDED: Final = 0x97
NOBODY_LISTENS: Final = 0x10
FAILURES_FROM: Final = 0x80

_FIX: Final = (
    "check device.device_id and the token in auth.token_file; a rotated token is taken up by itself once it is there"
)
_LOCKED_OUT: Final = {
    0x85: ("refused", "the broker does not accept this device's id as client id: check device.device_id"),
    0x86: ("unauthorized", f"the broker does not accept this device's token: {_FIX}"),
    0x87: ("unauthorized", f"the broker does not let this device in: {_FIX}"),
    0x8A: ("unauthorized", "the broker has banned this device: ask who runs the broker"),
    0x8C: ("unauthorized", "the broker wants another way of authentication than user name and password"),
}


def of_connack(code: int, name: str) -> Offline:
    """The broker answered CONNECT with this reason code."""
    if code == UNSUPPORTED_VERSION:
        return Offline("unsupported_version", "the broker does not speak this version of MQTT: set mqtt.version: auto")
    if code in _LOCKED_OUT:
        return LockedOut(*_LOCKED_OUT[code])
    return Offline("refused", f"the broker refuses the connection: {name} (0x{code:02X})")


def of_suback(topic_filter: str, code: int, name: str) -> Offline:
    """The broker refused a subscription."""
    del name  # 3.1.1 knows only one
    text = (
        f"the broker does not let this device subscribe to {topic_filter} (0x{code:02X}): let its access rules give "
        "each user the topics of its own id (device-gateway broker-config writes such rules)"
    )
    return LockedOut("forbidden", text)


def of_disconnect(code: int, name: str) -> Offline:
    """The broker ended the connection with this reason code (version 5)."""
    if code == TAKEN_OVER:
        text = (
            "another client connected with this device's id, and the broker gave it the connection: is the agent "
            "running twice, or was this device's configuration copied to another one?"
        )
        return SessionTakenOver("taken_over", text)
    if code == NOT_AUTHORIZED:
        return LockedOut("unauthorized", f"the broker no longer lets this device in: {_FIX}")
    return Offline("closed", f"the broker ended the connection: {name} (0x{code:02X})")


def of_puback(topic: str, code: int, name: str) -> ServiceError:
    """The broker refused a message (version 5)."""
    if code == NOT_AUTHORIZED:
        text = f"the broker does not let this device publish on {topic}: check the broker's access rules"
        return LockedOut("forbidden", text)
    if code == QUOTA_EXCEEDED:
        return RateLimited(429, "quota_exceeded", f"the broker takes no more messages on {topic} now")
    return UnexpectedAnswer(f"the broker refuses a message on {topic}: {name} (0x{code:02X})")


def cut_short(times: int) -> Offline:
    """Connections that end soon after they were made, without a reason: many brokers have no better way to say it."""
    text = (
        f"the broker closed the last {times} connections soon after they were made: perhaps another client uses this "
        "device's id (is the agent running twice?), or the broker restarts again and again"
    )
    return Offline("taken_over", text)


def of_network(error: BaseException, host: str, port: int, timeout_s: float) -> Offline:
    """The connection could not be made, or broke."""
    where = authority(host, port)
    match error:
        case ssl.SSLCertVerificationError():
            return _of_certificate(error, where)
        case ssl.SSLError():
            return _of_tls(error, where)
        case socket.gaierror():
            return Offline("unreachable", f"the name of the broker {host!r} cannot be resolved: check mqtt.host")
        case ConnectionRefusedError():
            return Offline("unreachable", f"nobody listens on {where}: is the broker running, is mqtt.port right?")
        case TimeoutError():
            return Offline("unreachable", f"the broker {where} did not answer within {timeout_s:g} s")
        case ValueError():
            return Offline("unreachable", f"{host!r} is no name of a host: check mqtt.host")
        case _:
            why = getattr(error, "strerror", None) or error
            return Offline("unreachable", f"the broker {where} cannot be reached: {why}")


def of_websocket(error: BaseException, host: str, port: int) -> Offline:
    """The other side did not take the connection for a WebSocket."""
    text = f"{authority(host, port)} did not answer as a WebSocket ({error}): check mqtt.port and mqtt.websocket_path"
    return Offline("unreachable", text)


def of_broken_handshake(where: str) -> Offline:
    """The other side, ``host:port``, ended a connection with TLS before it stood."""
    text = (
        f"the broker {where} closed the connection during the TLS handshake, as one does that speaks no TLS on that "
        "port: set mqtt.port to its TLS port (usually 8883), or mqtt.tls: false on a closed test network"
    )
    return Offline("unreachable", text)


def _of_certificate(error: ssl.SSLCertVerificationError, where: str) -> Offline:
    if error.verify_code == CertificateFault.EXPIRED:
        fix = "it has expired: renew it on the broker; if it is still good, this device's clock is wrong"
    elif error.verify_code == CertificateFault.NOT_YET_VALID:
        fix = "it is not valid yet: this device's clock is wrong, or the broker's certificate is"
    elif error.verify_code in OTHER_NAME:
        fix = f"it is made out to another name ({error.verify_message}): set mqtt.host to the name that it shows"
    else:
        fix = f"{error.verify_message}: name the authority that signed it in mqtt.ca_file"
    return Offline("bad_certificate", f"the certificate of the broker {where} is refused: {fix}")


def _of_tls(error: ssl.SSLError, where: str) -> Offline:
    # paho reports a broken connection by text alone: such an error has no reason of its own.
    cause = getattr(error, "reason", None) or str(error)
    reason = cause.upper()
    if "CERTIFICATE_EXPIRED" in reason or "CERTIFICATE EXPIRED" in reason:
        text = f"the broker {where} says that this device's certificate has expired: renew mqtt.cert_file"
    elif "CERTIFICATE_REQUIRED" in reason or "CERTIFICATE REQUIRED" in reason:
        text = f"the broker {where} wants a certificate of this device: set mqtt.cert_file and mqtt.key_file"
    elif "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason or "UNKNOWN CA" in reason):
        text = f"the broker {where} does not accept this device's certificate ({cause})"
    elif "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER_FAILURE" in reason:
        text = f"{where} does not speak TLS: set mqtt.port to the broker's TLS port"
        return Offline("unreachable", text)
    elif "EOF" in reason:
        return of_broken_handshake(where)
    else:
        return Offline("unreachable", f"TLS with the broker {where} failed: {cause}")
    return Offline("bad_certificate", text)
