"""Firmware: which version a device left the factory with, and how an update goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from simulator.fleet.signals.base import Individual, salt_of


@dataclass(frozen=True, slots=True)
class FirmwareUpdate:
    """How one update goes.

    Attributes:
        takes_s: from the command's begin until the device is back.
        succeeded: whether it has the new version then; else it has the one from before.
    """

    takes_s: float
    succeeded: bool


@dataclass(frozen=True, slots=True)
class Firmware:
    """A model's firmware.

    Attributes:
        versions: to their weights.
        update_s: how long an update takes.
        failure_share: which part of them fails.
    """

    versions: Mapping[str, float]
    update_s: float = 60.0
    failure_share: float = 0.0
    _salt: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_salt", salt_of("firmware"))

    def factory_version(self, device: Individual) -> str:
        """What the device left the factory with."""
        place = device.fraction(self._salt) * sum(self.versions.values())
        for version, weight in self.versions.items():
            place -= weight
            if place < 0:
                return version
        return list(self.versions)[-1]

    def update(self, device: str, version: str) -> FirmwareUpdate:
        """How an update goes: where it fails on a device, it fails there each time.

        Args:
            device: its id.
            version: the new one.
        """
        chance = Individual(0, device).uniform(salt_of("firmware", "update", version), 0)
        return FirmwareUpdate(self.update_s, chance >= self.failure_share)
