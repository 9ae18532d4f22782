"""The envelope of a signed command and its keys, on the wire and in files."""

from __future__ import annotations

import json

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent.errors import ConfigurationError, InvalidSignature
from agent.wire.signed import (
    SigningKey,
    TrustedKeys,
    make_key_pair,
    read_public_key,
    read_signing_key,
)
from tests.unit.agent.signing import envelope, signed_bytes

KEY = SigningKey.make()
RAW = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KNOWN = SigningKey(RAW)
KNOWN_TRUSTED = TrustedKeys([KNOWN.public_key()])

BODY_TEXT = (
    '{"device_id":"d1","id":"o1","counter":7,"expires_at":"2026-01-01T00:00:00.000Z","command_payload":'
    '{"command":"ping"}}'
)


def resign(body: bytes):
    """An envelope around any body, with a signature that holds."""
    return envelope(KNOWN.key_id, body, RAW.sign(signed_bytes(KNOWN.key_id, body)))


def reason_of(payload) -> str:
    with pytest.raises(InvalidSignature) as caught:
        KNOWN_TRUSTED.open(payload)
    assert str(caught.value)
    return caught.value.reason


def test_the_bytes_on_the_wire_are_these():
    """A sender in another language has to make exactly this (RFC 8032: the signature is deterministic)."""
    payload = KNOWN.sign(device_id="d1", id="o1", counter=7, expires_at=1_767_225_600.0, payload={"command": "ping"})
    key_id = "ed25519-56475aa75463474c0285df5dbf2bcab7"
    message = b"device-agent signed command v1\0" + key_id.encode() + b"\0" + BODY_TEXT.encode()
    assert payload == envelope(key_id, BODY_TEXT.encode(), RAW.sign(message))
    assert payload["signed_command"]["v"] == 1


BODY = json.loads(BODY_TEXT)


@pytest.mark.parametrize(
    "change",
    [
        {"device_id": ""},
        {"counter": 0},
        {"counter": True},
        {"counter": 2**63},
        {"expires_at": "tomorrow"},
        {"command_payload": {"signed_command": {}}},
        {"more": 1},
    ],
)
def test_a_body_that_is_not_as_it_must_be_is_refused_although_its_signature_holds(change):
    assert reason_of(resign(json.dumps({**BODY, **change}).encode())) == "signature_malformed"
    assert KNOWN_TRUSTED.open(resign(json.dumps(BODY).encode())).counter == 7


def test_nothing_in_the_body_is_parsed_before_its_signature_holds(monkeypatch):
    def fail(*_arguments):
        raise AssertionError("parsed")

    payload = resign(BODY_TEXT.encode())
    monkeypatch.setattr("agent.wire.signed.parse_body", fail)
    payload["signed_command"]["body"] += " "
    assert reason_of(payload) == "signature_invalid"


# --- keys in files ------------------------------------------------------------------------------------------------


def test_a_private_key_does_not_print():
    assert repr(KEY) == f"SigningKey({KEY.key_id})"


def test_a_private_key_that_others_can_open_and_a_public_one_that_they_can_write_are_refused(tmp_path):
    make_key_pair(tmp_path / "k")
    for read, name, mode, fix in (
        (read_signing_key, "k.key", 0o640, "chmod 600"),
        (read_signing_key, "k.key", 0o604, "chmod 600"),
        (read_public_key, "k.pub", 0o666, "chmod 644"),
    ):
        (tmp_path / name).chmod(mode)
        with pytest.raises(ConfigurationError, match=fix):
            read(tmp_path / name)


def test_a_private_key_in_the_place_of_the_public_one_is_refused_without_being_repeated(tmp_path):
    make_key_pair(tmp_path / "k")
    with pytest.raises(ConfigurationError, match="belongs to the sender alone") as caught:
        read_public_key(tmp_path / "k.key")
    secret = (tmp_path / "k.key").read_text().splitlines()[1]
    assert secret not in str(caught.value)


def test_a_key_of_another_kind_is_refused(tmp_path):
    other = ec.generate_private_key(ec.SECP256R1())
    pem = serialization.Encoding.PEM
    public = other.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "k.pub").write_bytes(public)
    private = other.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "k.key").write_bytes(private)
    (tmp_path / "k.key").chmod(0o600)
    for read, name in ((read_public_key, "k.pub"), (read_signing_key, "k.key")):
        with pytest.raises(ConfigurationError, match="Ed25519"):
            read(tmp_path / name)
