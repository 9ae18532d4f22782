"""What is broken on purpose: the keys that every fault has, whatever its kind."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from simulator.fleet.settings import Delay, Section, Share


class FaultSettings(Section):
    """A fault; its ``kind`` decides which other keys it takes."""

    model_config = ConfigDict(extra="allow")

    kind: str = Field(min_length=1, description="Which fault.")
    at_s: Delay = Field(description="When it begins, since the begin of the first phase.")
    duration_s: Delay = Field(default=0.0, description="How long it lasts; 0 for what happens in one instant.")
    share: Share = Field(default=1.0, description="Share of the fleet that it concerns.")
