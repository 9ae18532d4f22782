"""What went wrong with a broker, as errors whose sentence names the fix.

Sources: MQTT 5.0 (OASIS, 2019), sections 2.4, 3.2.2.2, 3.14.2.1; MQTT 3.1.1, section 3.2.2.3, whose codes paho
translates into those of version 5.
"""

from __future__ import annotations

import socket
import ssl
from typing import Final

from paho.mqtt.reasoncodes import ReasonCode

from agent.errors import LockedOut, Offline, RateLimited, ServiceError, SessionTakenOver, UnexpectedAnswer
from agent.wire.network import certificate_fault

NOBODY_LISTENS: Final = 0x10
_UNSUPPORTED_VERSION: Final = 0x84
_NOT_AUTHORIZED: Final = 0x87
_TAKEN_OVER: Final = 0x8E
_QUOTA_EXCEEDED: Final = 0x97

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
_NO_TLS: Final = (
    "does not speak TLS on that port: set mqtt.port to its TLS port (usually 8883), or mqtt.tls: false on a closed "
    "test network"
)
# What OpenSSL or the other side says, in this order: the state, and what it means.
_TLS_REASONS: Final = (
    ("CERTIFICATE_EXPIRED", "bad_certificate", "says that this device's certificate has expired: renew mqtt.cert_file"),
    ("CERTIFICATE_REQUIRED", "bad_certificate", "wants a certificate: set mqtt.cert_file and mqtt.key_file"),
    ("CERTIFICATE", "bad_certificate", "does not accept this device's certificate: check mqtt.cert_file"),
    ("UNKNOWN_CA", "bad_certificate", "does not know the authority that signed this device's certificate"),
    ("WRONG_VERSION_NUMBER", "unreachable", _NO_TLS),
    ("RECORD_LAYER_FAILURE", "unreachable", _NO_TLS),
    ("EOF", "unreachable", f"closed the connection during the TLS handshake, as one does that {_NO_TLS}"),
)


def of_connack(code: ReasonCode) -> Offline:
    """The broker refused CONNECT."""
    if code.value == _UNSUPPORTED_VERSION:
        text = 'the broker does not speak this version of MQTT: set mqtt.version to the other one of "5" and "3.1.1"'
        return Offline("unsupported_version", text)
    if code.value in _LOCKED_OUT:
        return LockedOut(*_LOCKED_OUT[code.value])
    return Offline("refused", f"the broker refuses the connection: {_named(code)}")


def of_suback(topic_filter: str, code: ReasonCode) -> Offline:
    """The broker refused a subscription."""
    text = (
        f"the broker does not let this device subscribe to {topic_filter} (0x{code.value:02X}): let its access rules "
        "give each user the topics of its own id (device-gateway broker-config writes such rules)"
    )
    return LockedOut("forbidden", text)


def of_puback(topic: str, code: ReasonCode) -> ServiceError:
    """The broker refused a message (version 5)."""
    if code.value == _NOT_AUTHORIZED:
        text = f"the broker does not let this device publish on {topic}: check the broker's access rules"
        return LockedOut("forbidden", text)
    if code.value == _QUOTA_EXCEEDED:
        return RateLimited(429, "quota_exceeded", f"the broker takes no more messages on {topic} now")
    return UnexpectedAnswer(f"the broker refuses a message on {topic}: {_named(code)}")


def of_disconnect(code: ReasonCode) -> Offline:
    """The broker ended the connection with this reason code (version 5)."""
    if code.value == _TAKEN_OVER:
        text = (
            "another client connected with this device's id, and the broker gave it the connection: is the agent "
            "running twice, or was this device's configuration copied to another one?"
        )
        return SessionTakenOver("taken_over", text)
    if code.value == _NOT_AUTHORIZED:
        return LockedOut(*_LOCKED_OUT[_NOT_AUTHORIZED])
    return Offline("closed", f"the broker ended the connection: {_named(code)}")


def of_end(paho_error: str, where: str) -> Offline:
    """The connection broke; ``paho_error`` is what paho wrote into its log, ``where`` is ``host:port``."""
    if "SSL" in paho_error.upper():
        return _of_tls(paho_error.partition(": ")[2], where)
    text = f"the connection to the broker {where} ended"
    if paho_error:
        return Offline("closed", f"{text}: {paho_error}")
    # Brokers that cannot say why, such as mosquitto, end it so when another client takes over the id.
    return Offline(
        "closed", f"{text}; when this repeats, look whether another client has the same id: does it run twice?"
    )


def of_network(error: Exception, host: str, where: str, *, has_tls: bool) -> Offline:
    """The connection could not be made; ``where`` is ``host:port``."""
    match error:
        case ssl.SSLCertVerificationError():
            fault = certificate_fault(error, "mqtt.host", "mqtt.ca_file")
            return Offline("bad_certificate", f"the certificate of the broker {where} is refused: {fault}")
        case ssl.SSLError():
            return _of_tls(error.reason or str(error), where)
        case ConnectionResetError() | BrokenPipeError() if has_tls:
            return _of_tls("EOF", where)
        case socket.gaierror():
            text = f"the name of the broker {host!r} cannot be resolved: check mqtt.host"
        case ConnectionRefusedError():
            text = f"nobody listens on {where}: is the broker running, is mqtt.port right?"
        case TimeoutError():
            text = f"the broker {where} did not answer in time: check the network, mqtt.host, mqtt.port, mqtt.version"
        case ValueError():
            text = f"{host!r} is no name of a host: check mqtt.host"
        case _:
            text = f"the broker {where} cannot be reached: {getattr(error, 'strerror', None) or error}"
    return Offline("unreachable", text)


def _of_tls(reason: str, where: str) -> Offline:
    for word, state, meaning in _TLS_REASONS:
        if word in reason.upper().replace(" ", "_"):
            return Offline(state, f"the broker {where} {meaning}")
    return Offline("unreachable", f"TLS with the broker {where} failed: {reason}")


def _named(code: ReasonCode) -> str:
    return f"{code} (0x{code.value:02X})"
