"""TLS that fails, as with an expired certificate: the device refuses to speak, and nothing goes out.

Made at the device's end: the certificate of the target is not touched.
"""

from __future__ import annotations

from typing import Literal

from simulator.fleet.faults.base import LastingBasis, register_fault
from simulator.fleet.faults.link import FREE, LinkFault, LinkPassage
from simulator.fleet.settings import key
from simulator.fleet.signals.base import Individual


class TlsFailureSettings(LastingBasis):
    """Every handshake fails until it is over."""

    kind: Literal["tls_failure"]
    reason: Literal["certificate has expired", "self-signed certificate", "unknown protocol"] = key(
        "what the handshake fails with", default="certificate has expired"
    )


@register_fault(TlsFailureSettings)
class TlsFailure(LinkFault[TlsFailureSettings]):
    """Applies :class:`TlsFailureSettings` to the devices of one run."""

    def passage(self, device: Individual, which: int, time_s: float, size_bytes: int) -> LinkPassage:
        """How a request fares: it is never sent."""
        del which, size_bytes
        return LinkPassage(refused=f"TLS: {self.settings.reason}") if self.acts(device, time_s) else FREE
