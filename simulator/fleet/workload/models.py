"""The scenario's models as a worker's devices have them. Built in the worker, since functions do not travel."""

from __future__ import annotations

from pathlib import Path

from agent.core.poll_interval import PollIntervals
from agent.errors import ConfigurationError
from simulator.fleet.device.handlers import Firmware
from simulator.fleet.device.model import DeviceModel
from simulator.fleet.scenario.model import (
    DeviceModelSettings,
    ModelSettings,
    PollSettings,
    ReadingModelSettings,
    Scenario,
    TelemetrySettings,
)
from simulator.fleet.signals import build_signals


def build_models(scenario: Scenario, folder: Path, origin_s: float) -> tuple[DeviceModel, ...]:
    """The models of a scenario, in its order.

    Args:
        scenario: that has them.
        folder: relative paths start here.
        origin_s: the run's begin, or the end of history, seconds since the epoch.

    Raises:
        ConfigurationError: a file cannot be used.
    """
    return tuple(_build(each, scenario, folder, origin_s) for each in scenario.fleet.models)


def _build(settings: ModelSettings, scenario: Scenario, folder: Path, origin_s: float) -> DeviceModel:
    try:
        signals = build_signals(settings.signals, folder=folder, origin_s=origin_s)
    except ConfigurationError as error:
        raise ConfigurationError([f"model {settings.name}: {fault}" for fault in error.faults], "models") from None
    telemetry = settings.telemetry if isinstance(settings, ReadingModelSettings) else TelemetrySettings()
    poll = settings.poll if isinstance(settings, DeviceModelSettings) else PollSettings()
    firmware = settings.firmware if isinstance(settings, DeviceModelSettings) else None
    # Where the service holds the polls the core's own pace only counts when it cannot.
    is_held = scenario.target.traits.polls != "periodic"
    return DeviceModel(
        signals=signals,
        firmware=Firmware(firmware.versions, firmware.update_s, firmware.failure_share) if firmware else None,
        interval_s=telemetry.every_s,
        in_step=telemetry.phase == "in_step",
        polling=PollIntervals() if is_held else PollIntervals(poll.every_s, poll.every_s, poll.every_s),
        wait_s=poll.wait_s,
        batch=telemetry.batch,
        defies_limit=getattr(scenario.target, "on_limited", "obey") == "defy",
    )
