"""A label's signature: HMAC-SHA-256 cut to 16 bytes, by a key that the product's ``label_key`` holds.

It proves where a label comes from, not that there is only one of it. A ``label_key`` of another form than
``hmac-sha256:<base64url>`` names a key that this service does not have; labels of such a product are not checked.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

from agent.wire.qr import LabelText, encode_label
from simulator.service.faults import ServiceFault

HMAC_PREFIX: Final = "hmac-sha256:"
_SIGNATURE_BYTES: Final = 16


def sign(label: LabelText, key: bytes) -> str:
    """The signature of the label's text without ``sig``, base64url without padding."""
    text = encode_label(LabelText(label.product_id, label.device_identifier))
    digest = hmac.new(key, text.encode(), hashlib.sha256).digest()[:_SIGNATURE_BYTES]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def check_signature(label: LabelText, label_key: str | None) -> None:
    """Refuse a label whose product signs its labels and that is not signed, or not by that key.

    Raises:
        ServiceFault: 400 ``invalid_signature``.
    """
    if label_key is None or not label_key.startswith(HMAC_PREFIX):
        return
    text = label_key.removeprefix(HMAC_PREFIX)
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise ServiceFault(
            400, "invalid_signature", "The product's label_key cannot be read: it must be hmac-sha256:<base64url>."
        ) from None
    if label.sig is None:
        raise ServiceFault(400, "invalid_signature", "The label is not signed, and this product signs its labels.")
    if not hmac.compare_digest(sign(label, key).encode(), label.sig.encode()):
        raise ServiceFault(400, "invalid_signature", "The label's signature was not made with this product's key.")
