"""The text in a QR label, profile ``json``: ``{"v":1,"product_id":...,"device_identifier":...,"sig"?:...}``."""

from __future__ import annotations

from typing import Any, Final

from agent.errors import InvalidMessage, InvalidQr
from agent.frozen import dataclass
from agent.wire.json_text import encode_json, parse_json
from agent.wire.limits import QR_BYTES

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class LabelText:
    """What a label says.

    Attributes:
        product_id: the product of the device.
        device_identifier: the device's unique identifier, such as a serial number.
        sig: signature by the product's ``label_key``, text; None on an unsigned label.
    """

    product_id: str
    device_identifier: str
    sig: str | None = None


def encode_label(label: LabelText) -> str:
    """The label's text, compact, the same for the same label.

    Raises:
        InvalidQr: a member is empty, has NUL or a lone surrogate, or the text exceeds 4 KiB.
    """
    members: dict[str, Any] = {
        "v": VERSION,
        "product_id": label.product_id,
        "device_identifier": label.device_identifier,
    }
    if label.sig is not None:
        members["sig"] = label.sig
    try:
        raw = encode_json(members)
    except InvalidMessage as exc:
        raise InvalidQr("wrong_type", str(exc)) from None
    _check_size(len(raw))
    _read_members(members)
    return raw.decode()


def parse_label(text: str) -> LabelText:
    """The label that a scanned text is.

    Unknown members are ignored, so that later labels stay readable.

    Raises:
        InvalidQr: ``empty``, ``too_large``, ``not_json``, ``not_an_object``, ``unknown_version``, ``missing_field``
            or ``wrong_type``, with a sentence for a person.
    """
    if not text.strip():
        raise InvalidQr("empty", "the QR text is empty")
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise InvalidQr("not_json", "the QR text contains a lone surrogate") from None
    _check_size(len(raw))
    try:
        members = parse_json(raw, max_bytes=QR_BYTES)
    except InvalidMessage as exc:
        raise InvalidQr("not_json", f"the QR text is not a device label: {exc}") from None
    if not isinstance(members, dict):
        raise InvalidQr("not_an_object", "the QR text is JSON, but not the object that a device label holds")
    return _read_members(members)


def _check_size(size: int) -> None:
    if size > QR_BYTES:
        raise InvalidQr("too_large", f"{size} bytes of QR text are more than the limit of {QR_BYTES}")


def _read_members(members: dict[str, Any]) -> LabelText:
    version = members.get("v", VERSION)
    if isinstance(version, bool) or version != VERSION:
        raise InvalidQr("unknown_version", f"the label has version {version!r:.20}; this program reads version 1")
    for name in ("product_id", "device_identifier"):
        if members.get(name) is None:
            raise InvalidQr("missing_field", f"the label lacks {name!r}")
        if not isinstance(members[name], str) or not members[name].strip():
            raise InvalidQr("wrong_type", f"{name!r} in the label must be text, and not empty")
    sig = members.get("sig")
    if sig is not None and not (isinstance(sig, str) and sig):
        raise InvalidQr("wrong_type", "'sig' in the label must be text, and not empty")
    return LabelText(members["product_id"], members["device_identifier"], sig)
