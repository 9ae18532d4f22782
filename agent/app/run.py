"""The whole life of the agent's process: what is started in order is stopped in reverse."""

from __future__ import annotations

import logging
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from agent.adapters.clocks import asleep_s
from agent.adapters.sqlite_store import FILE_NAME
from agent.adapters.store_service import StoreService
from agent.app.agent import Agent
from agent.app.life import ProgramLife
from agent.app.links import open_client
from agent.app.logs import LogRing, TextFormatter, set_up_logging
from agent.app.starting import Starting
from agent.app.status_file import AgentView
from agent.app.upkeep import AgentUpkeep
from agent.app.version import VERSION
from agent.config import AgentConfig, Credentials, LoadedConfig, read_credentials
from agent.config.changes import Key, changed_keys, is_covered
from agent.config.model import OutboxConfig
from agent.core.outbox import Bounds, WhenFull
from agent.errors import ConfigurationError, StorageError
from agent.exit_codes import EXIT_CRASHED, EXIT_REPLACE, EXIT_STOPPED
from agent.plugins import packages_of, states_of
from agent.runtime.supervisor import Ending

if TYPE_CHECKING:
    from agent.adapters.metrics_server import MetricsServer
    from agent.adapters.store.status import StoreStatus
    from agent.app.figures import Figures


_log = logging.getLogger(__name__)

_STORE_STOP_S: Final = 1.0
_MOST_THREAD_BYTES: Final = 512 * 1024
# How long a restart that the agent itself wants waits for the commands that run.
_IDLE_WITHIN_S: Final = 30.0
_LOOK_EVERY_S: Final = 0.25
MODE: Final = "mode"
OWNER: Final = "device_id"
"""The setting of a store that says whose it is."""
CONFIGURATION: Final = "configuration"

Read = Callable[[], LoadedConfig]
"""Reads the configuration as it is now; raises :class:`~agent.errors.ConfigurationError`."""


HANDLED: Final = {signal.SIGHUP, signal.SIGUSR1}
"""Signals that wait until the agent has handlers for them: without one they would end it."""

LIVE: Final = (
    "logging.level",
    "logging.format",
    "commands.poll.fast_s",
    "commands.poll.slow_s",
    "commands.poll.idle_s",
    "sensors.*.interval_s",
    "sensors.*.report",
    "safe_mode",
)
"""The keys that come into force in the running agent; for every other key it restarts."""


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
        life = AgentLife(loaded, environ, starting, read)
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


class AgentLife(ProgramLife):
    """One run of the agent, from the lock to its release."""

    def __init__(self, loaded: LoadedConfig, environ: Mapping[str, str], starting: Starting, read: Read) -> None:
        self._config: AgentConfig = loaded.config
        self._starting = starting
        self._read = read
        self._environ = environ
        self._ring = LogRing(TextFormatter(under_journald=False))
        self._set_up_logging()
        self._credentials: Credentials = read_credentials(self._config.auth, environ)
        super().__init__(self._config.state_dir, environ, self._config.device.device_id, asleep_s)
        self._figures = self._make_figures()
        self._metrics: MetricsServer | None = None
        self._agent: Agent | None = None
        self._store: StoreService | None = None
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
        store = self._store = self._make_store()
        ending = Ending("never started", EXIT_CRASHED)
        with self._supervisor.signals(), self._hangups(), open_client(config, self._credentials) as client:
            early = self._pause() or self._open(store)
            if early is not None:
                return early
            self._starting.disk_is_writable()
            if not self._is_own(store):
                store = self._store = self._make_store()
                early = self._open(store)
                if early is not None:
                    return early
            try:
                if store.journal.setting(OWNER) != config.device.device_id:
                    store.journal.put_setting(OWNER, config.device.device_id)
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
                    started=self._started,
                    upkeep=self._upkeep,
                    safe_mode=self._starting.notes.why,
                    on_trial=None if trial is None else trial.command_id,
                    figures=self._figures,
                )
                self._metrics = self._serve_metrics(self._agent, store)
                self._agent.start()
                self._schedule_after_start()
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

    def _make_store(self) -> StoreService:
        config = self._config
        return StoreService(
            config.state_dir / FILE_NAME,
            clock=self._clock,
            bounds=outbox_bounds(config.outbox),
            group_window_s=config.outbox.group_window_s,
            trusts_wall=False,
            on_incident=self._log_incident,
            on_state=self._log_store,
            on_crash=self._supervisor.crashed,
        )

    def _is_own(self, store: StoreService) -> bool:
        """Whether the store is this device's; another device's gets another name.

        Raises:
            ConfigurationError: it cannot be renamed.
        """
        path, device_id = self._config.state_dir / FILE_NAME, self._config.device.device_id
        owner = store.journal.setting(OWNER) or device_id
        if owner == device_id:
            return True
        store.stop(_STORE_STOP_S)
        former = path.with_name(f"{FILE_NAME}.{re.sub('[^A-Za-z0-9_-]', '_', owner)[:100]}.{int(time.time())}.old")
        try:
            for ending in ("-wal", ""):
                part = path.with_name(path.name + ending)
                if part.exists():
                    part.rename(former.with_name(former.name + ending))
        except OSError as error:
            fault = f"the store of device {owner} cannot be renamed: {error}: mend {path.parent}, or take that id again"
            raise ConfigurationError([fault], "state") from None
        _log.warning("device=changed from %s to %s: what waited for the former one is in %s", owner, device_id, former)
        return False

    def _schedule_after_start(self) -> None:
        """Schedule what follows a start: calling it healthy, leaving safe mode, judging a new configuration."""
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
        with super()._hangups():
            # One that came since the program began has waited.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
            try:
                yield
            finally:
                # The process image after this one inherits it: none of them finds it without a handler.
                signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)

    def _reload(self) -> None:
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

    # --- what it reports ----------------------------------------------------------------------------------------------

    def _view(self, loaded: LoadedConfig) -> AgentView:
        why = self._starting.notes.why
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

    def _make_figures(self) -> Figures | None:
        if self._config.metrics is None:
            return None
        # Only a device that serves figures carries what makes them; a missing library is reported before the start.
        from agent.app import metrics as _needs_its_library
        from agent.app.figures import Figures

        del _needs_its_library
        return Figures(self._clock)

    def _serve_metrics(self, agent: Agent, store: StoreService) -> MetricsServer | None:
        if self._config.metrics is None or self._figures is None:
            return None
        from agent.adapters.metrics_server import MetricsServer
        from agent.app.metrics import MetricSources, make_registry

        sources = MetricSources(
            clock=self._clock,
            started=self._started,
            starts=agent.instance.starts,
            figures=self._figures,
            parts=self._health.parts,
            outbox=store.outbox.stats,
            results=store.journal.result_stats,
            service_time=agent.service_time,
        )
        server = MetricsServer(make_registry(sources), self._config.metrics.host, self._config.metrics.port)
        _log.info("metrics=%s", server.address)
        return server

    def _log_store(self, state: str, detail: str) -> None:
        if state == "ok":
            _log.info("store=ok readings are stored again")
        self._health.put("store", state, detail)

    def _store_status(self) -> StoreStatus | None:
        return None if self._store is None else self._store.status()

    def _packages(self) -> Mapping[str, str]:
        return packages_of(self._agent.plugins()) if self._agent is not None else {}

    def _plugins(self) -> Mapping[str, str]:
        return states_of(self._agent.plugins()) if self._agent is not None else {}


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


def needs_restart(old: AgentConfig, new: AgentConfig) -> tuple[list[Key], list[Key]]:
    """The keys that changed, and those among them that only a restart brings into force."""
    changed = changed_keys(old, new)
    # Their order decides which sensor may call its readings by their short names.
    if [sensor.name for sensor in old.sensors] != [sensor.name for sensor in new.sensors]:
        changed = sorted({*changed, ("sensors",)})
    return changed, [key for key in changed if not is_covered(key, LIVE)]
