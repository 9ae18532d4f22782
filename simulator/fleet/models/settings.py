"""What a device model may have beside its signals: firmware, reboots and a clock of its own."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from simulator.fleet.settings import Delay, Seconds, Section, Share, key

Version = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]
Weight = Annotated[float, Field(gt=0)]


class FirmwareSettings(Section):
    """Which firmware devices have, and how an update goes (command ``update_firmware`` with ``version``)."""

    versions: dict[Version, Weight] = key(
        "versions that devices leave the factory with, and their weights", min_length=1, max_length=50
    )
    update_s: Seconds = key("how long an update takes, with the restart at its end", unit="s", default=60.0)
    failure_share: Share = key("which part of the updates fails and leaves the old version", default=0.0)


class RebootSettings(Section):
    """Devices lose their power now and then."""

    every_s: Seconds = key("mean time between two power losses of one device", unit="s")
    away_s: Seconds = key("how long it is gone", unit="s", default=10.0)

    @model_validator(mode="after")
    def _check_away(self) -> Self:
        if self.away_s > self.every_s / 2:
            raise ValueError(f"away_s ({self.away_s:g}) is more than half of every_s ({self.every_s:g})")
        return self


class ClockSettings(Section):
    """The device's own wall clock."""

    offset_s: Delay = key("standard deviation of how far clocks are off, either way", unit="s", default=0.0)
    drift_ppm: float = key(
        "standard deviation of how fast they run, in millionths; 20 are 1.7 s a day", ge=0, le=100_000, default=0.0
    )
    set_every_s: Seconds | None = key(
        "how often the clock is set, which ends what it drifted since; without it, at the run's begin",
        unit="s",
        default=None,
    )
