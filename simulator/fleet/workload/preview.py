"""What a scenario's devices would read on the first day, without a run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import numpy as np

from agent.errors import ConfigurationError
from simulator.fleet.models.day import SignalDay, signal_days
from simulator.fleet.plan.plan import Plan
from simulator.fleet.scenario.files import product_of, signals_of_models
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.workload.models import build_models

_DEVICES_SHOWN: Final = 3
_WITHOUT_READINGS: Final = frozenset({"limiter", "onboarding_storm"})


def preview(file: ScenarioFile, plan: Plan, now_s: float) -> tuple[SignalDay, ...]:
    """The first day of each reading of each model, for its first three devices.

    The day begins at 00:00 UTC of today, as if the run began then; that of history begins with it.

    Args:
        file: the scenario.
        plan: of it.
        now_s: seconds since the epoch.

    Raises:
        ConfigurationError: devices of this kind read nothing, or a file cannot be used.
    """
    scenario = file.scenario
    if scenario.kind in _WITHOUT_READINGS:
        raise ConfigurationError([f"kind {scenario.kind} has no devices that read anything"], "--signals")
    midnight = datetime.fromtimestamp(now_s, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    models = build_models(scenario, file.folder, midnight.timestamp() + plan.begin_s, file.program)
    settings = signals_of_models(scenario, product_of(scenario, file.folder))
    days: list[SignalDay] = []
    for number, (model, signals) in enumerate(zip(models, settings, strict=True)):
        units = {name: str(unit) for name, each in signals.items() if (unit := getattr(each, "unit", None))}
        devices = [int(index) for index in np.flatnonzero(plan.models == number)[:_DEVICES_SHOWN]]
        days += signal_days(model, scenario.seed, devices, units)
    return tuple(days)
