"""Keys that the service does not take any more, for a while."""

from __future__ import annotations

from typing import Literal

from simulator.fleet.faults.base import LastingBasis, register_fault
from simulator.fleet.faults.link import FREE, LinkFault, LinkPassage
from simulator.fleet.signals.base import Individual

_WRONG = LinkPassage(wrong_key=True)


class RevokedKeysSettings(LastingBasis):
    """The service answers 401 to these devices until it is over: they speak with a key that is not valid."""

    kind: Literal["revoked_keys"]


@register_fault(RevokedKeysSettings)
class RevokedKeys(LinkFault[RevokedKeysSettings]):
    """Applies :class:`RevokedKeysSettings` to the devices of one run."""

    def passage(self, device: Individual, which: int, time_s: float, size_bytes: int) -> LinkPassage:
        """With a wrong key."""
        del which, size_bytes
        return _WRONG if self.acts(device, time_s) else FREE
