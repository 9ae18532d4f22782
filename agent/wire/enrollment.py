"""Enrollment of a device at a gateway: the code that a person types, the request and its answer.

A code is 30 characters in six groups: 12 of a secret (60 random bits), 16 of the SHA-256 of the gateway's certificate
(80 bits), 2 for a check. The alphabet is Crockford's base 32, which has no letters that look like digits. The secret is
sent only to a server that has shown that certificate, so the first contact needs no trust store and no clock.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from agent.errors import InvalidMessage
from agent.wire.models import Received, ReceivedSecret, Text

PATH: Final = "/enroll"
"""Of the gateway's HTTP front; it needs no token."""
LABEL_PREFIX: Final = "DAE1:"
"""Begins the text of a QR label that holds address and code: ``DAE1:https://gateway:8443 CODE``."""

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LOOKS_LIKE: Final = str.maketrans({"O": "0", "I": "1", "L": "1"})
_SECRET, _FINGERPRINT, _CHECK = 12, 16, 2
_LENGTH: Final = _SECRET + _FINGERPRINT + _CHECK
_GROUP: Final = 5
SECRET_BYTES: Final = 8
"""Random bytes that a secret is made of; 60 of the 64 bits are used."""
# The largest prime that two characters can hold: one wrong character, and two that changed places, are always noticed.
_MODULUS: Final = 1021


@dataclass(frozen=True, slots=True)
class EnrollmentCode:
    """An enrollment code in its parts.

    Attributes:
        secret: sent to the gateway, 12 characters.
        fingerprint: of the gateway's certificate, 16 characters; zeros for an address without TLS.
    """

    secret: str
    fingerprint: str

    @property
    def is_plain(self) -> bool:
        """Whether the gateway is reached without TLS."""
        return self.fingerprint == NO_FINGERPRINT

    def __str__(self) -> str:
        text = self.secret + self.fingerprint
        text += _encode(_value(text) % _MODULUS, _CHECK)
        return "-".join(text[at : at + _GROUP] for at in range(0, _LENGTH, _GROUP))


NO_FINGERPRINT: Final = "0" * _FINGERPRINT


def make_code(random_bytes: bytes, certificate: bytes | None) -> EnrollmentCode:
    """A new enrollment code, random.

    Args:
        random_bytes: :data:`SECRET_BYTES` of them, from the system's own source.
        certificate: the one that the gateway shows, DER; None for an address without TLS.
    """
    secret = _encode(int.from_bytes(random_bytes) >> 4, _SECRET)
    return EnrollmentCode(secret, NO_FINGERPRINT if certificate is None else fingerprint_of(certificate))


def parse_code(text: str) -> EnrollmentCode:
    """A code as a person typed it: any case, with or without hyphens and spaces, O for 0, I and L for 1.

    Raises:
        InvalidMessage: it has another length, characters that no code has, or its check does not fit.
    """
    typed = "".join(text.split()).replace("-", "").upper().translate(_LOOKS_LIKE)
    strange = sorted(set(typed) - set(_ALPHABET))
    if strange:
        raise InvalidMessage(f"a code has digits and letters only, without I, L, O and U; this one has {strange[0]!r}")
    if len(typed) != _LENGTH:
        raise InvalidMessage(f"a code has {_LENGTH} characters in six groups; this one has {len(typed)}")
    body = typed[:-_CHECK]
    if _value(body) % _MODULUS != _value(typed[-_CHECK:]):
        raise InvalidMessage("the code is mistyped: its last two characters do not fit the others; compare it again")
    return EnrollmentCode(body[:_SECRET], body[_SECRET:])


def fingerprint_of(certificate: bytes) -> str:
    """The first 80 bits of a certificate's SHA-256, as a code holds them.

    Args:
        certificate: DER.
    """
    digest = hashlib.sha256(certificate).digest()
    return _encode(int.from_bytes(digest[:10]), _FINGERPRINT)


def label_text(url: str, code: EnrollmentCode) -> str:
    """The text of a QR label that holds both."""
    return f"{LABEL_PREFIX}{url} {code}"


def parse_label(text: str) -> tuple[str, str]:
    """Address and code of a label's text.

    Raises:
        InvalidMessage: it is no such label.
    """
    url, separator, code = text.removeprefix(LABEL_PREFIX).partition(" ")
    if not text.startswith(LABEL_PREFIX) or not separator:
        raise InvalidMessage(f"the text of an enrollment label begins with {LABEL_PREFIX}")
    return url, code


class EnrollmentAnswer(Received):
    """Answer to an enrollment: all that a device needs.

    Attributes:
        device_id: its id at the service, the same each time.
        token: its token; those from before are good until this one is used.
        product_id: its product, where it is known.
        url: of the gateway's HTTP front; None for a device that speaks MQTT alone.
        broker: HOST or HOST:PORT; None for a device that speaks HTTP alone.
        plain: the broker or the address has no TLS.
        authority: PEM of the authority to trust; None for a public one.
    """

    device_id: Text
    token: ReceivedSecret
    product_id: str | None = None
    url: str | None = None
    broker: str | None = None
    plain: bool = False
    authority: str | None = None


def _encode(number: int, length: int) -> str:
    return "".join(_ALPHABET[number >> 5 * at & 31] for at in reversed(range(length)))


def _value(text: str) -> int:
    value = 0
    for character in text:
        value = value * len(_ALPHABET) + _ALPHABET.index(character)
    return value
