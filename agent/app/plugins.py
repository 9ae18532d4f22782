"""The configuration's sections as the plug-in registries take them, and what commands say of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent.config import AgentConfig
from agent.handlers.registry import HandlerRegistry
from agent.plugins import NOT_READ_YET, PluginInfo, PluginStatus
from agent.sensors.reader import SensorReader
from agent.sensors.registry import SensorRegistry

if TYPE_CHECKING:
    from agent.app.status import StatusFile


def load_handlers(config: AgentConfig, *, safe_mode: bool = False) -> HandlerRegistry:
    """Every handler that is built in, installed or declared; failing ones are listed, never raised.

    Args:
        config: its sections ``commands.handlers`` and ``executables`` count.
        safe_mode: only those that examine or repair the device.
    """
    return HandlerRegistry(config.commands.handlers, config.executables, safe_mode=safe_mode)


def load_sensors(config: AgentConfig) -> SensorRegistry:
    """Every configured sensor; failing ones are listed, never raised."""
    return SensorRegistry({sensor.name: sensor for sensor in config.sensors})


def try_handlers(config: AgentConfig, running: StatusFile | None) -> list[PluginInfo]:
    """Every handler with its state, loaded here.

    Args:
        config: its sections ``commands.handlers`` and ``executables`` count.
        running: see :func:`_beside_running`.
    """
    return [_beside_running(info, running) for info in load_handlers(config).listing]


def try_sensors(config: AgentConfig, running: StatusFile | None) -> list[PluginInfo]:
    """Read each configured sensor once, all at the same time, each within its timeout.

    Args:
        config: its section ``sensors`` counts.
        running: see :func:`_beside_running`.

    Returns:
        The sensors with their states; the description of one that was read is its readings.
    """
    registry = load_sensors(config)
    reader = SensorReader(registry.ready.values())
    results = reader.read()
    reader.close()
    found = []
    for info in registry.listing:
        if (result := results.get(info.name)) is not None:
            readings = [f"{name}={value:g}" for name, value in result.values.items()]
            info = replace(info, description=", ".join([*readings, *result.refused]))
            if result.error is not None:
                info = replace(info, status=PluginStatus.FAILING, reason=result.error)
        found.append(_beside_running(info, running))
    return found


def _beside_running(info: PluginInfo, running: StatusFile | None) -> PluginInfo:
    """A plug-in with the state that the running agent gives it: that may hold a device which cannot be opened here.

    Args:
        info: as it was found here.
        running: what the running agent says; None: no agent runs.
    """
    if running is None:
        return info
    package, _, version = info.origin.rpartition(" ")
    loaded = running.packages.get(package, version)
    if loaded != version:
        info = replace(info, origin=f"{info.origin} (the running agent has {loaded}: restart it)")
    told = running.plugins.get(f"{info.kind}:{info.name}", "unknown")
    here = f"{info.status}: {info.reason}".removesuffix(": ")
    if told in {here, NOT_READ_YET}:
        return info
    if told == "unknown":
        return replace(info, reason=f"the running agent has not loaded it: restart it. {info.reason}".strip())
    is_ready = told == PluginStatus.READY
    if is_ready and info.status not in {PluginStatus.FAILING, PluginStatus.CHECK_FAILED}:
        return info  # whatever runs: the configuration is wrong now, or another one has this name
    status = PluginStatus.READY if is_ready else PluginStatus.FAILING
    return replace(info, status=status, reason=f"the running agent has it as {told}; here it is {here}")


def is_usable(info: PluginInfo) -> bool:
    """Ready, or switched off on purpose."""
    return info.status in {PluginStatus.READY, PluginStatus.DISABLED}
