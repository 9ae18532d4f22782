"""Requests that go out more than once.

A copy with the same idempotency key is answered and stored once by a service with ``idempotency-key``. One with a key
of its own is a new reading for every service: an audit has to find it doubled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from simulator.fleet.faults.base import DeviceFault, LastingBasis, checksum, register_fault
from simulator.fleet.models.fault_hooks import Body
from simulator.fleet.settings import Delay, Share, key
from simulator.fleet.signals.base import Individual


class DuplicatesSettings(LastingBasis):
    """Bodies of readings are sent again, although they arrived."""

    kind: Literal["duplicates"]
    often: Share = key("which part of the bodies, by hash", default=0.1)
    copies: Annotated[int, Field(ge=1, le=100)] = key("how many more of each", default=1)
    delay_s: Delay = key("how long after the first, and after each other", unit="s", default=0.0)
    idempotency_key: Literal["same", "fresh"] = key("whether a copy has the key of the first", default="same")


@register_fault(DuplicatesSettings)
class Duplicates(DeviceFault[DuplicatesSettings]):
    """Applies :class:`DuplicatesSettings` to the devices of one run."""

    def bodies(self, device: Individual, time_s: float, body: Body) -> Sequence[Body]:
        """The body and its copies."""
        settings = self.settings
        if not self.acts(device, time_s) or not self.happens(device, checksum(body.content), settings.often):
            return (body,)
        same = settings.idempotency_key == "same"
        copies = [
            Body(body.content, body.delay_s + number * settings.delay_s, same_key=same)
            for number in range(1, settings.copies + 1)
        ]
        return (body, *copies)
