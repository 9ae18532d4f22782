"""What the handlers that mend a device ask of the agent; see :class:`agent.handlers.upkeep.Upkeep`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from agent.app.diagnostics import collect
from agent.core.values import JsonObject

if TYPE_CHECKING:
    from agent.app.run import AgentProcess
    from agent.handlers.upkeep import Bundle, ConfigChange, ReleaseSource


class AgentUpkeep:
    """Restart, log levels, diagnostics, new configurations and releases of one process."""

    def __init__(self, process: AgentProcess) -> None:
        self._process = process

    def try_configuration(self, change: ConfigChange) -> None:
        """Check it in full, put it on trial and restart with it; returns before the restart."""
        from agent.app.trial import put_on_trial

        process = self._process
        trial = put_on_trial(
            change, process.counter, process.path, process.environ, process.config.state_dir, process.health
        )
        reason = f"a configuration on trial: {', '.join(trial.changed) or 'nothing changes'}"
        process.restart_when_idle(reason, change.command_id)

    def set_log_level(self, level: str, for_s: float, logger: str) -> JsonObject:
        """Set a level for a time; what it was before and when it ends."""
        return self._process.log_levels.set(level, for_s, logger)

    def fetch_release(
        self, source: ReleaseSource, stopping: threading.Event, report: Callable[[int, int], None]
    ) -> Path | None:
        """Download a release, from where an earlier attempt was cut off; None when it was ended early."""
        from agent.app.release_download import ReleaseDownload

        config = self._process.config
        trusted = [each.ca_file for each in (config.service, config.mqtt) if each is not None and each.ca_file]
        return ReleaseDownload(source, trusted[0] if trusted else None).fetch(stopping, report)

    def collect_diagnostics(self, bundle: Bundle) -> JsonObject:
        """Write a bundle without secrets: ``path``, ``size_bytes``, ``sha256``, ``summary``."""
        process = self._process
        status = process.status("running", with_store=True)
        return collect(process.config, process.environ, status, process.log_ring.lines, bundle)
