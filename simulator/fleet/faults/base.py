"""What a fault is: when, whom, and what it does, with the truth about it.

A fault has two halves. Its settings are part of the scenario (``kind`` and keys of its own); the fault is made of them
for one run, whose begin it knows. Which devices it concerns is a hash of each device, so that every worker and every
later reader of the record comes to the same ones.

What a fault does to a device is in the hooks of :class:`~simulator.fleet.models.fault_hooks.FaultHooks` that it
implements; faults of the network and of keys have hooks of their own (:mod:`simulator.fleet.faults.link`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar, get_args
from zlib import crc32

from simulator.fleet.models.condition import Condition
from simulator.fleet.models.fault_hooks import FaultHooks
from simulator.fleet.record import Span
from simulator.fleet.settings import Delay, Seconds, Section, Share, key
from simulator.fleet.signals.base import Individual, salt_of

NAMES_KEPT: Final = 100_000
"""So many concerned devices are named in the truth; the hash finds the others."""


class FaultBasis(Section):
    """What the settings of every fault have; each kind narrows ``kind`` to its word."""

    kind: str
    name: str = key("what the report calls it; without it, its kind", default="", max_length=64)
    at_s: Delay = key("when it begins, since the run's begin", unit="s")
    share: Share = key("which part of the devices it concerns, by hash", default=1.0)


class LastingBasis(FaultBasis):
    """A fault that begins and ends."""

    duration_s: Seconds = key("how long it lasts", unit="s")


Settings = TypeVar("Settings", bound=FaultBasis)


class DeviceFault(FaultHooks, Generic[Settings]):
    """A fault of devices that concerns some of them for some time, and does nothing yet.

    Args:
        settings: of the scenario.
        origin_s: the run's begin, seconds since the epoch.
        number: its place among the scenario's faults, so that two of a kind choose different devices.
    """

    def __init__(self, settings: Settings, origin_s: float, number: int = 0) -> None:
        self.settings = settings
        self.begin_s = origin_s + settings.at_s
        duration_s: float = getattr(settings, "duration_s", 0.0)
        self.end_s = self.begin_s + duration_s if duration_s else float("inf")
        self._origin_s = origin_s
        self._share_salt = salt_of("fault", str(number), settings.kind, "share")
        self.salt = salt_of("fault", str(number), settings.kind)

    @property
    def kind(self) -> str:
        """The fault's name in scenarios."""
        return self.settings.kind

    def chooses(self, device: Individual) -> bool:
        """Whether the fault concerns this device."""
        share = self.settings.share
        # Not the cheap fraction(): that of another salt goes with it, and who is chosen would all have one moment.
        return share >= 1.0 or device.uniform(self._share_salt, 0) < share

    def acts(self, device: Individual, time_s: float) -> bool:
        """Whether the fault concerns this device at this time."""
        return self.begin_s <= time_s < self.end_s and self.chooses(device)

    def happens(self, device: Individual, which: int, often: float) -> bool:
        """Whether the fault strikes one reading or body; ``which`` identifies it, ``often`` is the part of them."""
        return often >= 1.0 or device.uniform(self.salt, which) < often

    def truth(self, devices: Iterable[Individual]) -> Span:
        """What exactly is done, for the record."""
        chosen = [device for device in devices if self.chooses(device)]
        done: dict[str, Any] = self.settings.model_dump(mode="json", exclude={"name", "at_s", "duration_s", "kind"})
        done["devices"] = [device.name for device in chosen[:NAMES_KEPT]]
        if len(chosen) > NAMES_KEPT:
            done["devices_not_named"] = len(chosen) - NAMES_KEPT
        return Span(
            name=self.settings.name or str(getattr(self.settings, "profile", self.kind)),
            kind=self.kind,
            begin_s=self.begin_s - self._origin_s,
            end_s=self.end_s - self._origin_s,
            devices=len(chosen),
            truth=done,
        )

    def bounded(self, device: Individual, time_s: float, condition: Condition) -> Condition:
        """The condition, ending where the fault begins or ends for this device, if that is earlier."""
        if not self.chooses(device):
            return condition
        edges = [edge for edge in (self.begin_s, self.end_s) if edge > time_s]
        return dataclasses.replace(condition, until_s=min([condition.until_s, *edges]))


@dataclasses.dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind of fault.

    Attributes:
        settings, fault: its two halves.
        makes_refusals: it makes bodies that a service may refuse.
        sets_clocks: it makes the clocks of devices wrong.
    """

    settings: type[FaultBasis]
    fault: type[DeviceFault[Any]]
    makes_refusals: bool = False
    sets_clocks: bool = False


REGISTERED: Final[dict[str, FaultKind]] = {}
"""Every kind of fault whose module is imported, by its word."""

AnyFault = TypeVar("AnyFault", bound=DeviceFault[Any])


def register_fault(
    settings: type[FaultBasis], *, makes_refusals: bool = False, sets_clocks: bool = False
) -> Callable[[type[AnyFault]], type[AnyFault]]:
    """Make a class a kind of fault that scenarios can name; a decorator.

    Args:
        settings: of the scenario; its ``kind`` is a ``Literal`` of one word.
        makes_refusals: it makes bodies that a service may refuse.
        sets_clocks: it makes the clocks of devices wrong.

    Raises:
        ValueError: the word is taken.
    """
    (word,) = get_args(settings.model_fields["kind"].annotation)

    def register(fault: type[AnyFault]) -> type[AnyFault]:
        if word in REGISTERED:
            raise ValueError(f"two faults are called {word!r}")
        REGISTERED[word] = FaultKind(settings, fault, makes_refusals, sets_clocks)
        return fault

    return register


def checksum(content: bytes) -> int:
    """The checksum of a body: a body that is sent again is treated the same again."""
    return crc32(content)
