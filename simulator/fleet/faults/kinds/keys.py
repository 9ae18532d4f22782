"""Keys that the service does not take any more: revoked for a while, or rotated and handed out late."""

from __future__ import annotations

from typing import Literal

from simulator.fleet.faults.base import LastingBasis, register_fault
from simulator.fleet.faults.link import FREE, LinkFault, LinkPassage
from simulator.fleet.signals.base import Individual, salt_of

_LEARNED = salt_of("fault", "rotated_keys", "told")
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


class RotatedKeysSettings(LastingBasis):
    """Keys are rotated at its begin; each device learns its new one at a hashed moment until its end."""

    kind: Literal["rotated_keys"]


@register_fault(RotatedKeysSettings)
class RotatedKeys(LinkFault[RotatedKeysSettings]):
    """Applies :class:`RotatedKeysSettings` to the devices of one run."""

    def passage(self, device: Individual, which: int, time_s: float, size_bytes: int) -> LinkPassage:
        """With the old key until this device gets the new one."""
        del which, size_bytes
        learned_s = self.begin_s + self.settings.duration_s * device.uniform(_LEARNED, 0)
        return _WRONG if self.acts(device, time_s) and time_s < learned_s else FREE
