"""Bodies that are not JSON: cut off, with bytes flipped, or in another encoding."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from simulator.fleet.faults.base import DeviceFault, LastingBasis, checksum, register_fault
from simulator.fleet.models.fault_hooks import Body
from simulator.fleet.settings import Share, key
from simulator.fleet.signals.base import Individual, salt_of


class BrokenJsonSettings(LastingBasis):
    """Bodies of readings are spoiled on their way out."""

    kind: Literal["broken_json"]
    often: Share = key("which part of the bodies, by hash", default=0.05)
    how: Literal["cut", "bytes", "utf16", "python"] = key(
        "`cut`: the end is missing; `bytes`: a byte is no UTF-8; `utf16`: another encoding; `python`: quotes as "
        "Python's `str()` writes them",
        default="cut",
    )


@register_fault(BrokenJsonSettings, makes_refusals=True)
class BrokenJson(DeviceFault[BrokenJsonSettings]):
    """Applies :class:`BrokenJsonSettings` to the devices of one run."""

    def bodies(self, device: Individual, time_s: float, body: Body) -> Sequence[Body]:
        """The body that is sent instead: broken JSON."""
        which = checksum(body.content)
        if not self.acts(device, time_s) or not self.happens(device, which, self.settings.often):
            return (body,)
        place = int(device.uniform(salt_of("broken_json", self.salt.hex()), which) * (len(body.content) - 1)) + 1
        return (dataclasses.replace(body, content=self._broken(body.content, place)),)

    def _broken(self, content: bytes, place: int) -> bytes:
        match self.settings.how:
            case "cut":
                return content[: min(place, len(content) - 1)]
            case "bytes":
                return content[:place] + b"\xff" + content[place:]
            case "utf16":
                return content.decode("utf-8", errors="replace").encode("utf-16")
            case "python":
                return content.replace(b'"', b"'")
