"""The keys of labels: what a product's ``label_key`` says, and the maker's side of it. Needs the extra ``device``.

============================== ==========================================================
``label_key``                  what it is
============================== ==========================================================
``ed25519:`` + base64url       32 bytes, a public key; whoever has it can only check
``hmac-sha256:`` + base64url   16 to 126 bytes, a secret; whoever has it can also sign
``hmac-sha256:id=`` + 16 hex   how a service shows the latter: its name, not the key
============================== ==========================================================

A signature proves where a label comes from, not that there is only one of it: a photocopy holds the same signature.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import stat
from dataclasses import replace
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature as _Invalid
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from agent.errors import InvalidMessage, InvalidSignature
from agent.wire.secret import key_fault, read_key_file, write_new
from simulator.wire.base64url import from_base64url, to_base64url
from simulator.wire.qr.label import HMAC_BYTES, LabelText
from simulator.wire.qr.text import encode_label, signed_bytes

ED25519: Final = "ed25519"
HMAC: Final = "hmac-sha256"
KINDS: Final = (ED25519, HMAC)
MADE_BYTES: Final = 32

_LABEL_KEY: Final = re.compile(r"(ed25519|hmac-sha256):([A-Za-z0-9_-]+)")
_SHOWN: Final = re.compile(r"hmac-sha256:id=[0-9a-f]{16}")
_ED25519_KEY_BYTES: Final = 32
_HMAC_MIN, _HMAC_MAX = 16, 126
_RAW: Final = serialization.Encoding.Raw, serialization.PublicFormat.Raw


class LabelKey:
    """The key that checks a product's labels. It never prints a secret.

    Args:
        text: the product's ``label_key``.

    Raises:
        InvalidMessage: it is none of the two forms.
    """

    __slots__ = ("_material", "kind")

    def __init__(self, text: str) -> None:
        found = _LABEL_KEY.fullmatch(text)
        material = _decode(found[2]) if found else b""
        self.kind = found[1] if found else ""
        sizes = (_ED25519_KEY_BYTES, _ED25519_KEY_BYTES) if self.kind == ED25519 else (_HMAC_MIN, _HMAC_MAX)
        if not sizes[0] <= len(material) <= sizes[1]:
            raise InvalidMessage(
                "a label_key is ed25519: with 32 bytes, or hmac-sha256: with 16 to 126 bytes, in base64url; make one "
                "with fleet-simulator labels keygen"
            )
        self._material = material

    @property
    def shown(self) -> str:
        """What may be shown of it: a public key itself, of a secret one its name."""
        if self.kind == ED25519:
            return f"{ED25519}:{to_base64url(self._material)}"
        return f"{HMAC}:id={hashlib.sha256(b'device-agent label key id' + self._material).hexdigest()[:16]}"

    def check(self, label: LabelText) -> None:
        """Return when this key signed this label.

        Raises:
            InvalidSignature: ``label_unsigned``, ``label_signature_malformed`` or ``label_signature_invalid``.
            InvalidQr: the label is one that cannot be written.
        """
        if label.sig is None:
            raise InvalidSignature("label_unsigned", "the label is not signed, and this product signs its labels")
        signature = from_base64url(label.sig)
        if signature is None:
            text = "the label's signature is not base64url without padding; it was cut or changed"
            raise InvalidSignature("label_signature_malformed", text)
        if not self._holds(signature, signed_bytes(label)):
            text = "the label's signature was not made over this label with this product's key"
            raise InvalidSignature("label_signature_invalid", text)

    def _holds(self, signature: bytes, message: bytes) -> bool:
        if self.kind == HMAC:
            return hmac.compare_digest(_cut_hmac(self._material, message), signature)
        try:
            Ed25519PublicKey.from_public_bytes(self._material).verify(signature, message)
        except _Invalid:
            return False
        return True

    def __repr__(self) -> str:
        return f"LabelKey({self.shown})"


class LabelSigner:
    """The maker's key. It never prints, and equal labels get equal signatures.

    Args:
        kind: ``ed25519`` or ``hmac-sha256``.
        material: the private key's 32 bytes, or the secret.
    """

    __slots__ = ("_material", "_private", "key")

    def __init__(self, kind: str, material: bytes) -> None:
        self._material = material
        self._private = Ed25519PrivateKey.from_private_bytes(material) if kind == ED25519 else None
        public = material if self._private is None else self._private.public_key().public_bytes(*_RAW)
        self.key = LabelKey(f"{kind}:{to_base64url(public)}")

    @classmethod
    def make(cls, kind: str) -> LabelSigner:
        """Make a new label key."""
        return cls(kind, secrets.token_bytes(MADE_BYTES))

    def sign(self, label: LabelText) -> LabelText:
        """The label with its signature.

        Raises:
            InvalidQr: the label is one that cannot be written.
        """
        message = signed_bytes(label)
        signature = _cut_hmac(self._material, message) if self._private is None else self._private.sign(message)
        return replace(label, sig=to_base64url(signature))

    def reveal_label_key(self) -> str:
        """What goes into the product's ``label_key``. Of ``hmac-sha256`` this is the secret itself."""
        return f"{HMAC}:{to_base64url(self._material)}" if self._private is None else self.key.shown

    def write(self, path: Path) -> None:
        """Write the key, mode 600, where no file is yet: Ed25519 in PEM, HMAC as the ``label_key`` in one line.

        Raises:
            FileExistsError: there is one; it is left alone.
            OSError: it cannot be written.
        """
        if self._private is None:
            text = f"{self.reveal_label_key()}\n".encode()
        else:
            private = serialization.PrivateFormat.PKCS8
            text = self._private.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption())
        write_new(path, text, 0o600)

    def __repr__(self) -> str:
        return f"LabelSigner({self.key.shown})"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a LabelSigner is not pickled: hand over its file")


def signer_of_label_key(label_key: str) -> LabelSigner | None:
    """The key that a product's labels can be signed with, where its ``label_key`` is that; None of a public key.

    Raises:
        InvalidMessage: it is no ``label_key``.
    """
    key = LabelKey(label_key)
    return None if key.kind == ED25519 else LabelSigner(HMAC, _decode(label_key.partition(":")[2]))


def is_shown_form(label_key: str) -> bool:
    """Whether this is how a service shows a secret ``label_key``, and not a key."""
    return _SHOWN.fullmatch(label_key) is not None


def show_label_key(label_key: str) -> str:
    """A product's ``label_key`` as it may be shown; one that cannot be read is not repeated, either."""
    try:
        return LabelKey(label_key).shown
    except InvalidMessage:
        return label_key.partition(":")[0][:20] + ":(unreadable)" if ":" in label_key else "(unreadable)"


def signed_text(label: LabelText, signer: LabelSigner | None) -> str:
    """The label's text, signed when there is a key for it.

    Raises:
        InvalidQr: the label is one that cannot be written.
    """
    return encode_label(label if signer is None else signer.sign(label))


def read_label_signer(path: Path) -> LabelSigner:
    """The maker's key out of its file.

    Raises:
        ConfigurationError: it cannot be read, others can open it, or it holds something else. The sentence never
            repeats what the file holds.
    """
    raw = read_key_file(path, others_may_not=stat.S_IRWXG | stat.S_IRWXO)
    fix = "make one with fleet-simulator labels keygen"
    if b"-----BEGIN" in raw:
        try:
            private = serialization.load_pem_private_key(raw, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise key_fault(path, f"is no Ed25519 private key in PEM without a password; {fix}") from None
        if not isinstance(private, Ed25519PrivateKey):
            raise key_fault(path, f"holds a key of another kind; {fix}")
        return LabelSigner(ED25519, private.private_bytes_raw())
    try:
        text = raw.decode("ascii").strip()
        key = LabelKey(text)
    except (UnicodeDecodeError, InvalidMessage):
        raise key_fault(path, f"holds no key for labels; {fix}") from None
    if key.kind == ED25519:
        raise key_fault(path, "holds a public key, which signs nothing; name the private key's file")
    return LabelSigner(HMAC, _decode(text.partition(":")[2]))


def _cut_hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")[:HMAC_BYTES]


def _decode(text: str) -> bytes:
    """The bytes of a key; bits that its last character has too many are passed over. Empty when it has none."""
    return b"" if len(text) % 4 == 1 else base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
