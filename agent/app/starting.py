"""The first steps of ``device-agent run``: the lock, the note of this start, and which layer the configuration has.

They come before the configuration is read, since whatever is in it may end the process; only ``state_dir`` is known.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.adapters.clocks import SystemClock
from agent.adapters.sd_notify import make_notifier
from agent.app.disk_wait import retry_until_disk_writable
from agent.app.lock import StateLock
from agent.app.start_notes import StartNotes
from agent.config.load import LoadedConfig
from agent.config.load import find_layer as layer_in_force
from agent.errors import ConfigurationError

if TYPE_CHECKING:
    from agent.config.layer import Trial
    from agent.config.load import FindLayer

_log = logging.getLogger(__name__)


class Starting:
    """The first steps of a process: lock, notes of earlier starts, configuration.

    Attributes:
        trial: of a layer that ``update_config`` brought: under way, or waiting for its answer; None when there is none.
        notes: of the starts that came to nothing.
    """

    def __init__(self) -> None:
        self.trial: Trial | None = None
        self._notes: StartNotes | None = None
        self._lock = contextlib.ExitStack()
        self._held: StateLock | None = None
        self._state_dir: Path | None = None
        self._refusal: ConfigurationError | None = None

    @property
    def notes(self) -> StartNotes:
        """The notes; there once :meth:`load` has come back."""
        assert self._notes is not None  # noqa: S101 - load() has made them
        return self._notes

    @property
    def on_trial(self) -> bool:
        """Whether this process runs with a layer that is on trial."""
        return self.trial is not None and self.trial.phase == "trying"

    def load(self, read: Callable[[FindLayer], LoadedConfig]) -> LoadedConfig:
        """The configuration to run with; a layer on trial that cannot be used is taken back at once.

        Args:
            read: reads the configuration, with the layer that the given function finds.

        Raises:
            ConfigurationError: the local file cannot be used, or another agent holds the state directory.
        """
        try:
            loaded = read(self._find_layer)
            if self._refusal is not None:
                raise self._refusal
            if loaded.layer_fault and self.on_trial and self.take_back(loaded.layer_fault):
                loaded = read(self._find_layer)
        except ConfigurationError:
            self.ended_in_order()
            self.close()
            raise
        return loaded

    def take_back(self, reason: str) -> bool:
        """The layer on trial did not do: the old one counts from now on. False when that cannot be written."""
        from agent.config.layer import roll_back  # only while there is a trial

        assert self.trial is not None  # noqa: S101 - only called with one
        assert self._state_dir is not None  # noqa: S101 - found with the trial
        try:
            self.trial = roll_back(self._state_dir, self.trial, reason)
        except OSError as error:
            _log.error("configuration=on_trial it cannot be taken back: %s", error)
            return False
        # The starts before this one died of a configuration that is gone.
        self.notes.fresh()
        _log.error("configuration=rolled_back %s", reason)
        return True

    def ended_in_order(self) -> None:
        """Note that the process ends on request: neither crash nor failed trial."""
        if self._notes is not None:
            self._notes.ended_in_order()
        if self.trial is None or self._state_dir is None:
            return
        from agent.config.layer import TRYING, read_trial, write_trial  # only where there was a trial

        with contextlib.suppress(OSError):
            trial = read_trial(self._state_dir)  # as it is now: it may be over
            if trial is not None and trial.phase == TRYING and trial.starts > 0:
                write_trial(self._state_dir, replace(trial, starts=trial.starts - 1))

    def disk_is_writable(self) -> None:
        """The store is open: what a full disk did not take before is written now."""
        if self._held is not None:
            self._held.note_process()

    def close(self) -> None:
        """Give the lock back."""
        self._lock.close()

    def _find_layer(self, state_dir: Path) -> Path | None:
        if self._state_dir is None and self._refusal is None:
            lock = StateLock(state_dir)
            try:
                retry_until_disk_writable(lambda: self._lock.enter_context(lock), lambda: make_notifier(os.environ))
            except ConfigurationError as error:
                # The configuration's own faults come first: state_dir may be one of them.
                self._refusal = error
                return layer_in_force(state_dir)
            self._held = lock
            self._state_dir = state_dir
            self._notes = StartNotes(state_dir)
            self._notes.begin(SystemClock().now())
            self._count_trial(state_dir)
        return layer_in_force(state_dir)

    def _count_trial(self, state_dir: Path) -> None:
        if not (state_dir / "config.d").is_dir():
            return
        from agent.config.layer import TRYING, read_trial, settle, write_trial

        try:
            self.trial = trial = read_trial(state_dir)
            if trial is None:
                return
            if trial.phase != TRYING:
                settle(state_dir, trial)  # the step that the phase announced and a crash may have cut off
                return
            self.trial = replace(trial, starts=trial.starts + 1)
            write_trial(state_dir, self.trial)
        except OSError as error:
            _log.error("configuration=on_trial its state cannot be read or written: %s", error)
            return
        if trial.starts >= trial.max_starts:
            self.take_back(f"{trial.starts} start(s) with it did not last until the end of the probation")
        elif trial.starts == 0:
            # Starts that failed under the old configuration say nothing about the new one.
            self.notes.fresh()
