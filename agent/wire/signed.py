"""Signed commands: the envelope inside ``command_payload``, as exact bytes.

::

    {"signed_command": {"v": 1, "key_id": "ed25519-...", "body": "<JSON text>", "signature": "<base64url>"}}

``body`` is a text and not an object, so that what was signed is what is read: the signature (Ed25519, RFC 8032) is over
:data:`PREFIX`, the key id, a NUL and the body's bytes, and nothing in the body is parsed before it holds. The prefix
keeps a signature that the same key made for anything else (a label, a file) from being one for a command. The body is
ASCII, since other text may change its bytes on the way and still look the same.

The body's members: ``device_id``, ``id`` (the sender's own name for this command), ``counter``, ``expires_at``,
``command_payload``. All are required, and a member that is not known is refused, in the envelope and in the body.

Handled here: the format. Keys are the business of :mod:`agent.wire.signed_keys`, and what a device makes of a signed
command that of :mod:`agent.core.signed`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent.errors import InvalidMessage, InvalidSignature
from agent.wire.json_text import find_fault, parse_object
from agent.wire.limits import INT_MAX, SIGNED_MEMBER
from agent.wire.times import parse_time, to_rfc3339

VERSION: Final = 1
PREFIX: Final = b"device-agent signed command v1\0"
SIGNATURE_BYTES: Final = 64
KEY_ID_CHARACTERS: Final = 64
ID_CHARACTERS: Final = 128

_ENVELOPE: Final = frozenset({"v", "key_id", "body", "signature"})
_BODY: Final = frozenset({"device_id", "id", "counter", "expires_at", "command_payload"})


@dataclass(frozen=True, slots=True)
class Envelope:
    """A signature with what it is over.

    Attributes:
        key_id: which key made it.
        body: the exact bytes that the sender wrote.
        signature: 64 bytes.
    """

    key_id: str
    body: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class SignedCommand:
    """What the sender has signed.

    Attributes:
        key_id: by which key.
        device_id: the one device that it is for.
        id: the sender's own name for it.
        counter: grows from each command of this key to the next.
        expires_at: not to be run from then on, seconds since the epoch.
        payload: the ``command_payload`` that is meant.
    """

    key_id: str
    device_id: str
    id: str
    counter: int
    expires_at: float
    payload: dict[str, Any]


def signed_bytes(key_id: str, body: bytes) -> bytes:
    """What the signature is over."""
    return PREFIX + key_id.encode() + b"\0" + body


def encode_body(command: SignedCommand) -> bytes:
    """The JSON text of a signed command's body.

    Raises:
        InvalidMessage: it cannot be written, or the device would refuse it whoever signed it.
    """
    fault = find_fault(command.payload)
    if fault is not None:
        raise InvalidMessage(f"the payload cannot be signed: {fault}")
    members = {
        "device_id": command.device_id,
        "id": command.id,
        "counter": command.counter,
        "expires_at": to_rfc3339(command.expires_at),
        "command_payload": command.payload,
    }
    body = json.dumps(members, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")
    parse_body(command.key_id, body)
    return body


def encode_envelope(envelope: Envelope) -> dict[str, Any]:
    """The ``command_payload`` that carries it."""
    members = {
        "v": VERSION,
        "key_id": envelope.key_id,
        "body": envelope.body.decode("ascii"),
        "signature": _to_base64url(envelope.signature),
    }
    return {SIGNED_MEMBER: members}


def parse_envelope(payload: Mapping[str, Any]) -> Envelope:
    """The envelope in a ``command_payload`` that has the member :data:`SIGNED_MEMBER`. The body stays unread.

    Raises:
        InvalidSignature: ``signature_malformed`` or ``signature_version_unknown``.
    """
    members = payload.get(SIGNED_MEMBER)
    if not isinstance(members, dict):
        raise _malformed(f"{SIGNED_MEMBER!r} must be an object")
    if len(payload) != 1:
        raise _malformed(f"nothing may stand beside {SIGNED_MEMBER!r} in the command_payload")
    version = members.get("v")
    if type(version) is not int or version != VERSION:
        text = f"the envelope has version {version!r:.20}; this device reads version {VERSION}"
        raise InvalidSignature("signature_version_unknown", text)
    _check_members("envelope", members, _ENVELOPE)
    key_id = _text("envelope", members, "key_id", KEY_ID_CHARACTERS)
    signature = _from_base64url(_text("envelope", members, "signature", 2 * SIGNATURE_BYTES))
    body = members["body"]
    if not isinstance(body, str) or not body.isascii() or not key_id.isascii():
        raise _malformed("'body' and 'key_id' in the envelope must be ASCII text")
    return Envelope(key_id, body.encode("ascii"), signature)


def parse_body(key_id: str, body: bytes) -> SignedCommand:
    """What the body says. Call it only for a body whose signature holds.

    Raises:
        InvalidSignature: ``signature_malformed``.
    """
    try:
        members = parse_object(body)
        _check_members("body", members, _BODY)
        expires_at = parse_time(_text("body", members, "expires_at", 64))
    except InvalidSignature:
        raise
    except InvalidMessage as error:
        raise _malformed(f"the signed body: {error}") from None
    counter, payload = members["counter"], members["command_payload"]
    if type(counter) is not int or not 1 <= counter <= INT_MAX:
        raise _malformed("'counter' in the body must be an integer from 1 to 2^63 - 1")
    if not isinstance(payload, dict) or SIGNED_MEMBER in payload:
        raise _malformed("'command_payload' in the body must be an object, and no envelope itself")
    return SignedCommand(
        key_id=key_id,
        device_id=_text("body", members, "device_id", 255),
        id=_text("body", members, "id", ID_CHARACTERS),
        counter=counter,
        expires_at=expires_at,
        payload=payload,
    )


def _check_members(where: str, members: Mapping[str, Any], wanted: frozenset[str]) -> None:
    missing, unknown = sorted(wanted - members.keys()), sorted(members.keys() - wanted)
    if missing:
        raise _malformed(f"the {where} lacks {missing[0]!r}")
    if unknown:
        raise _malformed(f"the {where} has a member {unknown[0][:40]!r} that this device does not know")


def _text(where: str, members: Mapping[str, Any], name: str, most: int) -> str:
    value = members[name]
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise _malformed(f"{name!r} in the {where} must be text of 1 to {most} characters")
    return value


def _to_base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def _from_base64url(text: str) -> bytes:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raw = b""
    # Base64 has several spellings of the same bytes; one of them is ours, so that no changed text is taken.
    if len(raw) != SIGNATURE_BYTES or _to_base64url(raw) != text:
        raise _malformed("'signature' in the envelope must be 64 bytes in base64url without padding")
    return raw


def _malformed(sentence: str) -> InvalidSignature:
    return InvalidSignature("signature_malformed", sentence)
