"""Profile ``json``: ``{"v":1,"product_id":...,"device_identifier":...,"sig"?:...}``."""

from __future__ import annotations

import json
from typing import Any

from agent.errors import InvalidMessage, InvalidQr
from agent.wire.encoding import find_fault, parse_json
from simulator.wire.limits import QR_BYTES
from simulator.wire.qr.label import JSON, VERSION, LabelText


def write(label: LabelText) -> str:
    """The text, compact, the same for the same label; what is beyond ASCII is escaped, since readers guess at it.

    Raises:
        InvalidQr: a value has no JSON form.
    """
    members: dict[str, Any] = {
        "v": VERSION,
        "product_id": label.product_id,
        "device_identifier": label.device_identifier,
    }
    if label.sig is not None:
        members["sig"] = label.sig
    fault = find_fault(members)
    if fault is not None:
        raise InvalidQr("wrong_type", fault)
    return json.dumps(members, separators=(",", ":"))


def read(raw: bytes) -> LabelText:
    """The label in the text; its values are not checked yet.

    Raises:
        InvalidQr: ``not_json``, ``not_an_object``, ``unknown_version``, ``missing_field`` or ``wrong_type``.
    """
    try:
        members = parse_json(raw, max_bytes=QR_BYTES)
    except InvalidMessage as exc:
        raise InvalidQr("not_json", f"the QR text is not a device label: {exc}") from None
    if not isinstance(members, dict):
        raise InvalidQr("not_an_object", "the QR text is JSON, but not the object that a device label holds")
    version = members.get("v", VERSION)
    if type(version) is not int or version != VERSION:
        raise InvalidQr("unknown_version", f"the label has version {version!r:.20}; this program reads version 1")
    for name in ("product_id", "device_identifier"):
        if members.get(name) is None:
            raise InvalidQr("missing_field", f"the label lacks {name!r}")
        if not isinstance(members[name], str):
            raise InvalidQr("wrong_type", f"{name!r} in the label must be text, and not empty")
    sig = members.get("sig")
    if sig is not None and not isinstance(sig, str):
        raise InvalidQr("wrong_type", "'sig' in the label must be text, and not empty")
    return LabelText(members["product_id"], members["device_identifier"], sig, JSON)
