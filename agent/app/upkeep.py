"""What the handlers that mend a device ask of the agent; see :class:`agent.handlers.maintenance.Upkeep`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.app.diagnostics import collect
from agent.core.values import JsonObject

if TYPE_CHECKING:
    from agent.app.run import AgentProcess
    from agent.handlers.maintenance import CollectDiagnostics, UpdateConfig


class AgentUpkeep:
    """Restart, log levels, diagnostics, new configurations and releases of one process."""

    def __init__(self, process: AgentProcess) -> None:
        self._process = process

    def try_configuration(self, command_id: str, config: str | dict[str, Any], settings: UpdateConfig.Settings) -> None:
        """Check it in full, put it on trial and restart with it; returns before the restart."""
        from agent.app.trial import put_on_trial

        trial = put_on_trial(self._process, command_id, config, settings)
        reason = f"a configuration on trial: {', '.join(trial.changed) or 'nothing changes'}"
        self._process.restart_when_idle(reason, command_id)

    def set_log_level(self, level: str, for_s: float, logger: str) -> JsonObject:
        """Set a level for a time; what it was before and when it ends."""
        return self._process.log_levels.set(level, for_s, logger)

    @property
    def ca_file(self) -> Path | None:
        """The authorities that the agent trusts; None: those of the system."""
        config = self._process.config
        trusted = [each.ca_file for each in (config.service, config.mqtt) if each is not None and each.ca_file]
        return trusted[0] if trusted else None

    def collect_diagnostics(self, settings: CollectDiagnostics.Settings) -> JsonObject:
        """Write a bundle without secrets: ``path``, ``size_bytes``, ``sha256``, ``summary``."""
        process = self._process
        status = process.status("running", with_store=True)
        return collect(process.config, process.environ, status, process.log_ring.lines, settings)
