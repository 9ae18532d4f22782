"""What a fault of the network does: to one request on its way, or to a device's link for some time.

Times are seconds since the epoch. Everything is a function of the device, the request's number and the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from simulator.fleet.faults.base import DeviceFault, FaultBasis
from simulator.fleet.signals.base import Individual


@dataclass(frozen=True, slots=True)
class ForeignAnswer:
    """An HTTP answer of another server, in the service's place."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class LinkPassage:
    """How one request gets through.

    Attributes:
        request_lost: nothing arrives: over HTTP the device waits until its timeout, over MQTT its connection ends.
        out_s, back_s: how much longer the request and the answer are on their way.
        foreign: the answer of another server, which comes instead.
        wrong_key: it goes out with a secret key that the service does not know.
    """

    request_lost: bool = False
    out_s: float = 0.0
    back_s: float = 0.0
    foreign: ForeignAnswer | None = None
    wrong_key: bool = False

    @property
    def ends_session(self) -> bool:
        """Whether a session over MQTT does not live through it."""
        return self.request_lost or self.foreign is not None or self.wrong_key

    def then(self, other: LinkPassage) -> LinkPassage:
        """Combine two links, one behind the other."""
        return LinkPassage(
            request_lost=self.request_lost or other.request_lost,
            out_s=self.out_s + other.out_s,
            back_s=self.back_s + other.back_s,
            foreign=self.foreign or other.foreign,
            wrong_key=self.wrong_key or other.wrong_key,
        )


FREE: Final = LinkPassage()

Settings = TypeVar("Settings", bound=FaultBasis)


class LinkFault(DeviceFault[Settings], Generic[Settings]):
    """A fault of the network, which does nothing yet."""

    def passage(self, device: Individual, which: int, time_s: float, size_bytes: int) -> LinkPassage:
        """How a request gets through.

        Args:
            device: whose it is.
            which: number of the request, among the device's.
            time_s: now.
            size_bytes: of the request.
        """
        del device, which, time_s, size_bytes
        return FREE

    def away(self, device: Individual) -> Sequence[tuple[float, float]]:
        """When this device has no link at all: begins and ends, ascending; empty for one that it does not concern."""
        del device
        return ()
