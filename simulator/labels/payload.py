"""What a label says: the text of its code, out of product and identifier, and the lines beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.errors import ConfigurationError, InvalidQr
from simulator.labels.errors import LabelError
from simulator.wire.qr import LabelText
from simulator.wire.qr.keys import LabelSigner, read_label_signer, signed_text
from simulator.wire.qr.label import COMPACT, JSON, LINK
from simulator.wire.qr.link_form import host_fault

PROFILES: Final = (JSON, LINK, COMPACT)
"""The forms of the text; ``json`` is the default (docs/labels.md, "Payload")."""


@dataclass(frozen=True, slots=True)
class Payload:
    """A profile with all that it needs to write labels.

    Attributes:
        name: of the profile.
        host: where links lead; empty for other profiles.
        signer: the product's key; None for unsigned labels.

    Raises:
        LabelError: no such profile, or it lacks the host or has no use for one.
    """

    name: str = JSON
    host: str = ""
    signer: LabelSigner | None = None

    def __post_init__(self) -> None:
        if self.name not in PROFILES:
            raise LabelError(f"no payload profile {self.name!r}: there is {', '.join(PROFILES)}")
        if self.name != LINK and self.host:
            raise LabelError(f"the profile {self.name} has no host: leave it out, or take link:{self.host}")
        if self.name == LINK:
            fault = host_fault(self.host) if self.host else "the profile link needs the host that it leads to"
            if fault is not None:
                raise LabelError(f"{fault}: give link:HOST, such as link:onboard.example.com")

    def text(self, product_id: str, device_identifier: str) -> str:
        """The text of one label's code.

        Raises:
            LabelError: a label cannot carry these values.
        """
        label = LabelText(product_id, device_identifier, profile=self.name, host=self.host)
        try:
            return signed_text(label, self.signer)
        except InvalidQr as problem:
            raise LabelError(
                f"no label for product {product_id!r}, identifier {device_identifier!r}: {problem}"
            ) from None

    @property
    def described(self) -> dict[str, Any]:
        """What distinguishes these labels from others, for a manifest. No secret."""
        described: dict[str, Any] = {"profile": self.name}
        if self.host:
            described["link_host"] = self.host
        if self.signer is not None:
            described["signed_by"] = self.signer.key.shown
        return described


def open_payload(profile: str, sign_key_file: Path | None = None) -> Payload:
    """The profile that a command line asks for.

    Args:
        profile: ``json``, ``compact``, or ``link:`` and the host that links lead to.
        sign_key_file: holds the key that signs (``labels keygen``).

    Raises:
        LabelError: there is none, or the key cannot be read.
    """
    name, _, host = profile.partition(":")
    try:
        signer = read_label_signer(sign_key_file) if sign_key_file else None
    except ConfigurationError as problem:
        raise LabelError(problem.in_one_line) from None
    return Payload(name, host.lower(), signer)


def label_text(product_id: str, device_identifier: str, profile: str = JSON) -> str:
    """The text of one unsigned label's code; ``profile`` as :func:`open_payload` takes it.

    Raises:
        LabelError: no such profile, or a label cannot carry these values.
    """
    return open_payload(profile).text(product_id, device_identifier)


@dataclass(frozen=True, slots=True)
class LabelOrder:
    """One label that is to be made.

    Attributes:
        serial: the number that its identifier was made from; of a table its place there, from 1.
        identifier: the ``device_identifier``.
        product_id: the product it belongs to.
        name: a line for people, printed beside the code; may be empty.
        text: what the code says.
    """

    serial: int
    identifier: str
    product_id: str
    name: str
    text: str

    @property
    def printed(self) -> tuple[str, ...]:
        """What is printed beside the code, line by line; the first is large."""
        return tuple(line for line in (self.identifier, self.name, self.product_id) if line)
