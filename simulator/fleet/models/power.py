"""When a device has no power by itself: its battery is empty, or it is in a state in which it is off."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from simulator.fleet.models.condition import PowerLoss
from simulator.fleet.signals.base import Individual
from simulator.fleet.signals.chain import Chain
from simulator.fleet.signals.kinds.battery import Battery, BatteryState


@dataclass(frozen=True, slots=True)
class Supply:
    """One source of power losses at one instant, from ``since_s`` until before ``until_s``.

    Attributes:
        off: whether it takes the power.
        restored_s: when it gave the power back the last time; its end while it takes it.
        state: of a state machine.
    """

    off: bool
    since_s: float
    until_s: float
    restored_s: float
    state: str = ""


class PowerSource(Protocol):
    """Something that takes a device's power from time to time."""

    @property
    def loss(self) -> PowerLoss:
        """Why a device is off when this source takes the power."""
        ...

    def supply_at(self, device: Individual, time_s: float) -> Supply:
        """The supply at ``time_s``."""
        ...


def losses(source: PowerSource, device: Individual, to_s: float) -> Iterator[Supply]:
    """When a source takes the power, from 0 until before ``to_s``; the first may have begun before."""
    at_s = 0.0
    while at_s < to_s:
        supply = source.supply_at(device, at_s)
        if supply.off:
            yield supply
        at_s = supply.until_s


@dataclass(frozen=True, slots=True)
class EmptyBattery:
    """A battery that takes the power while it is dead."""

    battery: Battery
    loss: PowerLoss = PowerLoss.BATTERY

    def supply_at(self, device: Individual, time_s: float) -> Supply:
        """The supply at ``time_s``. See :class:`PowerSource`."""
        moment = self.battery.moment_at(device, time_s)
        battery = self.battery
        match moment.state:
            case BatteryState.DEAD:
                return Supply(True, moment.since_s, moment.until_s, moment.until_s)
            case BatteryState.CHARGING:
                return Supply(False, moment.since_s, moment.until_s, moment.since_s)
            case BatteryState.DISCHARGING:
                restored_s = moment.since_s - battery.charge_s
                return Supply(False, moment.since_s, moment.until_s, restored_s)


@dataclass(frozen=True, slots=True)
class StateMachine:
    """States, some of which a device is off in.

    Attributes:
        unpowered: those.
    """

    chain: Chain
    unpowered: frozenset[str]
    loss: PowerLoss = PowerLoss.STATE

    def supply_at(self, device: Individual, time_s: float) -> Supply:
        """The supply at ``time_s``. See :class:`PowerSource`."""
        stay = self.chain.interval_at(device, time_s)
        off = stay.state in self.unpowered
        # A machine without such states never takes the power, so it never gives it back.
        restored_s = stay.settled_s if self.unpowered else -math.inf
        return Supply(off, stay.since_s, stay.until_s, restored_s, stay.state)
