"""Profile ``compact``: ``DL1:`` and a packed record in base45, in QR's alphanumeric characters from end to end.

The record::

    1 byte       bits 0 and 1: signature (0 none, 1 HMAC, 2 Ed25519); bit 2: the product id is a UUID; the rest 0
    product      16 bytes of a UUID that is written in lower case, else 1 byte of length and that much UTF-8
    identifier   1 byte of length and that much UTF-8
    signature    0, 16 or 64 bytes
"""

from __future__ import annotations

import re
from typing import Final

from agent.errors import InvalidQr
from simulator.wire.base64url import from_base64url, to_base64url
from simulator.wire.qr import base45
from simulator.wire.qr.label import COMPACT, ED25519_BYTES, HMAC_BYTES, VERSION, LabelText

START: Final = f"DL{VERSION}:"
_START_OF_ANY: Final = re.compile(r"DL[0-9]+:")
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_UUID_BYTES: Final = 16
_UUID_FLAG: Final = 4
_TEXT_MAX: Final = 255
_KINDS: Final = {0: 0, HMAC_BYTES: 1, ED25519_BYTES: 2}
_SIZES: Final = {kind: size for size, kind in _KINDS.items()}


def write(label: LabelText) -> str:
    """The text of a label in the compact form.

    Raises:
        InvalidQr: ``too_long`` for a length byte, or ``wrong_type`` for a signature of another size.
    """
    sig = b"" if label.sig is None else from_base64url(label.sig)
    if sig is None or len(sig) not in _KINDS:
        raise InvalidQr("wrong_type", f"a compact label carries a signature of {HMAC_BYTES} or {ED25519_BYTES} bytes")
    kind = _KINDS[len(sig)]
    if _UUID.fullmatch(label.product_id):
        head = bytes([kind | _UUID_FLAG]) + bytes.fromhex(label.product_id.replace("-", ""))
    else:
        head = bytes([kind]) + _pack("product_id", label.product_id)
    return START + base45.encode(head + _pack("device_identifier", label.device_identifier) + sig)


def read(text: str) -> LabelText:
    """The label in the text; its values are not checked yet.

    Raises:
        InvalidQr: ``unknown_version`` or ``not_compact``.
    """
    if not text.startswith(START):
        if _START_OF_ANY.match(text):
            raise InvalidQr("unknown_version", f"the label begins {text[:8]!r}; this program reads {START}")
        raise InvalidQr("not_compact", f"a compact label begins {START}, in upper case")
    try:
        record = base45.decode(text[len(START) :])
        return _read_record(record)
    except ValueError as problem:
        raise InvalidQr("not_compact", f"the compact label cannot be read: {problem}") from None


def _read_record(record: bytes) -> LabelText:
    flags = record[0] if record else 0
    size = _SIZES.get(flags & ~_UUID_FLAG)
    if not record or size is None:
        raise ValueError("its first byte names no kind of record")
    if flags & _UUID_FLAG:
        end = 1 + _UUID_BYTES
        digits = record[1:end].hex()
        product_id = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    else:
        product_id, end = _unpack(record, 1)
    device_identifier, end = _unpack(record, end)
    if len(record) - end != size:
        raise ValueError(f"it has {len(record) - end} bytes where {size} of a signature belong")
    return LabelText(product_id, device_identifier, to_base64url(record[end:]) if size else None, COMPACT)


def _pack(name: str, value: str) -> bytes:
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise InvalidQr("wrong_type", "text must not contain a lone surrogate") from None
    if len(raw) > _TEXT_MAX:
        raise InvalidQr("too_long", f"{name!r} has {len(raw)} bytes; a compact label takes {_TEXT_MAX}")
    return bytes([len(raw)]) + raw


def _unpack(record: bytes, start: int) -> tuple[str, int]:
    """The text that begins at ``start``, and where the next thing begins."""
    end = start + 1 + record[start] if start < len(record) else 0
    if not start < end <= len(record):
        raise ValueError("it ends too early")
    return record[start + 1 : end].decode(), end
