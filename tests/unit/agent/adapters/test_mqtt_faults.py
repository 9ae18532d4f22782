"""What went wrong with a broker: each kind has its word, its advice and a sentence that names the fix."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from agent.adapters import mqtt_faults
from agent.errors import Advice, LockedOut, Offline, RateLimited, SessionTakenOver, UnexpectedAnswer


@pytest.mark.parametrize(
    ("code", "state", "advice", "said"),
    [
        (0x84, "unsupported_version", Advice.RETRY, "mqtt.version: auto"),
        (0x85, "refused", Advice.REAUTHENTICATE, "device.device_id"),
        (0x86, "unauthorized", Advice.REAUTHENTICATE, "auth.token_file"),
        (0x87, "unauthorized", Advice.REAUTHENTICATE, "auth.token_file"),
        (0x8A, "unauthorized", Advice.REAUTHENTICATE, "banned"),
        (0x88, "refused", Advice.RETRY, "Server unavailable (0x88)"),
    ],
)
def test_a_refused_connect(code, state, advice, said):
    error = mqtt_faults.of_connack(code, "Server unavailable")
    assert (error.state, error.advice) == (state, advice)
    assert said in str(error)


def test_a_take_over_that_the_broker_names():
    error = mqtt_faults.of_disconnect(0x8E, "Session taken over")
    assert isinstance(error, SessionTakenOver)
    assert error.state == mqtt_faults.cut_short(4).state == "taken_over"
    assert "running twice" in str(error)


def test_other_disconnects():
    assert isinstance(mqtt_faults.of_disconnect(0x87, "Not authorized"), LockedOut)
    error = mqtt_faults.of_disconnect(0x8B, "Server shutting down")
    assert (error.state, str(error)) == ("closed", "the broker ended the connection: Server shutting down (0x8B)")


def test_a_refused_subscription_names_topic_and_rules():
    error = mqtt_faults.of_suback("v1/devices/d1/notice", 0x80, "Unspecified error")
    assert isinstance(error, LockedOut)
    assert "v1/devices/d1/notice" in str(error)
    assert "access rules" in str(error)


@pytest.mark.parametrize(
    ("code", "kind"), [(0x87, LockedOut), (0x97, RateLimited), (0x99, UnexpectedAnswer), (0x80, UnexpectedAnswer)]
)
def test_a_refused_message(code, kind):
    assert isinstance(mqtt_faults.of_puback("t", code, "name"), kind)


def verification(code: int, message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(message)
    error.verify_code = code
    error.verify_message = message
    return error


@pytest.mark.parametrize(
    ("error", "state", "said"),
    [
        (socket.gaierror(-2, "Name or service not known"), "unreachable", "mqtt.host"),
        (ConnectionRefusedError(), "unreachable", "is the broker running"),
        (TimeoutError(), "unreachable", "did not answer within 7 s"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "unreachable", "Network is unreachable"),
        (UnicodeError("label empty"), "unreachable", "no name of a host"),
        (verification(10, "certificate has expired"), "bad_certificate", "renew it on the broker"),
        (verification(9, "certificate is not yet valid"), "bad_certificate", "clock is wrong"),
        (verification(62, "Hostname mismatch"), "bad_certificate", "mqtt.host"),
        (verification(19, "self-signed certificate in chain"), "bad_certificate", "mqtt.ca_file"),
        (ssl.SSLError("[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED]"), "bad_certificate", "renew mqtt.cert_file"),
        (ssl.SSLError("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED]"), "bad_certificate", "set mqtt.cert_file"),
        (ssl.SSLError("[SSL: TLSV1_ALERT_UNKNOWN_CA]"), "bad_certificate", "does not accept this device's"),
        (ssl.SSLError("[SSL: WRONG_VERSION_NUMBER]"), "unreachable", "does not speak TLS"),
        (ssl.SSLError("[SSL: SOMETHING_ELSE]"), "unreachable", "SOMETHING_ELSE"),
    ],
)
def test_a_connection_that_cannot_be_made(error, state, said):
    found = mqtt_faults.of_network(error, "broker.example", 8883, 7)
    assert isinstance(found, Offline)
    assert found.state == state
    assert said in str(found)
    assert "\n" not in str(found)
