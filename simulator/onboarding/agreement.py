"""Whether an answer about a device agrees with its label, its user and earlier answers: one judge for every command.

A member that an answer leaves out contradicts nothing; a member that it has is what is known, to the letter.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from agent.wire.answers import one_line
from agent.wire.models import Device
from simulator.wire.models import ScanAnswer

MEMBERS: Final = ("device_identifier", "product_id", "user_id", "device_id", "device_name")
"""What is judged of a device record, in this order: specification, "Device registration" and "Device"."""
_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a device before an answer about it; an empty member is not known and not judged.

    Attributes:
        device_identifier, product_id: from the label, or as they were registered.
        user_id: whom it is registered for, or whose list is read.
        device_id: from an earlier answer.
        device_name: as it was registered.
    """

    device_identifier: str
    product_id: str
    user_id: str = ""
    device_id: str = ""
    device_name: str = ""


def contradictions(known: Known, device: Device) -> tuple[str, ...]:
    """One text for each member in which a record differs: its name, what was expected, what was found."""
    pairs = ((member, getattr(known, member), getattr(device, member)) for member in MEMBERS)
    return tuple(_text(member, expected, found) for member, expected, found in pairs if _differ(expected, found))


def scan_contradictions(label: Known, shown: ScanAnswer) -> tuple[str, ...]:
    """As :func:`contradictions`, of what a scan showed; ``qr_info`` is opaque but for the label's two members."""
    plain = Device(product_id=shown.product.product_id, device_identifier=shown.device_identifier)
    info = ((member, getattr(label, member), shown.qr_info.get(member)) for member in MEMBERS[:2])
    return (
        *contradictions(label, plain),
        *(_text(f"qr_info.{member}", expected, found) for member, expected, found in info if _differ(expected, found)),
    )


def is_same(known: Known, device: Device, of_others: Collection[str] = ()) -> bool:
    """Whether a listed record is this device.

    Args:
        known: the device.
        device: the record.
        of_others: ids that earlier answers gave to other devices; one of them is not this device.
    """
    if known.device_id and device.device_id == known.device_id:
        return True
    if device.device_id in of_others:
        return False
    is_named = device.device_identifier == known.device_identifier
    return is_named and (device.product_id or known.product_id) == known.product_id


def _differ(expected: str, found: object) -> bool:
    """A number that reads the same is the same: other servers have ids that are numbers."""
    return bool(expected) and found is not None and str(found) not in {"", expected}


def _text(member: str, expected: str, found: object) -> str:
    return f"{member}: expected {_quoted(expected)}, found {_quoted(found)}"


def _quoted(value: object) -> str:
    text = one_line(str(value))
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
