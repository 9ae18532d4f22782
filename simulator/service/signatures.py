"""Labels of a product that signs them: checked by its ``label_key`` (:mod:`simulator.wire.qr.keys`)."""

from __future__ import annotations

from agent.errors import InvalidMessage, InvalidSignature
from simulator.service.faults import ServiceFault
from simulator.wire.qr import LabelText
from simulator.wire.qr.keys import LabelKey


def check_signature(label: LabelText, label_key: str | None) -> None:
    """Refuse a label whose product signs its labels and that is not signed, or not by that key.

    A product without ``label_key`` has nothing to check by: its labels are taken signed or not. A key that cannot be
    read, left by an older version of this service, takes none.

    Raises:
        ServiceFault: 400 ``invalid_signature``.
    """
    if label_key is None:
        return
    try:
        LabelKey(label_key).check(label)
    except InvalidSignature as fault:
        raise ServiceFault(400, "invalid_signature", f"{fault} ({fault.reason})") from None
    except InvalidMessage as fault:
        raise ServiceFault(400, "invalid_signature", f"the product's label_key cannot be read: {fault}") from None
