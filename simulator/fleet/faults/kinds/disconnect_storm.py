"""All connections are gone at once, as when an access point restarts; all come back together, once or in waves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from simulator.fleet.faults.base import LastingBasis, register_fault
from simulator.fleet.faults.link import LinkFault
from simulator.fleet.settings import Seconds, key
from simulator.fleet.signals.base import Individual


class DisconnectStormSettings(LastingBasis):
    """Links go down in one instant and are up again in one instant."""

    kind: Literal["disconnect_storm"]
    waves: Annotated[int, Field(ge=1, le=1000)] = key("how many times, evenly over the fault", default=1)
    away_s: Seconds = key("how long each wave keeps them away", unit="s", default=1.0)


@register_fault(DisconnectStormSettings)
class DisconnectStorm(LinkFault[DisconnectStormSettings]):
    """Applies :class:`DisconnectStormSettings` to the devices of one run."""

    def away(self, device: Individual) -> Sequence[tuple[float, float]]:
        """When the device is disconnected: once in each wave."""
        if not self.chooses(device):
            return ()
        every_s = self.settings.duration_s / self.settings.waves
        begins = [self.begin_s + wave * every_s for wave in range(self.settings.waves)]
        return [(begin_s, begin_s + min(self.settings.away_s, every_s)) for begin_s in begins]
