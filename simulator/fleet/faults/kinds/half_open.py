"""Half-open connections: the other end is gone and nobody says so, so requests wait until the patience ends."""

from __future__ import annotations

from typing import Literal

from simulator.fleet.faults.base import LastingBasis, register_fault
from simulator.fleet.faults.link import FREE, LinkFault, Passage
from simulator.fleet.settings import Share, key
from simulator.fleet.signals.base import Individual


class HalfOpenSettings(LastingBasis):
    """No answer comes; whether the request arrived is left to chance, and the device cannot know."""

    kind: Literal["half_open"]
    arrives: Share = key("the part of the requests that still arrive", default=0.0)


@register_fault(HalfOpenSettings)
class HalfOpen(LinkFault[HalfOpenSettings]):
    """Applies :class:`HalfOpenSettings` to the devices of one run."""

    def passage(self, device: Individual, which: int, time_s: float, size_bytes: int) -> Passage:
        """No answer."""
        del size_bytes
        if not self.acts(device, time_s):
            return FREE
        arrives = self.happens(device, which, self.settings.arrives) if self.settings.arrives else False
        return Passage(answer_lost=True) if arrives else Passage(request_lost=True)
