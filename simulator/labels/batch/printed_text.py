"""What is printed beside the code of a label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from simulator.labels.errors import LabelError


class NamedLabel(Protocol):
    """A label that is made, or still to be made."""

    @property
    def identifier(self) -> str:
        """The device's identifier."""
        ...

    @property
    def product_id(self) -> str:
        """The id of the device's product."""
        ...

    @property
    def serial(self) -> int:
        """The label's number in its batch."""
        ...

    @property
    def name(self) -> str:
        """The device's name."""
        ...


def printed_lines(columns: Sequence[str], label: NamedLabel) -> tuple[str, ...]:
    """The text of a label, line by line.

    Args:
        columns: what is printed, in this order: the words of ``--text``.
        label: whose.

    Raises:
        LabelError: a word that labels do not have.
    """
    known = {
        "identifier": label.identifier,
        "product_id": label.product_id,
        "serial": str(label.serial),
        "name": label.name,
    }
    for name in columns:
        if name not in known:
            raise LabelError(f"no column {name!r} for --text: there is {', '.join(known)}")
    return tuple(known[name] for name in columns)
