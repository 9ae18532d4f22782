"""The agent's process from its lock to its exit code: what is started in order is stopped in reverse."""

from __future__ import annotations

import faulthandler
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from agent.app.agent import Agent, Process
from agent.app.links import open_client
from agent.app.lock import StateLock
from agent.app.logs import LogRing, TextFormatter, set_up_logging
from agent.app.start_counter import HEALTHY_AFTER_S, StartCounter
from agent.app.status_file import AgentView, StatusFile, status_path, write_status
from agent.app.upkeep import AgentUpkeep
from agent.app.version import VERSION
from agent.config import AgentConfig, LoadedConfig, read_credentials
from agent.config.changes import needs_restart
from agent.core.outbox import Bounds
from agent.core.values import JournalEntry
from agent.errors import ConfigurationError, StorageError
from agent.exit_codes import EXIT_CRASHED, EXIT_REPLACE, EXIT_STOPPED
from agent.plugins import packages_of, states_of
from agent.runtime.clocks import SystemClock
from agent.runtime.health import Health
from agent.runtime.sd_notify import make_notifier
from agent.runtime.supervisor import CRASHED, CRASHED_TEXT, Ending, Supervisor
from agent.store.sqlite import FILE_NAME
from agent.store.writer import OK, Store

if TYPE_CHECKING:
    from agent.app.metrics import AgentMetrics
    from agent.store.status import StoreStatus
    from agent.wire.device_client import DeviceClient

_log = logging.getLogger(__name__)

_STORE_RETRY_S: Final = 5.0
_STORE_STOP_S: Final = 1.0
_MOST_THREAD_BYTES: Final = 512 * 1024
# How long a restart that the agent itself wants waits for the commands that run.
_IDLE_WITHIN_S: Final = 30.0
_LOOK_EVERY_S: Final = 0.25
_OWNER: Final = "device_id"
"""The setting of a store that says whose it is."""
_CONFIGURATION: Final = "configuration"

Read = Callable[[], LoadedConfig]
"""Reads the configuration as it is now; raises :class:`~agent.errors.ConfigurationError`."""

HANDLED: Final = {signal.SIGHUP, signal.SIGUSR1}
"""Signals that wait until the agent has handlers for them: without one they would end it."""


def run_agent(state_dir: Path, environ: Mapping[str, str], read: Read) -> int:
    """Run until the end; the exit code, or ``EXIT_REPLACE`` when the program is to be run anew in this process.

    Args:
        state_dir: as far as it is known before the configuration is whole.
        environ: of the process.
        read: the configuration.

    Raises:
        ConfigurationError: configuration, keys, state directory or address cannot be used; nothing was started.
        StorageError: the disk does not take the state directory.
    """
    # A watchdog that ends an agent which hangs leaves in the log where each of its threads was.
    faulthandler.enable(sys.__stderr__ or sys.stderr)
    # The usual 8 MB per thread are only promised, not used, but a small board counts promises too.
    threading.stack_size(_MOST_THREAD_BYTES)
    with ExitStack() as held:
        try:
            held.enter_context(StateLock(state_dir))
        except ConfigurationError:
            read()  # the configuration's own faults come first: state_dir may be one of them
            raise
        counter = StartCounter(state_dir)
        counter.begin()
        return _run_counted(counter, environ, read)


def _run_counted(counter: StartCounter, environ: Mapping[str, str], read: Read) -> int:
    ending = Ending("never started", EXIT_CRASHED)
    try:
        loaded = read()
        if loaded.layer_fault and counter.on_trial and counter.take_back(loaded.layer_fault):
            loaded = read()
        counter.choose_mode(loaded.config.safe_mode.starts)
        process = AgentProcess(loaded, environ, counter, read)
        try:
            ending = process.run()
        finally:
            process.close()
    except ConfigurationError as error:
        ending = Ending(str(error), EXIT_STOPPED)
        if not (counter.on_trial and counter.take_back("; ".join(error.faults))):
            raise
        return EXIT_REPLACE
    except Exception as error:
        ending = Ending(f"{type(error).__name__}: {error}", EXIT_CRASHED)
        raise
    finally:
        if ending.exit_code == EXIT_CRASHED:
            counter.crashed(ending.reason)
        else:
            counter.ended_in_order()
    return ending.exit_code


class AgentProcess:
    """One run of the agent, with what outlives its configuration: supervisor, health, status file, reload."""

    def __init__(self, loaded: LoadedConfig, environ: Mapping[str, str], counter: StartCounter, read: Read) -> None:
        self._config: AgentConfig = loaded.config
        self._environ = environ
        self._counter = counter
        self._read = read
        self._ring = LogRing(TextFormatter(under_journald=False))
        self._set_up_logging()
        self._credentials = read_credentials(self._config.auth, environ)
        self._clock = SystemClock()
        self._started = self._clock.now()
        self._notifier = make_notifier(environ)
        self._status_path = status_path(self._config.state_dir, environ)
        self._supervisor = Supervisor(self._notifier, self._clock, on_change=self._changed, on_crash=self._crashed)
        self._health = Health(self._clock, self._supervisor.changed)
        self._wants_reload = threading.Event()
        self._wants_store = threading.Event()
        self._metrics: AgentMetrics | None = None
        self._agent: Agent | None = None
        self._store: Store | None = None
        self._upkeep = AgentUpkeep(
            self._view(loaded), counter, schedule=self._supervisor.schedule, restart_when_idle=self._restart_when_idle
        )
        if loaded.layer_fault:
            _log.error("configuration=layer_ignored %s", loaded.layer_fault)
            self._health.put(_CONFIGURATION, "layer_ignored", loaded.layer_fault)

    def run(self) -> Ending:
        """Start in order, wait for the end, stop in reverse."""
        with self._supervisor.signals(), self._hangups(), open_client(self._config, self._credentials) as client:
            ending = self._pause() or self._open_store()
            if ending is None:
                ending = self._run_opened(client)
        if ending.exit_code == EXIT_REPLACE:
            _log.info("agent=replaced by a new process image")
        else:
            _log.info("agent=stopped exit_code=%d", ending.exit_code)
        return ending

    def _run_opened(self, client: DeviceClient | None) -> Ending:
        assert self._store is not None  # noqa: S101 - it is open
        store = self._store
        stop_metrics: Callable[[], None] | None = None
        ending = Ending("never started", EXIT_CRASHED)
        try:
            agent = self._agent = Agent(
                self._config,
                self._credentials,
                client,
                store,
                Process(self._clock, self._supervisor, self._health, self._started, self._upkeep),
                safe_mode=self._counter.why,
                on_trial=None if self._counter.trial is None else self._counter.trial.command_id,
                on_ended=self._count,
            )
            stop_metrics = self._serve_metrics(agent, store)
            agent.start()
            self._schedule_after_start(agent)
            _log.info("agent=ready version=%s device=%s", VERSION, self._config.device.device_id)
            ending = self._supervisor.run()
        except StorageError as error:
            # It was opened and now refuses; what was acknowledged is on the disk.
            ending = Ending(f"the store refuses: {error}", EXIT_CRASHED)
            _log.error("agent=cannot_start %s", error)
        except Exception as error:
            ending = Ending(f"{type(error).__name__}: {error}", EXIT_CRASHED)
            raise
        finally:
            if ending.exit_code != EXIT_REPLACE:  # to the service manager the service goes on
                self._notifier.stopping()
            _log.info("agent=stopping reason=%r", ending.reason)
            if stop_metrics is not None:
                stop_metrics()
            if self._agent is not None:
                self._agent.stop()
            if not store.stop(_STORE_STOP_S):
                _log.warning("store=slow it did not close in time; what was acknowledged is on the disk")
            self._write_status("stopped", ending.reason)
        return ending

    def close(self) -> None:
        """Release what outlives the run."""
        self._supervisor.close()

    # --- the start ----------------------------------------------------------------------------------------------------

    def _pause(self) -> Ending | None:
        """Safe mode that dies as well comes back more and more slowly."""
        pause_s, why = self._counter.pause_s, self._counter.why
        if not pause_s:
            return None
        _log.error("agent=waiting for %.0f s: safe mode did not stay up either: %s", pause_s, why)
        self._notifier.status(f"waiting for {pause_s:.0f} s: {why}")
        return self._supervisor.wait(pause_s)

    def _open_store(self) -> Ending | None:
        """Open this device's store; while the disk refuses, wait instead of ending: a restart would not mend it.

        Raises:
            ConfigurationError: the store of another device cannot be renamed.
        """
        logged = ""
        while True:
            store = self._store = self._make_store()
            try:
                store.start()
                owner = store.journal.setting(_OWNER) or self._config.device.device_id
                if owner == self._config.device.device_id:
                    store.journal.put_setting(_OWNER, owner)
                    break
                store.stop(_STORE_STOP_S)
                self._put_away(owner)
            except StorageError as error:
                store.stop(_STORE_STOP_S)
                if str(error) != logged:
                    logged = str(error)
                    _log.error("store=waiting %s; tried again every %.0f s", error, _STORE_RETRY_S)
                self._notifier.status(f"waiting for the disk: {error}")
                self._notifier.alive()  # after a reload the service manager watches already
                ending = self._supervisor.wait(_STORE_RETRY_S)
                if ending is not None:
                    return ending
        self._supervisor.watch("store", store.stuck_for_s)
        return None

    def _make_store(self) -> Store:
        config = self._config
        return Store(
            config.state_dir / FILE_NAME,
            clock=self._clock,
            bounds=Bounds(config.outbox.max_rows, config.outbox.max_bytes, config.outbox.max_age_s),
            group_window_s=config.outbox.send_every_s,
            trusts_wall=False,
            on_state=self._log_store,
            on_crash=self._supervisor.crashed,
        )

    def _put_away(self, owner: str) -> None:
        """Another device's store gets another name."""
        path = self._config.state_dir / FILE_NAME
        former = path.with_name(f"{FILE_NAME}.{re.sub('[^A-Za-z0-9_-]', '_', owner)[:100]}.{int(time.time())}.old")
        try:
            for ending in ("-wal", ""):
                part = path.with_name(path.name + ending)
                if part.exists():
                    part.rename(former.with_name(former.name + ending))
        except OSError as error:
            fault = f"the store of device {owner} cannot be renamed: {error}: mend {path.parent}, or take that id again"
            raise ConfigurationError([fault], "state") from None
        own = self._config.device.device_id
        _log.warning("device=changed from %s to %s: what waited for the former one is in %s", owner, own, former)

    def _schedule_after_start(self, agent: Agent) -> None:
        """Schedule what follows a start: calling it healthy, leaving safe mode, judging a new configuration."""
        counter = self._counter
        if counter.is_safe:
            _log.error("mode=safe for %.0f s: %s", counter.safe_for_s, counter.why)
            self._health.put("mode", "safe", f"{counter.why}; restart_agent or another configuration ends it")
            self._supervisor.schedule(
                counter.safe_for_s, lambda: self._restart_when_idle("safe mode is over: all is tried again")
            )
        else:
            self._supervisor.schedule(HEALTHY_AFTER_S, counter.healthy)
        if counter.trial is not None:
            from agent.app.trial import TrialEnd  # only while there is a trial

            TrialEnd(
                counter,
                parts=self._health.parts,
                schedule=self._supervisor.schedule,
                conclude=agent.conclude,
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
        """Let SIGHUP reload, and SIGUSR1 write what the store holds into the status file, both in the main thread."""
        wishes = {signal.SIGHUP: self._wants_reload, signal.SIGUSR1: self._wants_store}

        def handle(number: int, _frame: FrameType | None) -> None:
            wishes[signal.Signals(number)].set()
            self._supervisor.changed()

        before = {number: signal.signal(number, handle) for number in wishes}
        # One that came since the program began has waited.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        try:
            yield
        finally:
            # The process image after this one inherits it: none of them finds it without a handler.
            signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _reload(self) -> None:
        self._notifier.reloading()
        try:
            loaded = self._read()
            read_credentials(loaded.config.auth, self._environ)
        except ConfigurationError as error:
            for fault in error.faults:
                _log.error("reload=refused %s; what was in force stays", fault)
            self._health.put(_CONFIGURATION, "refused", f"the file was changed and is wrong: {'; '.join(error.faults)}")
            self._notifier.ready()
            return
        changed, heavy = needs_restart(self._config, loaded.config)
        keys = ", ".join(".".join(key) for key in heavy or changed) or "nothing"
        if loaded.layer_fault:
            self._health.put(_CONFIGURATION, "layer_ignored", loaded.layer_fault)
        else:
            self._health.put(_CONFIGURATION, "ok")
        if heavy or self._counter.is_safe:
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

    # --- what it reports ----------------------------------------------------------------------------------------------

    def _changed(self) -> str:
        if self._wants_reload.is_set():
            self._wants_reload.clear()
            self._reload()
        self._write_status("running", "")
        return self._health.summary()

    def _write_status(self, state: str, reason: str) -> None:
        now = self._clock.now()
        plugins = self._agent.plugins() if self._agent is not None else ()
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
            packages=packages_of(plugins),
            store=self._store_status() if state == "running" and self._wants_store.is_set() else None,
            plugins=states_of(plugins),
        )
        self._wants_store.clear()
        try:
            write_status(self._status_path, status)
        except OSError as error:
            _log.debug("status=not_written %s: %s", self._status_path, error)

    def _view(self, loaded: LoadedConfig) -> AgentView:
        why = self._counter.why
        return AgentView(
            path=loaded.path,
            environ=self._environ,
            config=lambda: self._config,
            parts=self._health.parts,
            lines=self._ring.lines,
            store=self._store_status,
            plugins=lambda: self._agent.plugins() if self._agent is not None else (),
            mode=f"safe: {why}" if why else "normal",
        )

    def _count(self, entry: JournalEntry) -> None:
        if self._metrics is not None:
            self._metrics.ended(entry)

    def _serve_metrics(self, agent: Agent, store: Store) -> Callable[[], None] | None:
        if self._config.metrics is None:
            return None
        from agent.app.metrics import AgentMetrics, Sources  # prometheus_client
        from agent.app.metrics_server import MetricsServer

        sources = Sources(
            clock=self._clock,
            started=self._started,
            starts=agent.starts,
            handlers=agent.handler_names,
            health=self._health,
            outbox=store.outbox.stats,
            commands=store.journal.counts,
            service_time=agent.service_time,
        )
        self._metrics = AgentMetrics(sources)
        server = MetricsServer(self._metrics.registry, self._config.metrics.host, self._config.metrics.port)
        _log.info("metrics=%s", server.address)
        return server.stop

    def _crashed(self, thread: str) -> None:
        self._health.put(thread, CRASHED, CRASHED_TEXT)

    def _log_store(self, state: str, detail: str) -> None:
        _log.log(logging.INFO if state == OK else logging.ERROR, "store=%s %s", state, detail)
        self._health.put("store", state, "" if state == OK else detail)

    def _store_status(self) -> StoreStatus | None:
        return None if self._store is None else self._store.status()
