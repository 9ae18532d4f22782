"""What the life of agent and gateway has in common: store, status file, health, crashes and SIGHUP."""

from __future__ import annotations

import logging
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, Protocol

from agent.adapters.clocks import SystemClock
from agent.adapters.sd_notify import make_notifier
from agent.app.status_file import StatusFile, status_path, write_status
from agent.app.version import VERSION
from agent.errors import StorageError
from agent.runtime.health import Health
from agent.runtime.supervisor import CRASHED, CRASHED_TEXT, Ending, Supervisor

if TYPE_CHECKING:
    from agent.adapters.store.status import StoreStatus
    from agent.core.values import Moment
    from agent.ports import Clock, Notifier

_log = logging.getLogger(__name__)

_STORE_RETRY_S: Final = 5.0


class OpenedStore(Protocol):
    """A store that may have to wait for its disk."""

    def start(self) -> None:
        """Open the agent and start its threads.

        Raises:
            StorageError: not now; it may be called again.
        """
        ...


class ProgramLife(ABC):
    """One run of a program that goes on until it is stopped, from the lock to its release.

    Args:
        state_dir: of the program; the status file is there, or in the runtime directory of ``environ``.
        environ: of the process.
        device_id: whose status it is.
        asleep_s: how long this machine has been suspended since its boot, seconds.
    """

    def __init__(
        self,
        state_dir: Path,
        environ: Mapping[str, str],
        device_id: str,
        asleep_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._environ = environ
        self._device_id = device_id
        self._clock: Clock = SystemClock()
        self._started: Moment = self._clock.now()
        self._notifier: Notifier = make_notifier(environ)
        self._status_path = status_path(state_dir, environ)
        self._supervisor = Supervisor(
            self._notifier, self._clock, on_change=self._changed, on_crash=self._crashed, asleep_s=asleep_s
        )
        self._health = Health(self._clock, self._supervisor.changed)
        self._wants_reload = threading.Event()
        self._wants_store = threading.Event()

    @abstractmethod
    def run(self) -> Ending:
        """Start in order, wait for the end, stop in reverse."""

    def close(self) -> None:
        """Release what outlives the run."""
        self._supervisor.close()

    def _open(self, store: OpenedStore) -> Ending | None:
        """Open the store; while the disk refuses, wait instead of ending: a restart would not mend it."""
        while True:
            try:
                store.start()
            except StorageError as error:
                _log.error("store=waiting %s; next try in %.0f s", error, _STORE_RETRY_S)
                self._notifier.status(f"waiting for the disk: {error}")
                self._notifier.alive()  # after a reload the service manager watches already
                ending = self._supervisor.wait(_STORE_RETRY_S)
                if ending is not None:
                    return ending
            else:
                return None

    @contextmanager
    def _hangups(self) -> Iterator[None]:
        """Let SIGHUP reload, and SIGUSR1 write what the store holds into the status file.

        Both in the main thread, between two turns of the supervisor.
        """

        def handle(_number: int, _frame: FrameType | None) -> None:
            self._wants_reload.set()
            self._supervisor.changed()

        def handle_question(_number: int, _frame: FrameType | None) -> None:
            self._wants_store.set()
            self._supervisor.changed()

        before = signal.signal(signal.SIGHUP, handle), signal.signal(signal.SIGUSR1, handle_question)
        try:
            yield
        finally:
            signal.signal(signal.SIGHUP, before[0])
            signal.signal(signal.SIGUSR1, before[1])

    @abstractmethod
    def _reload(self) -> None:
        """Read the configuration again and put into force what can be changed in a running program."""

    def _store_status(self) -> StoreStatus | None:
        """Counts of the store for the status file; None for a program that has no store."""
        return None

    def _packages(self) -> Mapping[str, str]:
        """The packages whose code was loaded as plug-ins -> their versions."""
        return {}

    def _plugins(self) -> Mapping[str, str]:
        """The plug-ins -> their states, as :func:`agent.plugins.states_of` words them."""
        return {}

    def _crashed(self, thread: str) -> None:
        self._health.put(thread, CRASHED, CRASHED_TEXT)

    def _log_incident(self, text: str) -> None:
        _log.error("store=replaced %s", text)
        self._health.put("store", "replaced", text)

    def _changed(self) -> str:
        if self._wants_reload.is_set():
            self._wants_reload.clear()
            self._reload()
        self._write_status("running", "")
        return self._health.summary()

    def _write_status(self, state: str, reason: str) -> None:
        now = self._clock.now()
        status = StatusFile(
            state=state,
            process_id=os.getpid(),
            version=VERSION,
            device_id=self._device_id,
            started_wall_s=self._started.wall_s,
            written_wall_s=now.wall_s,
            boot_id=now.boot_id,
            parts=self._health.parts(),
            reason=reason,
            packages=self._packages(),
            store=self._store_status() if state == "running" and self._wants_store.is_set() else None,
            plugins=self._plugins(),
        )
        self._wants_store.clear()
        try:
            write_status(self._status_path, status)
        except OSError as error:
            _log.debug("status=not_written %s: %s", self._status_path, error)
