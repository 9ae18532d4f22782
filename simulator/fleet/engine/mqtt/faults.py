"""What a broker's reason codes and a broken connection mean: the error for the device, the class for the measurement.

Source: MQTT 5.0 (OASIS, 2019), sections 2.4, 3.2.2.2, 3.9.3, 3.14.2.1.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import Final

from agent.errors import LockedOut, Offline, SessionTakenOver
from simulator.fleet.engine.addresses import explain
from simulator.fleet.outcomes import OutcomeClass

FAILURES_FROM: Final = 0x80
NOBODY_LISTENS: Final = 0x10
NOT_AUTHORIZED: Final = 0x87
TAKEN_OVER: Final = 0x8E
UNSUPPORTED_VERSION: Final = 0x84
QUOTA_EXCEEDED: Final = 0x97

_LOCKED_OUT: Final = {
    0x85: "does not accept this device's id as client id",
    0x86: "does not accept this device's token",
    NOT_AUTHORIZED: "does not let this device in",
    0x8A: "has banned this device",
    0x8C: "wants another way of authentication than user name and password",
}
_LIMITED: Final = frozenset({QUOTA_EXCEEDED, 0x96, 0x9F})  # also: message rate too high, connection rate exceeded
_SERVER: Final = frozenset({0x80, 0x83, 0x88, 0x89, 0x8B, 0x8D})  # unspecified ... unavailable, busy, shutting down

NO_CONNECTION: Final = (OutcomeClass.TRANSPORT, "there is no connection to the broker")
"""Why a message without a session that stands goes nowhere."""


@dataclass(frozen=True, slots=True)
class ConnectionFailure:
    """Why there is no connection.

    Attributes:
        outcome: the class that an attempt to connect that ended so is counted in.
    """

    error: Offline
    outcome: OutcomeClass


def class_of_reason(code: int) -> OutcomeClass:
    """The class of a reason code, in a PUBACK or a CONNACK."""
    if code < FAILURES_FROM:
        return OutcomeClass.OK
    if code in _LIMITED:
        return OutcomeClass.LIMITED
    return OutcomeClass.SERVER_ERROR if code in _SERVER else OutcomeClass.REFUSED


def of_connack(code: int, name: str, where: str) -> ConnectionFailure:
    """The broker answered CONNECT with this reason code."""
    if code == UNSUPPORTED_VERSION:
        return not_version_5(where)
    text = f"the broker {where} {_LOCKED_OUT.get(code, 'refuses the connection')}: {name} (0x{code:02X})"
    error = LockedOut("unauthorized", text) if code in _LOCKED_OUT else Offline("refused", text)
    return ConnectionFailure(error, class_of_reason(code))


def not_version_5(where: str) -> ConnectionFailure:
    """The broker answered as older ones do."""
    text = f"the broker {where} does not speak MQTT 5: take one that does, such as mosquitto 2"
    return ConnectionFailure(Offline("unsupported_version", text), OutcomeClass.REFUSED)


def no_acknowledgements(where: str) -> ConnectionFailure:
    """The broker takes QoS 0 only."""
    text = f"the broker {where} takes no message with QoS 1, and devices send nothing else: change its limits"
    return ConnectionFailure(Offline("refused", text), OutcomeClass.REFUSED)


def of_suback(topic_filter: str, code: int, name: str) -> ConnectionFailure:
    """The broker refused a subscription."""
    text = (
        f"the broker does not let the device subscribe to {topic_filter}: {name} (0x{code:02X}); let its access rules "
        "give each user the topics of its own id (device-gateway broker-config writes such rules)"
    )
    return ConnectionFailure(LockedOut("forbidden", text), OutcomeClass.REFUSED)


def of_disconnect(code: int, name: str, where: str) -> ConnectionFailure:
    """The broker ended the connection with this reason code."""
    text = f"the broker {where} ended the connection: {name} (0x{code:02X})"
    outcome = class_of_reason(code)
    if code == TAKEN_OVER:
        text = f"another client connected to {where} with this device's id, and the broker gave it the connection"
        return ConnectionFailure(SessionTakenOver("taken_over", text), outcome)
    return ConnectionFailure(
        LockedOut("unauthorized", text) if code == NOT_AUTHORIZED else Offline("closed", text), outcome
    )


def of_silence(what: str, seconds: float, where: str) -> ConnectionFailure:
    """The broker did not do ``what`` within so many seconds."""
    return ConnectionFailure(
        Offline("unreachable", f"the broker {where} did not {what} within {seconds:g} s"), OutcomeClass.TIMEOUT
    )


def of_nonsense(why: str, where: str) -> ConnectionFailure:
    """What came is not MQTT 5, or nothing that was asked for."""
    return ConnectionFailure(
        Offline("closed", f"{where} sent what a broker does not send here: {why}"), OutcomeClass.UNEXPECTED
    )


def of_end(error: BaseException | None, where: str, *, answered: bool) -> ConnectionFailure:
    """The connection ended without a word.

    Args:
        error: what the socket said, if anything.
        where: the broker.
        answered: whether the broker had taken the device before.
    """
    if isinstance(error, ssl.SSLError):
        return of_network(error, where)
    hint = "" if answered else " before it answered CONNECT: does it speak MQTT 5, and is it TLS that it wants?"
    text = f"the broker {where} closed the connection{hint}" + (f" ({error})" if error else "")
    return ConnectionFailure(Offline("closed", text), OutcomeClass.TRANSPORT)


def of_network(error: BaseException, where: str) -> ConnectionFailure:
    """The connection could not be made."""
    state = "unreachable"
    match error:
        case ssl.SSLCertVerificationError():
            state, why = "bad_certificate", f"its certificate is refused: {error.verify_message}"
        case ssl.SSLError():
            why = f"TLS with it failed: {error.reason or error}"
        case socket.gaierror():
            why = "its name cannot be resolved"
        case ConnectionRefusedError():
            why = "nobody listens there: is it running, is the port right?"
        case OSError():
            why = f"it cannot be reached: {explain(error)}"
        case _:
            why = f"it cannot be reached: {error}"
    return ConnectionFailure(Offline(state, f"the broker {where}: {why}"), OutcomeClass.TRANSPORT)
