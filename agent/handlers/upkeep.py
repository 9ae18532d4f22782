"""Upkeep of the agent by commands: configuration, log level, diagnostics, releases. ``agent.app`` implements it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agent.core.values import JsonObject

if TYPE_CHECKING:
    from agent.handlers.built_in.collect_diagnostics import CollectDiagnostics
    from agent.handlers.built_in.update_config import UpdateConfig


class Upkeep(Protocol):
    """The agent's care for itself. Every method may be called from any handler's thread.

    Each raises :class:`agent.handlers.base.HandlerRejected` when it refuses; then nothing was begun or changed.
    """

    @property
    def ca_file(self) -> Path | None:
        """The authorities that the agent trusts; None: those of the system."""
        ...

    def try_configuration(self, command_id: str, config: str | dict[str, Any], settings: UpdateConfig.Settings) -> None:
        """Check a layer of the configuration in full, put it on trial and restart with it; returns before the restart.

        Args:
            command_id: of the command that brings it, which is answered when the trial is over.
            config: the whole layer, as YAML text or as an object.
            settings: what may change, and how long the agent must stay well with it.
        """
        ...

    def set_log_level(self, level: str, for_s: float, logger: str) -> JsonObject:
        """Set a level for a time; what it was before and when it ends.

        Args:
            level: ``debug``, ``info``, ``warning`` or ``error``.
            for_s: then the configuration's level counts again, seconds; 0 ends it now.
            logger: empty for all.
        """
        ...

    def collect_diagnostics(self, settings: CollectDiagnostics.Settings) -> JsonObject:
        """Write a bundle without secrets: ``path``, ``size_bytes``, ``sha256``, ``summary``."""
        ...
