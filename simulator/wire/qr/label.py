"""The values of a label in any profile, the rules for them, and its signature as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agent.errors import InvalidQr
from agent.wire.limits import IDENTIFIER_CHARACTERS

VERSION: Final = 1
JSON: Final = "json"
LINK: Final = "link"
COMPACT: Final = "compact"

HMAC_BYTES: Final = 16
"""HMAC-SHA-256, cut."""
ED25519_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class LabelText:
    """What a label says.

    Attributes:
        product_id: the product of the device.
        device_identifier: the device's unique identifier, such as a serial number.
        sig: signature by the product's ``label_key``, base64url without padding; None on an unsigned label.
        profile: ``json``, ``link`` or ``compact``.
        host: of a ``link``: lower case, with ``:port`` where it has one; else empty.
    """

    product_id: str
    device_identifier: str
    sig: str | None = None
    profile: str = JSON
    host: str = ""


def check_values(label: LabelText) -> None:
    """Refuse what no label may say.

    A label is typed by people, searched for and shown in tables: its texts are printable (no control character, line
    break, zero-width or bidirectional mark, no space but the ordinary one) and do not begin or end with a space.

    Raises:
        InvalidQr: ``wrong_type``, ``too_long`` or ``unprintable``.
    """
    for name, value in (("product_id", label.product_id), ("device_identifier", label.device_identifier)):
        if not isinstance(value, str) or not value.strip():
            raise InvalidQr("wrong_type", f"{name!r} in the label must be text, and not empty")
        if len(value) > IDENTIFIER_CHARACTERS:
            raise InvalidQr("too_long", f"{name!r} has {len(value)} characters; a label takes {IDENTIFIER_CHARACTERS}")
        if not value.isprintable():
            raise InvalidQr("unprintable", f"{name!r} has a character that cannot be printed: take it out")
        if value != value.strip():
            raise InvalidQr("unprintable", f"{name!r} begins or ends with a space: take it out")
    if label.sig is not None and not (isinstance(label.sig, str) and label.sig):
        raise InvalidQr("wrong_type", "'sig' in the label must be text, and not empty")
