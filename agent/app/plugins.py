"""The configuration's sections as the plug-in registries take them."""

from __future__ import annotations

from agent.config import AgentConfig
from agent.core.schedule import ReportRule, ReportStrategy
from agent.core.values import Priority
from agent.handlers.registry import GROUP, HandlerRegistry, HandlerSection
from agent.plugins import installed_entry_points
from agent.sensors.registry import SensorRegistry, SensorSection


def load_handlers(
    config: AgentConfig, *, safe_mode: bool = False, only_installed: str | None = None
) -> HandlerRegistry:
    """Every handler that is built in, installed or declared; failing ones are listed, never raised.

    Args:
        config: its sections ``commands.handlers`` and ``executables`` count.
        safe_mode: only those that mend.
        only_installed: of the installed ones only that of this name is imported.
    """
    sections = {
        name: HandlerSection(
            enabled=handler.enabled,
            timeout_s=handler.timeout_s,
            start_timeout_s=handler.start_timeout_s,
            inactivity_timeout_s=handler.inactivity_timeout_s,
            max_attempts=handler.max_attempts,
            isolation=handler.isolation,
            settings=handler.settings,
        )
        for name, handler in config.commands.handlers.items()
    }
    points = None
    if only_installed is not None:
        points = [point for point in installed_entry_points(GROUP) if point.name == only_installed]
    return HandlerRegistry.load(sections, config.executables, entry_points=points, safe_mode=safe_mode)


def load_sensors(config: AgentConfig) -> SensorRegistry:
    """Every configured sensor; failing ones are listed, never raised."""
    return SensorRegistry.load(
        {
            sensor.name: SensorSection(sensor.type, sensor.enabled, sensor.timeout_s, sensor.prefix, sensor.settings)
            for sensor in config.sensors
        }
    )


def priorities(config: AgentConfig) -> dict[str, Priority]:
    """Sensor name -> the priority of its readings."""
    return {sensor.name: Priority[sensor.priority.upper()] for sensor in config.sensors}


def report_rules(config: AgentConfig) -> dict[str, ReportRule]:
    """Sensor name -> which of its readings are sent."""
    return {
        sensor.name: ReportRule(
            when=ReportStrategy(sensor.report.when),
            deadband=sensor.report.deadband,
            percent=sensor.report.percent,
            at_least_every_s=sensor.report.at_least_every_s,
        )
        for sensor in config.sensors
    }
