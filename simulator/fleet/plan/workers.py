"""How many processes a run takes: one answer for the plan that is printed and for the run."""

from __future__ import annotations

import math
import os
from typing import Final

from simulator.fleet.scenario.kinds import BackfillSettings
from simulator.fleet.scenario.model import AUTO, Scenario

_DEVICES_OF_ONE_WORKER: Final = 2_500
_HISTORY_OF_ONE_WORKER: Final = 250_000
"""Readings: some ten seconds of a core, against a target that takes them as fast as they come."""


def count_workers(scenario: Scenario, cores: int | None = None) -> int:
    """How many processes make the load.

    Args:
        scenario: to be run.
        cores: of this machine, for ``workers: auto``; None asks the machine.
    """
    if scenario.kind not in {"load", "command_round_trip", "backfill"}:
        return 1
    if scenario.workers != AUTO:
        return min(int(scenario.workers), scenario.fleet.devices)
    # Each has a connection at least.
    most = min(scenario.fleet.devices, scenario.target.pool) if scenario.target.is_pooled else scenario.fleet.devices
    if cores is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if scenario.kind == "backfill":
        wanted = math.ceil(_readings_of_history(scenario) / _HISTORY_OF_ONE_WORKER)
        return max(1, min(cores, wanted, most))
    return max(1, min(cores, -(-scenario.fleet.devices // _DEVICES_OF_ONE_WORKER), most))


def _readings_of_history(scenario: Scenario) -> float:
    """About how many there are, were all devices those that read most often."""
    settings = scenario.backfill or BackfillSettings()
    fastest_s = min(model.telemetry.every_s for model in scenario.fleet.models)
    return scenario.fleet.devices * settings.history_s / fastest_s
