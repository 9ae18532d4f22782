"""QR labels of a test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from simulator.labels.payload import label_text
from simulator.labels.symbol import PrintSize, make_symbol
from simulator.pytest_plugin.account import Account


@dataclass(frozen=True, slots=True)
class Label:
    """A label whose picture was read back.

    Attributes:
        device_identifier: of the device that it is for.
        text: what its code says.
        png: its picture.
        path: the file with the picture.
    """

    device_identifier: str
    text: str
    png: bytes
    path: Path


class Labels:
    """Makes labels for a test.

    Args:
        account: whose products they are for.
        folder: where the pictures go.
    """

    def __init__(self, account: Account, folder: Path) -> None:
        self._account = account
        self._folder = folder
        self._count = 0

    def __call__(
        self, device_identifier: str | None = None, *, product_id: str | None = None, profile: str = "json"
    ) -> Label:
        """Make the label of one device, which is not registered by that.

        Args:
            device_identifier: of the device; made when None.
            product_id: of the account; its own product when None.
            profile: of the text: ``json`` or ``compact``.

        Raises:
            LabelError: a label cannot carry these values.
        """
        self._count += 1
        identifier = device_identifier or f"SN-LABEL-{self._count:04d}"
        text = label_text(product_id or self._account.product_id, identifier, profile)
        symbol = make_symbol(text, PrintSize(size_mm=40))
        path = self._folder / f"label-{self._count:04d}.png"
        path.write_bytes(symbol.png)
        return Label(identifier, text, symbol.png, path)
