"""Upkeep of the agent by commands: restart, configuration, log level, diagnostics. ``agent.app`` implements it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agent.core.values import JsonObject


class UpkeepRefused(Exception):
    """The request was refused: nothing was begun or changed.

    Attributes:
        code: a stable snake_case word.
        message: what is wrong and what to do about it.
    """

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(f"{code}: {message}")


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A new layer of the configuration.

    Attributes:
        command_id: of the command that brings it, which is answered when the trial is over.
        config: the whole layer, as YAML text or as an object.
        allow: dotted keys that may change, ``*`` for one name.
        probation_s: how long the agent must stay well with it, seconds.
    """

    command_id: str
    config: str | dict[str, Any]
    allow: tuple[str, ...]
    probation_s: float


@dataclass(frozen=True, slots=True)
class Bundle:
    """How a bundle of diagnostics shall be.

    Attributes:
        max_bytes: of one bundle.
        keep: how many there may be; the oldest go first.
    """

    max_bytes: int
    keep: int


@dataclass(frozen=True, slots=True)
class ReleaseSource:
    """Where a release of the agent is fetched from, and where it goes.

    Attributes:
        url: of the file.
        sha256: of the file, hexadecimal.
        folder: gets it.
        max_bytes: of the file.
        give_up_s: so long it is tried again while the other side or the network fails, seconds.
    """

    url: str
    sha256: str
    folder: Path
    max_bytes: int
    give_up_s: float


class Upkeep(Protocol):
    """The agent's care for itself. Every method may be called from any handler's thread."""

    def try_configuration(self, change: ConfigChange) -> None:
        """Check it in full, put it on trial and restart with it; returns before the restart.

        Raises:
            UpkeepRefused: it was not taken; the message has every fault.
        """
        ...

    def set_log_level(self, level: str, for_s: float, logger: str) -> JsonObject:
        """Set a level for a time; what it was before and when it ends.

        Args:
            level: ``debug``, ``info``, ``warning`` or ``error``.
            for_s: then the configuration's level counts again, seconds; 0 ends it now.
            logger: empty for all.

        Raises:
            UpkeepRefused: this logger's level is not to be set.
        """
        ...

    def fetch_release(
        self, source: ReleaseSource, stopping: threading.Event, report: Callable[[int, int], None]
    ) -> Path | None:
        """Download a release, from where an earlier attempt was cut off; its file.

        Args:
            source: where it is.
            stopping: ends it early.
            report: called now and then with the bytes that are there, and all.

        Returns:
            None when it was ended early: what is there stays for the next attempt.

        Raises:
            UpkeepRefused: it cannot be had, or is not what was announced.
        """
        ...

    def collect_diagnostics(self, bundle: Bundle) -> JsonObject:
        """Write a bundle without secrets: ``path``, ``size_bytes``, ``sha256``, ``summary``.

        Raises:
            UpkeepRefused: it could not be written, or a secret was found in it.
        """
        ...
