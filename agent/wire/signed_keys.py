"""The keys of signed commands: Ed25519, in PEM files that openssl reads too. Needs the extra ``device``.

A key's id is made of the public key itself (``ed25519-`` and half of its SHA-256 in hexadecimal), so a file can neither
claim another key's id nor be mixed up when it is renamed.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import InvalidSignature as _Invalid
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from agent.errors import InvalidSignature
from agent.wire.key_files import key_fault, read_key_file, write_new
from agent.wire.signed import (
    Envelope,
    SignedCommand,
    encode_body,
    encode_envelope,
    parse_body,
    parse_envelope,
    signed_bytes,
)

PRIVATE_ENDING: Final = ".key"
PUBLIC_ENDING: Final = ".pub"
_RAW: Final = serialization.Encoding.Raw, serialization.PublicFormat.Raw
_PEM: Final = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo


def key_id_of(key: Ed25519PublicKey) -> str:
    """The id of a public key."""
    return f"ed25519-{hashlib.sha256(key.public_bytes(*_RAW)).hexdigest()[:32]}"


class SigningKey:
    """A sender's private key. It never prints.

    Args:
        key: the key.
    """

    __slots__ = ("_key", "key_id")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.key_id = key_id_of(key.public_key())

    @classmethod
    def make(cls) -> SigningKey:
        """Make a new signing key."""
        return cls(Ed25519PrivateKey.generate())

    def sign(self, *, device_id: str, id: str, counter: int, expires_at: float, payload: Mapping[str, Any]) -> Any:
        """The ``command_payload`` that carries this command with its signature; see :class:`SignedCommand`.

        Raises:
            InvalidMessage: a value that no device would take.
        """
        body = encode_body(SignedCommand(self.key_id, device_id, id, counter, expires_at, dict(payload)))
        return encode_envelope(Envelope(self.key_id, body, self._key.sign(signed_bytes(self.key_id, body))))

    def public_key(self) -> Ed25519PublicKey:
        """The public half, which devices get."""
        return self._key.public_key()

    def write(self, path: Path) -> None:
        """Write the private key, mode 600, where no file is yet.

        Raises:
            FileExistsError: there is one; it is left alone.
            OSError: it cannot be written.
        """
        private = serialization.PrivateFormat.PKCS8
        text = self._key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption())
        write_new(path, text, 0o600)

    def __repr__(self) -> str:
        return f"SigningKey({self.key_id})"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a SigningKey is not pickled: hand over its file")


class TrustedKeys:
    """The public keys whose commands a device takes.

    Args:
        keys: each once.
    """

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
            key.verify(envelope.signature, signed_bytes(envelope.key_id, envelope.body))
        except _Invalid:
            text = f"the key {envelope.key_id} did not sign this command; it was changed or made up on the way"
            raise InvalidSignature("signature_invalid", text) from None
        return parse_body(envelope.key_id, envelope.body)


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
        raise key_fault(
            path, "is no Ed25519 private key in PEM without a password; make one with device-agent keys make"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise key_fault(path, "holds a key of another kind; make an Ed25519 key with device-agent keys make")
    return SigningKey(key)


def is_private_key(path: Path) -> bool:
    """Whether the file says of itself that it holds a private key, whatever else is wrong with it.

    Raises:
        ConfigurationError: it cannot be read.
    """
    return b"PRIVATE KEY" in read_key_file(path)


def read_public_key(path: Path) -> Ed25519PublicKey:
    """A public key out of its file.

    Raises:
        ConfigurationError: it cannot be read, or holds something else, such as the private key.
    """
    raw = read_key_file(path, others_may_not=stat.S_IWOTH)
    if b"PRIVATE" in raw:
        raise key_fault(
            path, f"holds the private key, which belongs to the sender alone; name its {PUBLIC_ENDING} file"
        )
    try:
        key = serialization.load_pem_public_key(raw)
    except (ValueError, UnsupportedAlgorithm):
        raise key_fault(path, "is no public key in PEM; take the .pub file that device-agent keys make wrote") from None
    if not isinstance(key, Ed25519PublicKey):
        raise key_fault(path, "holds a key of another kind; take the .pub file that device-agent keys make wrote")
    return key


def public_pem(key: Ed25519PublicKey) -> str:
    """A public key as the text of its file."""
    return key.public_bytes(*_PEM).decode("ascii")


def write_public_key(path: Path, key: Ed25519PublicKey) -> None:
    """Write a public key, for everybody to read, where no file is yet.

    Raises:
        FileExistsError: there is one; it is left alone.
        OSError: it cannot be written.
    """
    write_new(path, key.public_bytes(*_PEM), 0o644)
