"""A frozen network: connections stay open, packets vanish without an error, and requests wait until their timeout."""

from __future__ import annotations

from typing import Literal

from simulator.fleet.faults.base import LastingBasis, register_fault
from simulator.fleet.faults.link import FREE, LinkFault, LinkPassage
from simulator.fleet.settings import Share, key
from simulator.fleet.signals.base import Individual


class HalfOpenSettings(LastingBasis):
    """The network freezes: connections stay open, and no answer comes until the timeout of each request."""

    kind: Literal["half_open"]
    arrives: Share = key("the part of the requests that still arrive", default=0.0)


@register_fault(HalfOpenSettings)
class HalfOpen(LinkFault[HalfOpenSettings]):
    """Applies :class:`HalfOpenSettings` to the devices of one run."""

    def passage(self, device: Individual, which: int, time_s: float, size_bytes: int) -> LinkPassage:
        """How a request fares: it gets no answer."""
        del size_bytes
        if not self.acts(device, time_s):
            return FREE
        arrives = self.happens(device, which, self.settings.arrives) if self.settings.arrives else False
        return LinkPassage(answer_lost=True) if arrives else LinkPassage(request_lost=True)
