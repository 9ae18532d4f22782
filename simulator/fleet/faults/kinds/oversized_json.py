"""Bodies that are larger than any service takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import Field

from agent.wire.limits import BODY_BYTES
from simulator.fleet.faults.base import DeviceFault, LastingBasis, checksum, register_fault
from simulator.fleet.models.fault_hooks import Body
from simulator.fleet.settings import Share, key
from simulator.fleet.signals.base import Individual

_MOST: Final = 64 * 1024 * 1024


class OversizedJsonSettings(LastingBasis):
    """Bodies of readings are blown up with blanks: valid JSON, and far too much of it."""

    kind: Literal["oversized_json"]
    often: Share = key("which part of the bodies, by hash", default=0.05)
    size_bytes: Annotated[int, Field(gt=0, le=_MOST)] = key("how large they get", unit="bytes", default=BODY_BYTES + 1)


@register_fault(OversizedJsonSettings, makes_refusals=True)
class OversizedJson(DeviceFault[OversizedJsonSettings]):
    """Applies :class:`OversizedJsonSettings` to the devices of one run."""

    def bodies(self, device: Individual, time_s: float, body: Body) -> Sequence[Body]:
        """The body with blanks behind it."""
        settings = self.settings
        if not self.acts(device, time_s) or not self.happens(device, checksum(body.content), settings.often):
            return (body,)
        content = body.content.ljust(settings.size_bytes)
        return (dataclasses.replace(body, content=content),)
