"""The agent's side of :class:`agent.handlers.upkeep.Upkeep`; what a thing takes is imported when it is done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from agent.app.diagnostics import collect
from agent.app.log_levels import LogLevels
from agent.app.start_counter import StartCounter
from agent.app.status_file import AgentView
from agent.core.values import JsonObject

if TYPE_CHECKING:
    from agent.handlers.upkeep import Bundle, ConfigChange, ReleaseSource


class AgentUpkeep:
    """Restart, log levels, diagnostics and new configurations, for the handlers that mend a device.

    Args:
        view: of the agent.
        counter: keeps a configuration on trial.
        schedule: ``(delay_s, call)``: calls later in the main thread.
        restart_when_idle: ends this process for the next one once no other command runs; takes the reason and the id of
            the command that asks.
    """

    def __init__(
        self,
        view: AgentView,
        counter: StartCounter,
        *,
        schedule: Callable[[float, Callable[[], object]], object],
        restart_when_idle: Callable[[str, str], object],
    ) -> None:
        self._view = view
        self._counter = counter
        self._schedule = schedule
        self._restart_when_idle = restart_when_idle
        self.levels: LogLevels | None = None

    def try_configuration(self, change: ConfigChange) -> None:
        """Check it in full, put it on trial and restart with it; returns before the restart."""
        from agent.app.trial import put_on_trial

        view = self._view
        state_dir = view.config().state_dir
        trial = put_on_trial(change, self._counter, view.path, view.environ, state_dir, view.parts())
        reason = f"a configuration on trial: {', '.join(trial.changed) or 'nothing changes'}"
        self._restart_when_idle(reason, change.command_id)

    def set_log_level(self, level: str, for_s: float, logger: str) -> JsonObject:
        """Set a level for a time; what it was before and when it ends."""
        if self.levels is None:
            self.levels = LogLevels(self._schedule)
        return self.levels.set(level, for_s, logger)

    def fetch_release(
        self, source: ReleaseSource, stopping: threading.Event, report: Callable[[int, int], None]
    ) -> Path | None:
        """Download a release, from where an earlier attempt was cut off; None when it was ended early."""
        from agent.app.release_download import ReleaseDownload

        config = self._view.config()
        trusted = [each.ca_file for each in (config.service, config.mqtt) if each is not None and each.ca_file]
        return ReleaseDownload(source, trusted[0] if trusted else None).fetch(stopping, report)

    def collect_diagnostics(self, bundle: Bundle) -> JsonObject:
        """Write a bundle without secrets: ``path``, ``size_bytes``, ``sha256``, ``summary``."""
        return collect(self._view, bundle)
