"""The scenario's models as a worker's devices have them.

Built in the worker, since functions do not travel.
"""

from __future__ import annotations

from pathlib import Path

from agent.core.poll_interval import PollIntervals
from simulator.fleet.device.model import DeviceModel
from simulator.fleet.models.build import ModelParts, build_model
from simulator.fleet.models.model import Model
from simulator.fleet.scenario.fleet import ModelSettings
from simulator.fleet.scenario.model import Scenario


def build_models(scenario: Scenario, folder: Path, origin_s: float) -> tuple[Model, ...]:
    """The models of a scenario, in its order.

    Args:
        scenario: that has them.
        folder: where files are looked for that have no absolute path.
        origin_s: when what is played once or in step begins; seconds since the epoch.

    Raises:
        ConfigurationError: a file cannot be used.
    """
    return tuple(_build(each, folder, origin_s) for each in scenario.fleet.models)


def _build(settings: ModelSettings, folder: Path, origin_s: float) -> Model:
    # Not the reboots: the plan has those, and its events switch the devices.
    parts = ModelParts(
        name=settings.name,
        signals=settings.signals,
        every_s=settings.telemetry.every_s,
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
        firmware=model.firmware,
        clock=model.clock,
        interval_s=settings.telemetry.every_s,
        in_step=settings.telemetry.phase == "in_step",
        polling=PollIntervals() if held else PollIntervals(every_s, every_s, every_s),
        wait_s=settings.poll.wait_s,
        batch=settings.telemetry.batch,
        defies_limit=defies,
    )
