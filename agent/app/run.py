"""The whole life of the agent's process: what is started in order is stopped in reverse."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final

from agent.adapters.clocks import SystemClock, asleep_s
from agent.adapters.process_io import written_bytes
from agent.adapters.sd_notify import make_notifier
from agent.adapters.sqlite_store import FILE_NAME
from agent.adapters.store_service import StoreService
from agent.app.agent import Agent
from agent.app.links import open_client
from agent.app.log_ring import LogRing
from agent.app.logs import TextFormatter, set_up_logging
from agent.app.owner import OTHER_DEVICES, OWNER
from agent.app.starting import Starting, forget_folders
from agent.app.status_file import StatusFile, status_path, write_status
from agent.app.upkeep import AgentUpkeep, AgentView
from agent.app.version import VERSION
from agent.config import AgentConfig, Credentials, LoadedConfig, read_credentials
from agent.config.model import OutboxConfig
from agent.core.outbox import Bounds, WhenFull
from agent.core.values import Moment
from agent.errors import ConfigurationError, StorageError
from agent.plugins import packages_of
from agent.runtime.health import Health
from agent.runtime.ledger import SETTING as LEDGER
from agent.runtime.ledger import Ledger
from agent.runtime.supervisor import (
    CRASHED,
    CRASHED_TEXT,
    EXIT_CRASHED,
    EXIT_REPLACE,
    EXIT_RESTART,
    EXIT_STOPPED,
    Ending,
    Supervisor,
)

if TYPE_CHECKING:
    from agent.adapters.metrics_server import MetricsServer
    from agent.app.figures import Figures
    from agent.ports import Clock, Notifier

__all__ = ["EXIT_CRASHED", "EXIT_REPLACE", "EXIT_RESTART", "EXIT_STOPPED", "run_agent"]

_log = logging.getLogger(__name__)

_STORE_RETRY_S: Final = 5.0
_STORE_STOP_S: Final = 1.0
_MOST_THREAD_BYTES: Final = 512 * 1024
# How long a restart that the agent itself wants waits for the commands that run.
_IDLE_WITHIN_S: Final = 30.0
_LOOK_EVERY_S: Final = 0.25
MODE: Final = "mode"
OTHER_DEVICES_PART: Final = "other_devices"
CONFIGURATION: Final = "configuration"

Read = Callable[[], LoadedConfig]
"""Reads the configuration as it is now; raises :class:`~agent.errors.ConfigurationError`."""


def run_agent(loaded: LoadedConfig, environ: Mapping[str, str], starting: Starting, read: Read) -> int:
    """Run until the end; the exit code, or ``EXIT_REPLACE`` when the program is to be run anew in this process.

    Args:
        loaded: the configuration to run with.
        environ: of the process.
        starting: holds the lock and knows how this start came about.
        read: for SIGHUP.

    Raises:
        ConfigurationError: keys, state directory or address cannot be used; nothing was started.
    """
    config = loaded.config
    # The usual 8 MB per thread are only promised, not used, but a small board counts promises too.
    threading.stack_size(_MOST_THREAD_BYTES)
    starting.notes.judge(config.safe_mode)
    ending = Ending("never started", EXIT_CRASHED)
    try:
        life = _Life(loaded, environ, starting, read)
        try:
            ending = life.run()
        finally:
            life.close()
    except ConfigurationError as error:
        ending = Ending(str(error), EXIT_STOPPED)
        if not (starting.on_trial and starting.take_back("; ".join(error.faults))):
            raise
        return EXIT_REPLACE
    except Exception as error:
        ending = Ending(f"{type(error).__name__}: {error}", EXIT_CRASHED)
        raise
    finally:
        if ending.exit_code == EXIT_CRASHED:
            starting.notes.crashed(ending.reason)
        else:
            starting.ended_in_order()
    return ending.exit_code


class _Life:
    """One run of the agent, from the lock to its release."""

    def __init__(self, loaded: LoadedConfig, environ: Mapping[str, str], starting: Starting, read: Read) -> None:
        self._config: AgentConfig = loaded.config
        self._environ = environ
        self._starting = starting
        self._read = read
        self._ring = LogRing(TextFormatter(under_journald=False))
        self._set_up_logging()
        self._credentials: Credentials = read_credentials(self._config.auth, environ)
        self._clock: Clock = SystemClock()
        self._started: Moment = self._clock.now()
        self._notifier: Notifier = make_notifier(environ)
        self._status_path = status_path(self._config.state_dir, environ)
        self._supervisor = Supervisor(
            self._notifier, self._clock, on_change=self._changed, on_crash=self._crashed, asleep_s=asleep_s
        )
        self._health = Health(self._clock, self._supervisor.changed)
        self._ledger = Ledger(self._clock, written_bytes)
        self._figures = self._make_figures()
        self._metrics: MetricsServer | None = None
        self._wants_reload = threading.Event()
        self._agent: Agent | None = None
        self._upkeep = AgentUpkeep(
            self._view(loaded),
            schedule=self._supervisor.schedule,
            restart_when_idle=self._restart_when_idle,
        )
        if loaded.layer_fault:
            _log.error("configuration=layer_ignored %s", loaded.layer_fault)
            self._health.put(CONFIGURATION, "layer_ignored", loaded.layer_fault)

    def run(self) -> Ending:
        """Start in order, wait for the end, stop in reverse."""
        config = self._config
        store = self._make_store()
        ending = Ending("never started", EXIT_CRASHED)
        with self._supervisor.signals(), self._hangups(), open_client(config, self._credentials) as client:
            early = self._pause() or self._open(store)
            if early is not None:
                return early
            self._starting.disk_takes()
            if not self._is_own(store):
                store = self._make_store()
                early = self._open(store)
                if early is not None:
                    return early
            try:
                if store.journal.setting(OWNER) != config.device.device_id:
                    store.journal.put_setting(OWNER, config.device.device_id)
                self._ledger.load(store.journal.setting(LEDGER))
                self._supervisor.watch(lambda now_s: "the store does not answer" if store.stuck_for_s(now_s) else None)
                trial = self._starting.trial
                self._agent = Agent(
                    config,
                    credentials=self._credentials,
                    client=client,
                    store=store,
                    clock=self._clock,
                    supervisor=self._supervisor,
                    health=self._health,
                    ledger=self._ledger,
                    started=self._started,
                    upkeep=self._upkeep,
                    safe_mode=self._starting.notes.why,
                    on_trial=None if trial is None else trial.command_id,
                    figures=self._figures,
                )
                self._metrics = self._serve_metrics(self._agent, store)
                self._agent.start()
                self._look_after()
                forget_folders()  # what imports are left come late and one by one
                _log.info("agent=ready version=%s device=%s", VERSION, config.device.device_id)
                ending = self._supervisor.run()
            except StorageError as error:
                # It was opened and now refuses; what was acknowledged is on the disk.
                ending = Ending(f"the store refuses: {error}", EXIT_CRASHED)
                _log.error("agent=cannot_start %s", error)
            except Exception as error:
                ending = Ending(f"{type(error).__name__}: {error}", EXIT_CRASHED)
                raise
            finally:
                self._stop(store, ending)
        if ending.exit_code == EXIT_REPLACE:
            _log.info("agent=replaced by a new process image")
        else:
            _log.info("agent=stopped exit_code=%d", ending.exit_code)
        return ending

    def close(self) -> None:
        """Release what outlives the run."""
        self._supervisor.close()

    def _stop(self, store: StoreService, ending: Ending) -> None:
        if ending.exit_code != EXIT_REPLACE:  # to the service manager the service goes on
            self._notifier.stopping()
        _log.info("agent=stopping reason=%r", ending.reason)
        if self._metrics is not None:
            self._metrics.stop()
        if self._agent is not None:
            self._agent.stop()
        if not store.stop(_STORE_STOP_S):
            _log.warning("store=slow it did not close in time; what was acknowledged is on the disk")
        self._write_status("stopped", ending.reason)

    def _pause(self) -> Ending | None:
        """Safe mode that dies as well comes back more and more slowly."""
        pause_s = self._starting.notes.pause_s()
        if not pause_s:
            return None
        _log.error("agent=waiting for %.0f s: safe mode did not stay up either: %s", pause_s, self._starting.notes.why)
        self._notifier.status(f"waiting for {pause_s:.0f} s: {self._starting.notes.why}")
        return self._supervisor.wait(pause_s)

    def _open(self, store: StoreService) -> Ending | None:
        """Open the store; while the disk refuses, wait instead of dying: a restart would not mend it."""
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

    def _make_store(self) -> StoreService:
        config = self._config
        return StoreService(
            config.state_dir / FILE_NAME,
            clock=self._clock,
            bounds=outbox_bounds(config.outbox),
            group_window_s=config.outbox.group_window_s,
            piggyback=self._ledger,
            trusts_wall=False,
            on_incident=self._tell_incident,
            on_state=self._tell_store,
            on_crash=self._supervisor.crashed,
        )

    def _is_own(self, store: StoreService) -> bool:
        """Whether the store is this device's; another device's is put aside. What is kept is said."""
        state_dir, device_id = self._config.state_dir, self._config.device.device_id
        owner = store.journal.setting(OWNER) or device_id
        is_own = owner == device_id
        if not is_own:
            from agent.app.other_devices import exchange_stores  # only when device.device_id was changed

            store.stop(_STORE_STOP_S)
            aside = exchange_stores(state_dir, owner, device_id)
            _log.warning("device=changed from %s to %s: what waits is kept in %s", owner, device_id, aside)
        if (state_dir / OTHER_DEVICES).exists():
            from agent.app.other_devices import describe, find_others

            kept = describe(find_others(state_dir))
            if kept:
                _log.warning("device=kept_aside %s", kept)
                self._health.put(OTHER_DEVICES_PART, "kept_aside", kept)
        return is_own

    def _look_after(self) -> None:
        """What has its time after a start: to call it healthy, to leave safe mode, to judge a new configuration."""
        notes, limits = self._starting.notes, self._config.safe_mode
        if notes.is_safe:
            lasts_s = notes.lasts_s(limits)
            _log.error("mode=safe for %.0f s: %s", lasts_s, notes.why)
            self._health.put(MODE, "safe", f"{notes.why}; restart_agent or another configuration ends it")
            self._supervisor.schedule(lasts_s, lambda: self._restart_when_idle("safe mode is over: all is tried again"))
        else:
            self._supervisor.schedule(limits.healthy_after_s, notes.healthy)
        trial, agent = self._starting.trial, self._agent
        if trial is not None and agent is not None:
            from agent.app.trial import TrialEnd  # only while there is a trial

            TrialEnd(
                trial,
                self._config.state_dir,
                parts=self._health.parts,
                schedule=self._supervisor.schedule,
                conclude=agent.conclude,
                take_back=self._starting.take_back,
                restart=self._supervisor.end,
            ).begin()

    def _restart_when_idle(self, reason: str, command_id: str = "", until_s: float | None = None) -> None:
        """End this process for the next one when no command but ``command_id`` runs, or when that takes too long."""
        now_s = self._clock.now().monotonic_s
        deadline_s = now_s + _IDLE_WITHIN_S if until_s is None else until_s
        try:
            others = self._agent.running() - {command_id} if self._agent is not None else set()
        except StorageError:
            others = set()
        if not others or now_s >= deadline_s:
            self._supervisor.end(reason, EXIT_REPLACE)
        else:
            self._supervisor.schedule(
                _LOOK_EVERY_S, lambda: self._restart_when_idle(reason, command_id, until_s=deadline_s)
            )

    # --- reload -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _hangups(self) -> Iterator[None]:
        """SIGHUP reloads, in the main thread, between two looks of the supervisor."""

        def handle(_number: int, _frame: FrameType | None) -> None:
            self._wants_reload.set()
            self._supervisor.changed()

        before = signal.signal(signal.SIGHUP, handle)
        # One that came since the program began has waited.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        try:
            yield
        finally:
            # The process image after this one inherits it: no SIGHUP finds it without a handler.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
            signal.signal(signal.SIGHUP, before)

    def _reload(self) -> None:
        from agent.app.reload import needs_restart  # only for SIGHUP

        self._notifier.reloading()
        try:
            loaded = self._read()
            read_credentials(loaded.config.auth, self._environ)
        except ConfigurationError as error:
            for fault in error.faults:
                _log.error("reload=refused %s; what was in force stays", fault)
            self._health.put(CONFIGURATION, "refused", f"the file was changed and is wrong: {'; '.join(error.faults)}")
            self._notifier.ready()
            return
        changed, heavy = needs_restart(self._config, loaded.config)
        keys = ", ".join(".".join(key) for key in heavy or changed) or "nothing"
        if loaded.layer_fault:
            self._health.put(CONFIGURATION, "layer_ignored", loaded.layer_fault)
        else:
            self._health.put(CONFIGURATION, "ok")
        if heavy or self._starting.notes.is_safe:
            _log.info("reload=restart for %s", keys)
            self._restart_when_idle(f"reload: {keys}")
            return
        self._config = loaded.config
        if self._agent is not None:
            self._agent.apply(loaded.config)
        self._set_up_logging()
        if self._upkeep.levels is not None:
            self._upkeep.levels.set_up_anew()
        _log.info("reload=done changed=%s", keys)
        self._notifier.ready()

    def _set_up_logging(self) -> None:
        wanted = self._config.logging
        set_up_logging(wanted.level, wanted.format, under_journald="JOURNAL_STREAM" in self._environ)
        logging.getLogger().addHandler(self._ring)

    # --- what it tells ------------------------------------------------------------------------------------------------

    def _view(self, loaded: LoadedConfig) -> AgentView:
        why = self._starting.notes.why
        return AgentView(
            path=loaded.path,
            environ=self._environ,
            config=lambda: self._config,
            parts=self._health.parts,
            lines=self._ring.lines,
            plugins=lambda: self._agent.plugins() if self._agent is not None else (),
            mode=f"safe: {why}" if why else "normal",
        )

    def _make_figures(self) -> Figures | None:
        if self._config.metrics is None:
            return None
        # Only a device that serves figures carries what makes them; what is missing is told before the start.
        from agent.app import metrics as _needs_its_library
        from agent.app.figures import Figures

        del _needs_its_library
        return Figures(self._clock)

    def _serve_metrics(self, agent: Agent, store: StoreService) -> MetricsServer | None:
        if self._config.metrics is None or self._figures is None:
            return None
        from agent.app.figures import count_start
        from agent.app.metrics import Sources, serve_metrics

        sources = Sources(
            clock=self._clock,
            started=self._started,
            starts=count_start(store.journal),
            figures=self._figures,
            parts=self._health.parts,
            outbox=store.outbox.stats,
            results=store.journal.result_stats,
            service_time=agent.service_time,
            ledger=self._ledger.snapshot,
        )
        server = serve_metrics(self._config.metrics, sources, self._supervisor.crashed)
        _log.info("metrics=%s", server.address)
        return server

    def _crashed(self, thread: str) -> None:
        self._health.put(thread, CRASHED, CRASHED_TEXT)

    def _tell_store(self, state: str, detail: str) -> None:
        if state == "ok":
            _log.info("store=ok readings are stored again")
        self._health.put("store", state, detail)

    def _tell_incident(self, text: str) -> None:
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
            device_id=self._config.device.device_id,
            started_wall_s=self._started.wall_s,
            written_wall_s=now.wall_s,
            boot_id=now.boot_id,
            parts=self._health.parts(),
            reason=reason,
            packages=packages_of(self._agent.plugins()) if self._agent is not None else {},
        )
        try:
            write_status(self._status_path, status)
        except OSError as error:
            _log.debug("status=not_written %s: %s", self._status_path, error)


def outbox_bounds(outbox: OutboxConfig) -> Bounds:
    """The outbox's bounds as the configuration has them."""
    return Bounds(
        max_rows=outbox.max_rows,
        max_bytes=outbox.max_bytes,
        max_age_s=outbox.max_age_s,
        keep_free_bytes=outbox.keep_free_bytes,
        reserve_bytes=outbox.reserve_bytes,
        when_full=WhenFull(outbox.when_full),
    )
