"""The whole life of the agent's process: what is started in order is stopped in reverse."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from typing import Final

from agent.adapters.clocks import SystemClock
from agent.adapters.process_io import written_bytes
from agent.adapters.sd_notify import make_notifier
from agent.adapters.sqlite_store import FILE_NAME
from agent.adapters.store_service import StoreService
from agent.app.agent import Agent
from agent.app.links import open_client
from agent.app.lock import StateLock
from agent.app.logs import set_up_logging
from agent.app.status_file import StatusFile, status_path, write_status
from agent.app.version import VERSION
from agent.config import AgentConfig, Credentials, LoadedConfig, read_credentials
from agent.config.model import OutboxConfig
from agent.core.outbox import Bounds, WhenFull
from agent.core.values import Moment
from agent.errors import StorageError
from agent.ports import Clock, Notifier
from agent.runtime.health import Health
from agent.runtime.ledger import SETTING as LEDGER
from agent.runtime.ledger import Ledger
from agent.runtime.supervisor import EXIT_CRASHED, EXIT_RESTART, EXIT_STOPPED, Ending, Supervisor

__all__ = ["EXIT_CRASHED", "EXIT_RESTART", "EXIT_STOPPED", "run_agent"]

_log = logging.getLogger(__name__)

_STORE_RETRY_S: Final = 5.0
_STORE_STOP_S: Final = 1.0
_MOST_THREAD_BYTES: Final = 512 * 1024


def run_agent(loaded: LoadedConfig, environ: Mapping[str, str]) -> int:
    """Run until the end; the exit code.

    Raises:
        ConfigurationError: keys, state directory or address cannot be used; nothing was started.
    """
    config = loaded.config
    set_up_logging(config.logging.level, config.logging.format, under_journald="JOURNAL_STREAM" in environ)
    # The usual 8 MB per thread are only promised, not used, but a small board counts promises too.
    threading.stack_size(_MOST_THREAD_BYTES)
    credentials = read_credentials(config.auth, environ)
    with StateLock(config.state_dir):
        life = _Life(config, credentials, environ)
        try:
            return life.run().exit_code
        finally:
            life.close()


class _Life:
    """One run of the agent, from the lock to its release."""

    def __init__(self, config: AgentConfig, credentials: Credentials, environ: Mapping[str, str]) -> None:
        self._config = config
        self._credentials = credentials
        self._clock: Clock = SystemClock()
        self._started: Moment = self._clock.now()
        self._notifier: Notifier = make_notifier(environ)
        self._status_path = status_path(config.state_dir, environ)
        self._supervisor = Supervisor(self._notifier, self._clock, on_change=self._tell_status)
        self._health = Health(self._clock, self._supervisor.changed)
        self._ledger = Ledger(self._clock, written_bytes)

    def run(self) -> Ending:
        """Start in order, wait for the end, stop in reverse."""
        config = self._config
        store = StoreService(
            config.state_dir / FILE_NAME,
            clock=self._clock,
            bounds=_bounds(config.outbox),
            group_window_s=config.outbox.group_window_s,
            rider=self._ledger,
            on_incident=self._tell_incident,
            on_state=lambda state, detail: self._health.put("store", state, detail),
        )
        ending = Ending("never started", EXIT_CRASHED)
        with self._supervisor.signals(), open_client(config, self._credentials) as client:
            early = self._open(store)
            if early is not None:
                return early
            agent: Agent | None = None
            try:
                self._ledger.load(store.journal.setting(LEDGER))
                self._supervisor.watch(lambda now_s: "the store does not answer" if store.stuck_for_s(now_s) else None)
                agent = Agent(
                    config,
                    credentials=self._credentials,
                    client=client,
                    store=store,
                    clock=self._clock,
                    supervisor=self._supervisor,
                    health=self._health,
                    ledger=self._ledger,
                    started=self._started,
                )
                agent.start()
                _log.info("agent=ready version=%s device=%s", VERSION, config.device.device_id)
                ending = self._supervisor.run()
            except StorageError as error:
                # It was opened and now refuses; what was acknowledged is on the disk.
                ending = Ending(f"the store refuses: {error}", EXIT_CRASHED)
                _log.error("agent=cannot_start %s", error)
            finally:
                self._notifier.stopping()
                _log.info("agent=stopping reason=%r", ending.reason)
                if agent is not None:
                    agent.stop()
                if not store.stop(_STORE_STOP_S):
                    _log.warning("store=slow it did not close in time; what was acknowledged is on the disk")
                self._write_status("stopped", ending.reason)
        _log.info("agent=stopped exit_code=%d", ending.exit_code)
        return ending

    def close(self) -> None:
        """Release what outlives the run."""
        self._supervisor.close()

    def _open(self, store: StoreService) -> Ending | None:
        """Open the store; while the disk refuses, wait instead of dying: a restart would not mend it."""
        while True:
            try:
                store.start()
            except StorageError as error:
                _log.error("store=waiting %s; next try in %.0f s", error, _STORE_RETRY_S)
                self._notifier.status(f"waiting for the disk: {error}")
                ending = self._supervisor.wait(_STORE_RETRY_S)
                if ending is not None:
                    return ending
            else:
                return None

    def _tell_incident(self, text: str) -> None:
        _log.error("store=replaced %s", text)
        self._health.put("store", "replaced", text)

    def _tell_status(self) -> str:
        self._write_status("running", "")
        return self._health.summary()

    def _write_status(self, state: str, reason: str) -> None:
        now = self._clock.now()
        status = StatusFile(
            state=state,
            process_id=os.getpid(),
            version=VERSION,
            device_id=self._config.device.device_id,
            started_wall_s=self._started.wall_s,
            written_wall_s=now.wall_s,
            boot_id=now.boot_id,
            parts=self._health.parts(),
            reason=reason,
        )
        try:
            write_status(self._status_path, status)
        except OSError as error:
            _log.debug("status=not_written %s: %s", self._status_path, error)


def _bounds(outbox: OutboxConfig) -> Bounds:
    return Bounds(
        max_rows=outbox.max_rows,
        max_bytes=outbox.max_bytes,
        max_age_s=outbox.max_age_s,
        keep_free_bytes=outbox.keep_free_bytes,
        reserve_bytes=outbox.reserve_bytes,
        when_full=WhenFull(outbox.when_full),
    )
