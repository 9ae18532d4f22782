"""Signed commands: the envelope inside ``command_payload``, and its Ed25519 keys. Needs the extra ``device``.

::

    {"signed_command": {"v": 1, "key_id": "ed25519-...", "body": "<JSON text>", "signature": "<base64url>"}}

``body`` is a text and not an object, so that what was signed is what is read: the signature (Ed25519, RFC 8032) is over
:data:`PREFIX`, the key id, a NUL and the body's bytes, and nothing in the body is parsed before it holds. The prefix
keeps a signature that the same key made for anything else (a label, a file) from being one for a command. The body is
ASCII, since other text may change its bytes on the way and still look the same.

A key's id is made of the public key itself (``ed25519-`` and half of its SHA-256 in hexadecimal), so a file can neither
claim another key's id nor be mixed up when it is renamed. Keys are PEM files, which openssl reads, too.

What a device makes of a signed command: :mod:`agent.core.admission`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError

from agent.core.admission import SignedCommand
from agent.errors import ConfigurationError, InvalidMessage, InvalidSignature
from agent.wire.encoding import find_fault, parse_object, parse_time, to_rfc3339
from agent.wire.limits import INT_MAX, SIGNED_MEMBER
from agent.wire.models import Sent, describe_faults
from agent.wire.secret import key_fault, read_key_file, write_new

try:
    from cryptography.exceptions import InvalidSignature as _DoesNotHold
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
except ModuleNotFoundError:
    _missing = "signed commands need the package 'cryptography': pip install '.[device]' in a clone of device-agent"
    raise ConfigurationError([_missing], "keys") from None

PREFIX: Final = b"device-agent signed command v1\0"
VERSION: Final = 1

_RAW: Final = serialization.Encoding.Raw, serialization.PublicFormat.Raw
_PUBLIC_PEM: Final = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
_PRIVATE_PEM: Final = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()


class Envelope(Sent):
    """A signature with what it is over.

    Attributes:
        v: version of the format.
        key_id: which key made it.
        body: JSON text of a :class:`_Body`, as the sender wrote it.
        signature: 64 bytes in base64url without padding.
    """

    v: int
    key_id: Annotated[str, Field(min_length=1, max_length=64)]
    body: str
    signature: Annotated[str, Field(max_length=128)]

    def signed_bytes(self) -> bytes:
        """What the signature is over.

        Raises:
            UnicodeEncodeError: body or key id are not ASCII.
        """
        return PREFIX + self.key_id.encode("ascii") + b"\0" + self.body.encode("ascii")


class _Body(Sent):
    """The signed members as JSON; see :class:`agent.core.admission.SignedCommand`."""

    device_id: Annotated[str, Field(min_length=1, max_length=255)]
    id: Annotated[str, Field(min_length=1, max_length=128)]
    counter: Annotated[int, Field(ge=1, le=INT_MAX)]
    expires_at: str
    command_payload: dict[str, Any]


def key_id_of(key: Ed25519PublicKey) -> str:
    """The id of a public key."""
    return f"ed25519-{hashlib.sha256(key.public_bytes(*_RAW)).hexdigest()[:32]}"


class SigningKey:
    """A sender's private key. It never prints, and the library does not let it be pickled."""

    __slots__ = ("_key", "key_id")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.key_id = key_id_of(key.public_key())

    @classmethod
    def make(cls) -> SigningKey:
        """Make a new key."""
        return cls(Ed25519PrivateKey.generate())

    def sign(self, *, device_id: str, id: str, counter: int, expires_at: float, payload: Mapping[str, Any]) -> Any:
        """The ``command_payload`` that carries this command with its signature; see :class:`SignedCommand`.

        Raises:
            InvalidMessage: a value that no device would take.
        """
        if fault := find_fault(dict(payload)):
            raise InvalidMessage(f"the payload cannot be signed: {fault}")
        members = {
            "device_id": device_id,
            "id": id,
            "counter": counter,
            "expires_at": to_rfc3339(expires_at),
            "command_payload": dict(payload),
        }
        body = json.dumps(members, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
        parse_body(self.key_id, body)
        envelope = Envelope(v=VERSION, key_id=self.key_id, body=body, signature="")
        signature = _to_base64url(self._key.sign(envelope.signed_bytes()))
        return {SIGNED_MEMBER: envelope.model_copy(update={"signature": signature}).to_wire()}

    def public_key(self) -> Ed25519PublicKey:
        """The public half, which devices get."""
        return self._key.public_key()

    def __repr__(self) -> str:
        return f"SigningKey({self.key_id})"


class TrustedKeys:
    """The public keys whose commands a device takes, each once."""

    def __init__(self, keys: Iterable[Ed25519PublicKey]) -> None:
        self._keys = {key_id_of(key): key for key in keys}

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids, in the order of the configuration."""
        return tuple(self._keys)

    def open(self, payload: Mapping[str, Any]) -> SignedCommand:
        """What the envelope in this ``command_payload`` says, once its signature holds.

        Raises:
            InvalidSignature: it is no envelope, of an unknown key, or not what that key signed.
        """
        envelope = parse_envelope(payload)
        key = self._keys.get(envelope.key_id)
        if key is None:
            text = f"this device does not trust the key {envelope.key_id!r}; see commands.signing.trusted_keys"
            raise InvalidSignature("signature_key_unknown", text)
        try:
            key.verify(_from_base64url(envelope.signature), envelope.signed_bytes())
        except _DoesNotHold:
            text = f"the key {envelope.key_id} did not sign this command; it was changed or made up on the way"
            raise InvalidSignature("signature_invalid", text) from None
        return parse_body(envelope.key_id, envelope.body)


def parse_envelope(payload: Mapping[str, Any]) -> Envelope:
    """The envelope in a ``command_payload`` that has the member :data:`SIGNED_MEMBER`. The body stays unread.

    Raises:
        InvalidSignature: ``signature_malformed`` or ``signature_version_unknown``.
    """
    members = payload.get(SIGNED_MEMBER)
    if not isinstance(members, dict) or len(payload) != 1:
        raise _malformed(f"the command_payload must have the object {SIGNED_MEMBER!r} and nothing beside it")
    version = members.get("v")
    if type(version) is not int or version != VERSION:
        text = f"the envelope has version {version!r:.20}; this device reads version {VERSION}"
        raise InvalidSignature("signature_version_unknown", text)
    try:
        envelope = Envelope.model_validate(members)
        envelope.signed_bytes()
        _from_base64url(envelope.signature)
    except ValidationError as error:
        raise _malformed(f"the envelope: {describe_faults(error)}") from None
    except UnicodeEncodeError:
        raise _malformed("'body' and 'key_id' in the envelope must be ASCII text") from None
    return envelope


def parse_body(key_id: str, body: str) -> SignedCommand:
    """What the body says. Call it only for a body whose signature holds.

    Raises:
        InvalidSignature: ``signature_malformed``.
    """
    try:
        found = _Body.model_validate(parse_object(body.encode()))
        expires_at = parse_time(found.expires_at)
    except ValidationError as error:
        raise _malformed(f"the signed body: {describe_faults(error)}") from None
    except InvalidMessage as error:
        raise _malformed(f"the signed body: {error}") from None
    if SIGNED_MEMBER in found.command_payload:
        raise _malformed("the signed body: its command_payload must be no envelope itself")
    return SignedCommand(key_id, found.device_id, found.id, found.counter, expires_at, found.command_payload)


def _to_base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def _from_base64url(text: str) -> bytes:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raw = b""
    # Base64 has several spellings of the same bytes; one of them is ours, so that no changed text is taken.
    if len(raw) != 64 or _to_base64url(raw) != text:
        raise _malformed("'signature' in the envelope must be 64 bytes in base64url without padding")
    return raw


def _malformed(sentence: str) -> InvalidSignature:
    return InvalidSignature("signature_malformed", sentence)


# --- keys in files ----------------------------------------------------------------------------------------------------


def read_signing_key(path: Path) -> SigningKey:
    """A sender's private key out of its file.

    Raises:
        ConfigurationError: it cannot be read, others can open it, or it holds something else. The sentence never
            repeats what the file holds.
    """
    raw = read_key_file(path, others_may_not=stat.S_IRWXG | stat.S_IRWXO)
    try:
        key = serialization.load_pem_private_key(raw, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        what = "is no private Ed25519 key in PEM without a password"
        raise key_fault(path, f"{what}; make one with device-agent keys")
    return SigningKey(key)


def read_public_key(path: Path) -> Ed25519PublicKey:
    """A public key out of its file.

    Raises:
        ConfigurationError: it cannot be read, or holds something else, such as the private key.
    """
    raw = read_key_file(path, others_may_not=stat.S_IWOTH)
    if b"PRIVATE" in raw:
        raise key_fault(path, "holds the private key, which belongs to the sender alone; name its .pub file")
    try:
        key = serialization.load_pem_public_key(raw)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        what = "is no public Ed25519 key in PEM"
        raise key_fault(path, f"{what}; take the .pub file that device-agent keys wrote")
    return key


def read_trusted_keys(paths: Iterable[Path]) -> TrustedKeys:
    """The public keys in the files of ``commands.signing.trusted_keys``.

    Raises:
        ConfigurationError: a fault for each file that cannot be used.
    """
    faults: list[str] = []
    keys: list[Ed25519PublicKey] = []
    for path in paths:
        try:
            keys.append(read_public_key(path))
        except ConfigurationError as error:
            faults += [f"commands.signing.trusted_keys: {fault}" for fault in error.faults]
    if faults:
        raise ConfigurationError(faults, "keys")
    return TrustedKeys(keys)


def make_key_pair(name: Path) -> tuple[str, Path, Path]:
    """Make a key pair: its id, ``NAME.key`` (mode 600) and ``NAME.pub``.

    Raises:
        ConfigurationError: one of them is there already, or the directory cannot be written; nothing is left behind.
    """
    private = Ed25519PrivateKey.generate()
    public = private.public_key()
    private_path, public_path = (name.with_name(name.name + ending) for ending in (".key", ".pub"))
    path = private_path
    try:
        write_new(private_path, private.private_bytes(*_PRIVATE_PEM), 0o600)
        path = public_path
        try:
            write_new(public_path, public.public_bytes(*_PUBLIC_PEM), 0o644)
        except OSError:
            private_path.unlink()
            raise
    except FileExistsError:
        raise key_fault(path, "is there already and is never replaced; choose another name") from None
    except OSError as error:
        fault = f"the keys cannot be written: {error.strerror}; make room there, or name another folder"
        raise key_fault(name, fault) from None
    return key_id_of(public), private_path, public_path
