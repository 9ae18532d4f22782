"""Why there is no session with a broker: a sentence for a person, the error for the device, the class it counts in."""

from __future__ import annotations

import ssl
from typing import Final

from agent.errors import LockedOut, Offline, SessionTakenOver
from simulator.fleet.engine.addresses import explain
from simulator.fleet.engine.mqtt import NOT_AUTHORIZED, Failure, class_of_reason
from simulator.fleet.outcomes import OutcomeClass

_UNSUPPORTED_VERSION: Final = 0x84
_LOCKED_OUT: Final = {
    0x85: "does not accept this device's id as client id",
    0x86: "does not accept this device's token",
    NOT_AUTHORIZED: "does not let this device in",
    0x8A: "has banned this device",
    0x8C: "wants another way of authentication than user name and password",
}
_TAKEN_OVER: Final = 0x8E


def refused_connection(code: int, name: str, where: str) -> Failure:
    """CONNACK says no."""
    if code == _UNSUPPORTED_VERSION:
        return not_version_5(where)
    text = f"the broker {where} {_LOCKED_OUT.get(code, 'refuses the connection')}: {name} (0x{code:02X})"
    error = LockedOut("unauthorized", text) if code in _LOCKED_OUT else Offline("refused", text)
    return error, class_of_reason(code)


def not_version_5(where: str) -> Failure:
    """The broker speaks an older version."""
    text = f"the broker {where} does not speak MQTT 5: take one that does, such as mosquitto 2"
    return Offline("unsupported_version", text), OutcomeClass.REFUSED


def refused_subscription(topic_filter: str, code: int, name: str) -> Failure:
    """SUBACK says no."""
    text = (
        f"the broker does not let the device subscribe to {topic_filter}: {name} (0x{code:02X}); let its access rules "
        "give each user the topics of its own id (device-gateway broker-config writes such rules)"
    )
    return LockedOut("forbidden", text), OutcomeClass.REFUSED


def disconnected(code: int, name: str, where: str) -> Failure:
    """DISCONNECT came."""
    text = f"the broker {where} ended the connection: {name} (0x{code:02X})"
    if code == _TAKEN_OVER:
        text = f"another client connected to {where} with this device's id, and the broker gave it the connection"
        return SessionTakenOver("taken_over", text), class_of_reason(code)
    error = LockedOut("unauthorized", text) if code == NOT_AUTHORIZED else Offline("closed", text)
    return error, class_of_reason(code)


def nonsense(why: str, where: str) -> Failure:
    """What came makes no sense here."""
    return Offline("closed", f"{where} sent what a broker does not send here: {why}"), OutcomeClass.UNEXPECTED


def of_network(error: BaseException, where: str) -> Failure:
    """The connection could not be made."""
    state, why = "unreachable", f"it cannot be reached: {explain(error) if isinstance(error, OSError) else error}"
    if isinstance(error, ssl.SSLCertVerificationError):
        state, why = "bad_certificate", f"its certificate is refused: {error.verify_message}"
    elif isinstance(error, ssl.SSLError):
        why = f"TLS with it failed: {error.reason or error}"
    elif isinstance(error, ConnectionRefusedError):
        why = "nobody listens there: is it running, is the port right?"
    return Offline(state, f"the broker {where}: {why}"), OutcomeClass.TRANSPORT
