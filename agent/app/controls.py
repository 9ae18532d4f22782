"""The calls to the running agent that a handler has as ``context.controls``."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.app.diagnostics import collect
from agent.app.starts import put_on_trial
from agent.app.version import VERSION
from agent.core.values import JsonObject
from agent.errors import EXIT_RESTART

if TYPE_CHECKING:
    from agent.app.agent import Agent
    from agent.handlers.maintenance import UpdateConfig


class Controls:
    """The agent's side of :class:`agent.handlers.base.AgentControls` and what its own handlers may call beside that.

    Every method may be called from any handler's thread.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._process = agent.process

    def read_sensors(self, names: list[str] | None) -> Mapping[str, Mapping[str, float] | str]:
        """Read sensors now: name -> named numbers, or a sentence saying why it could not be read."""
        results = self._agent.reader.read(names)
        return {name: result.values if result.error is None else result.error for name, result in results.items()}

    def set_interval(self, name: str, interval_s: float | None) -> float:
        """Set it, or go back to the configuration's with None; returns what is in force now, seconds."""
        return self._agent.intervals.set(name, interval_s)

    def identity(self) -> JsonObject:
        """The identity of this device."""
        process, now = self._process, self._process.clock.now()
        return {
            "device_id": process.config.device.device_id,
            "agent_version": VERSION,
            "mode": f"safe: {process.counter.why}" if process.counter.is_safe else "normal",
            "machine": platform.machine(),
            "system": f"{platform.system()} {platform.release()}",
            "host": platform.node(),
            "python": platform.python_version(),
            "process_id": os.getpid(),
            "boot_id": now.boot_id,
            "uptime_s": round(now.monotonic_s, 1),
            "agent_uptime_s": round(now.monotonic_s - process.started.monotonic_s, 3),
        }

    def recall(self, name: str) -> str | None:
        """The value that a handler stored by ``remember`` under this name; None when there is none."""
        return self._process.store.journal.setting(f"handler.{name}")

    def remember(self, name: str, value: str | None) -> None:
        """Store a handler's short text beside the journal, or forget it with None."""
        self._process.store.journal.put_setting(f"handler.{name}", value)

    def cancel_command(self, command_id: str, why: str) -> str:
        """Take a command back: one that waits never runs, one that runs is asked to end."""
        return self._agent.engine.cancel(command_id, why)

    def request_restart(self, reason: str) -> None:
        """End the agent's process in order; the service manager starts it again."""
        self._process.supervisor.end(f"restart: {reason}", EXIT_RESTART)

    @property
    def upkeep(self) -> Controls:
        """For the handlers that mend a device."""
        return self

    def try_configuration(self, command_id: str, config: str | dict[str, Any], settings: UpdateConfig.Settings) -> None:
        """Put a layer on trial and restart with it (see :func:`agent.app.starts.put_on_trial`); returns before that."""
        trial = put_on_trial(self._process, command_id, config, settings)
        reason = f"a configuration on trial: {', '.join(trial.changed) or 'nothing changes'}"
        self._process.restart_when_idle(reason, command_id)

    def set_log_level(self, level: str, for_s: float) -> JsonObject:
        """Set a level for a time; what it was before and when it ends."""
        return self._process.log_level.set(level, for_s)

    @property
    def ca_file(self) -> Path | None:
        """The authorities that the agent trusts; None: those of the system."""
        config = self._process.config
        trusted = [each.ca_file for each in (config.service, config.mqtt) if each is not None and each.ca_file]
        return trusted[0] if trusted else None

    def collect_diagnostics(self) -> JsonObject:
        """Write a bundle without secrets: ``path``, ``size_bytes``, ``sha256``.

        Raises:
            HandlerRejected: it could not be written.
        """
        process = self._process
        status = process.status("running", with_store=True)
        return collect(process.config, process.environ, status, process.log_ring.lines)
