"""The scenario's models as a worker's devices have them, and a preview of what they read.

Built in the worker, since functions do not travel.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from agent.core.poll_interval import PollIntervals
from agent.errors import ConfigurationError
from simulator.fleet.device.model import DeviceModel
from simulator.fleet.models.build import ModelParts, build_model
from simulator.fleet.models.day import SignalDay, signal_days
from simulator.fleet.models.model import Model
from simulator.fleet.plan.plan import Plan
from simulator.fleet.scenario.files import product_of, signals_of_models
from simulator.fleet.scenario.fleet import ModelSettings
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.python_file import Program, load_telemetry, programmed
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.signals.registry import SignalSettings

_DEVICES_SHOWN: Final = 3
_WITHOUT_READINGS: Final = frozenset({"onboarding_storm"})


def build_models(
    scenario: Scenario, folder: Path, origin_s: float, program: Program | None = None
) -> tuple[Model, ...]:
    """The models of a scenario, in its order.

    Args:
        scenario: that has them.
        folder: where files are looked for that have no absolute path.
        origin_s: when what is played once or in step begins; seconds since the epoch.
        program: gives the readings; None where the signals do.

    Raises:
        ConfigurationError: a file cannot be used, or a reading follows one that is not there, or the program is not the
            one that was planned with.
    """
    signals = signals_of_models(scenario, product_of(scenario, folder))
    pairs = zip(scenario.fleet.models, signals, strict=True)
    models = tuple(_build(each, own, folder, origin_s) for each, own in pairs)
    if program is None:
        return models
    telemetry = load_telemetry(program)
    return tuple(programmed(model, telemetry, program.path) for model in models)


def _build(settings: ModelSettings, signals: Mapping[str, SignalSettings], folder: Path, origin_s: float) -> Model:
    # Not the reboots: the plan has those, and its events switch the devices.
    parts = ModelParts(
        name=settings.name,
        signals=signals,
        every_s=settings.telemetry.every_s,
        states=settings.states or {},
        battery=settings.battery,
        firmware=settings.firmware,
        clock=settings.clock,
    )
    return build_model(parts, folder=folder, origin_s=origin_s)


def device_model(settings: ModelSettings, model: Model, *, held: bool, defies: bool) -> DeviceModel:
    """The part of a model that the devices' cores get.

    Args:
        settings: of the scenario.
        model: made of them.
        defies: they do not wait as the service asks them to.
        held: the service holds the polls, so the core's own pace only counts where it cannot.
    """
    every_s = settings.poll.every_s
    return DeviceModel(
        signals=model.signals,
        nature=model if model.states or model.clock or model.firmware else None,
        interval_s=settings.telemetry.every_s,
        in_step=settings.telemetry.phase == "in_step",
        polling=PollIntervals() if held else PollIntervals(every_s, every_s, every_s),
        wait_s=settings.poll.wait_s,
        batch=settings.telemetry.batch,
        defies_limit=defies,
    )


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
