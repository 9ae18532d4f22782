"""Outages that a plan contains, faults apart: which devices have no power or no connection when, for a person."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from simulator.fleet.plan.plan import Plan
from simulator.fleet.plan.power import Losses, Switching, contact_of, power_of, storms_of
from simulator.fleet.scenario.conditions import parse_condition

_ONLINE: Final = "online"
_PLAYED: Final = frozenset({"load", "command_round_trip"})
"""Kinds whose devices are switched on and off while the phases last."""


@dataclass(frozen=True, slots=True)
class OutageForecast:
    """What takes the power or the connection of devices while the phases last.

    Attributes:
        cause: such as ``battery of pump`` or ``storm wave (power)``.
        devices: how many of them it meets at least once.
        times: how often, over all devices.
        first_s: when it begins for the first time.
        away_s: how long it lasts, on average; what reaches beyond the last phase counts until its end.
    """

    cause: str
    devices: int
    times: int
    first_s: float
    away_s: float


def outages_of(plan: Plan) -> tuple[OutageForecast, ...]:
    """The causes that there are, in the order of their first time; without waits at barriers."""
    scenario, timeline = plan.scenario, plan.timeline
    if scenario.kind not in _PLAYED:
        return ()
    whole = range(scenario.fleet.devices)
    storms = (each for loss in ("power", "connection") for each in storms_of(scenario, timeline, whole, loss))
    found = (_summed(each, timeline.end_s) for each in (*storms, *plan.own_losses(whole)))
    return tuple(sorted(filter(None, found), key=lambda each: (each.first_s, each.cause)))


def barrier_notes(plan: Plan) -> Iterator[str]:
    """A sentence for each barrier on ``online`` that does not hold at the planned end of its phase."""
    scenario = plan.scenario
    if scenario.kind not in _PLAYED:
        return
    whole, count = range(scenario.fleet.devices), scenario.fleet.devices
    power = power_of(scenario, plan.timeline, whole, plan.own_losses(whole))
    contact = contact_of(scenario, plan.timeline, whole)
    for span in plan.timeline.spans:
        phase = scenario.phases[span.index]
        if phase.until is None:
            continue
        online = _online_at(power, contact, span.end_s, count)
        wanted = [each for each in parse_condition(phase.until).comparisons if each.gauge == _ONLINE]
        if not all(each.holds({_ONLINE: online}, count) for each in wanted):
            yield (
                f"at the planned end of phase {span.name} {online:,} of {count:,} devices have power and a connection: "
                f"{phase.until!r} waits, for at most {phase.until_within_s:g} s, until enough of them are back"
            )


def _online_at(power: Switching, contact: Switching, at_s: float, count: int) -> int:
    device, time_s = np.arange(count, dtype=np.int64), np.full(count, at_s)
    return int(np.count_nonzero(power.on_at(device, time_s) & contact.on_at(device, time_s)))


def _summed(losses: Losses, end_s: float) -> OutageForecast | None:
    inside = losses.since_s < end_s
    if not inside.any():
        return None
    since_s = losses.since_s[inside]
    away_s = np.minimum(losses.until_s[inside], end_s) - since_s
    devices = len(np.unique(losses.device[inside]))
    return OutageForecast(losses.cause, devices, len(since_s), float(since_s.min()), float(away_s.mean()))
