"""The text of a code out of product and identifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from agent.errors import InvalidQr
from simulator.labels.errors import LabelError
from simulator.wire.qr import LabelText
from simulator.wire.qr.keys import LabelSigner, signed_text
from simulator.wire.qr.label import COMPACT, JSON, LINK
from simulator.wire.qr.link_form import host_fault

PROFILES: Final = (JSON, LINK, COMPACT)
"""The profiles; ``json`` is the default (docs/labels.md, "Payload")."""


@dataclass(frozen=True, slots=True)
class Payload:
    """A profile with all that it needs to write labels.

    Attributes:
        name: of the profile.
        host: where links lead; empty for other profiles.
        signer: the product's key; None for unsigned labels.
    """

    name: str = JSON
    host: str = ""
    signer: LabelSigner | None = None

    def text(self, product_id: str, device_identifier: str) -> str:
        """The text of one label's code.

        Args:
            product_id: the product that the device belongs to.
            device_identifier: unique among the devices of the product.

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


def open_payload(name: str = JSON, *, host: str = "", signer: LabelSigner | None = None) -> Payload:
    """The profile of this name, ready to write.

    Args:
        name: one of :data:`PROFILES`.
        host: where links lead, such as ``onboard.example.com`` or ``127.0.0.1:8080``; made lower case.
        signer: the key that the product's ``label_key`` names.

    Raises:
        LabelError: no such profile, or it lacks the host or has no use for one.
    """
    if name not in PROFILES:
        raise LabelError(f"no payload profile {name!r}: there is {', '.join(PROFILES)}")
    if name != LINK and host:
        raise LabelError(f"--link-host is for the profile link; {name} has no host: leave it out, or take link")
    if name == LINK:
        fault = host_fault(host.lower()) if host else "the profile link needs the host that it leads to"
        if fault is not None:
            raise LabelError(f"{fault}: give --link-host, such as onboard.example.com")
    return Payload(name, host.lower(), signer)


def label_text(product_id: str, device_identifier: str, profile: str = JSON) -> str:
    """The text of one unsigned label's code, in a profile that needs nothing else.

    Raises:
        LabelError: no such profile, or a label cannot carry these values.
    """
    return open_payload(profile).text(product_id, device_identifier)
