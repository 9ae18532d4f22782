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
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from agent.app.agent import Agent
from agent.app.lock import state_lock
from agent.app.logs import LogLevel, LogRing, set_up_logging
from agent.app.starts import HEALTHY_AFTER_S, SAFE_FOR_S, StartCounter, end_trial
from agent.app.status import StatusFile, status_path, write_status
from agent.app.transport import make_client
from agent.app.version import VERSION
from agent.config import LoadedConfig, read_credentials
from agent.config.load import changed_keys
from agent.core.outbox import Bounds
from agent.errors import EXIT_CRASHED, EXIT_REPLACE, ConfigurationError, StorageError
from agent.health import Health
from agent.plugins import packages_of, states_of
from agent.runtime.clocks import SystemClock
from agent.runtime.supervisor import CRASHED, CRASHED_TEXT, Ending, Notifier, Supervisor
from agent.store.sqlite import FILE_NAME
from agent.store.store import OK, Store

if TYPE_CHECKING:
    from agent.wire.client import DeviceClient

_log = logging.getLogger(__name__)

_STORE_RETRY_S: Final = 5.0
_STORE_STOP_S: Final = 1.0
_MOST_THREAD_BYTES: Final = 512 * 1024
# How long a restart that the agent itself wants waits for the commands that run.
_IDLE_WITHIN_S: Final = 30.0
_ASK_AGAIN_S: Final = 0.25
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
            held.enter_context(state_lock(state_dir))
        except ConfigurationError:
            read()  # the configuration's own faults come first: state_dir may be one of them
            raise
        counter = StartCounter(state_dir)
        counter.begin()
        try:
            loaded = read()
            if loaded.layer_fault and counter.on_trial and counter.take_back(loaded.layer_fault):
                loaded = read()
            counter.choose_mode(loaded.config.safe_mode.starts)
            process = AgentProcess(loaded, environ, counter, read)
            held.callback(process.supervisor.close)
            ending = process.run()
        except ConfigurationError as error:
            taken_back = counter.on_trial and counter.take_back("; ".join(error.faults))
            counter.ended_in_order()
            if not taken_back:
                raise
            return EXIT_REPLACE
        except Exception as error:
            counter.crashed(f"{type(error).__name__}: {error}")
            raise
        if ending.exit_code == EXIT_CRASHED:
            counter.crashed(ending.reason)
        else:
            counter.ended_in_order()
        return ending.exit_code


class AgentProcess:
    """One process of the agent with one configuration: what all parts share, and what the main thread does.

    Attributes:
        config: the configuration.
        path: of its local file; None where the environment holds all of it.
        environ: of the process.
        credentials: of service and broker.
        counter: of the starts; knows about safe mode and a configuration on trial.
        clock: both clocks.
        started: when the process began.
        supervisor: takes crashes and restarts, and watches the services.
        health: takes the state of each part.
        log_ring: the last lines of the log.
        log_level: of the log, which a command may set for a time.
        store: journal and outbox, once it is open.

    Raises:
        ConfigurationError: the keys cannot be used.
    """

    store: Store

    def __init__(self, loaded: LoadedConfig, environ: Mapping[str, str], counter: StartCounter, read: Read) -> None:
        self.config = config = loaded.config
        self.path = loaded.path
        self.environ = environ
        self.counter = counter
        self._read = read
        self.log_ring = LogRing()
        set_up_logging(config.logging.level, under_journald="JOURNAL_STREAM" in environ)
        logging.getLogger().addHandler(self.log_ring)
        self.credentials = read_credentials(config.auth, environ)
        self.clock = clock = SystemClock()
        self.started = clock.now()
        self._notifier = Notifier(environ)
        self._signals: set[int] = set()
        self._agent: Agent | None = None
        self.supervisor = Supervisor(
            self._notifier,
            clock,
            on_change=self._changed,
            on_crash=lambda thread: self.health.put(thread, CRASHED, CRASHED_TEXT),
        )
        self.health = Health(clock, self.supervisor.changed)
        self.log_level = LogLevel(config.logging.level, self.supervisor.schedule)
        if loaded.layer_fault:
            _log.error("configuration=layer_ignored %s", loaded.layer_fault)
            self.health.put(_CONFIGURATION, "layer_ignored", loaded.layer_fault)

    def run(self) -> Ending:
        """Start in order, wait for the end, stop in reverse."""
        service = self.config.service  # None where a broker is all there is
        making = nullcontext() if service is None else make_client(service, self.credentials)
        with self.supervisor.signals(), self._own_signals(), making as client:
            ending = self._pause() or self._open_store() or self._run_agent(client)
        if ending.exit_code == EXIT_REPLACE:
            _log.info("agent=replaced by a new process image")
        else:
            _log.info("agent=stopped exit_code=%d", ending.exit_code)
        return ending

    def _pause(self) -> Ending | None:
        """Safe mode that dies as well comes back more and more slowly."""
        pause_s, why = self.counter.pause_s, self.counter.why
        if not pause_s:
            return None
        _log.error("agent=waiting for %.0f s: safe mode did not stay up either: %s", pause_s, why)
        self._notifier.status(f"waiting for {pause_s:.0f} s: {why}")
        return self.supervisor.wait(pause_s)

    def _open_store(self) -> Ending | None:
        """Open this device's store; while the disk refuses, wait instead of ending: a restart would not mend it.

        Raises:
            ConfigurationError: the store of another device cannot be renamed.
        """
        config, own, logged = self.config, self.config.device.device_id, ""
        while True:
            self.store = store = Store(
                config.state_dir / FILE_NAME,
                clock=self.clock,
                bounds=Bounds(config.outbox.max_rows, config.outbox.max_bytes, config.outbox.max_age_s),
                group_window_s=config.outbox.send_every_s,
                trusts_wall=False,
                on_state=self._store_changed,
                on_crash=self.supervisor.crashed,
            )
            try:
                store.start()
                owner = store.journal.setting(_OWNER) or own
                if owner == own:
                    store.journal.put_setting(_OWNER, own)
                    break
                store.stop(_STORE_STOP_S)
                _rename_store(store.path, owner, own)
            except StorageError as error:
                store.stop(_STORE_STOP_S)
                if str(error) != logged:
                    logged = str(error)
                    _log.error("store=waiting %s; tried again every %.0f s", error, _STORE_RETRY_S)
                self._notifier.status(f"waiting for the disk: {error}")
                self._notifier.alive()  # after a reload the service manager watches already
                ending = self.supervisor.wait(_STORE_RETRY_S)
                if ending is not None:
                    return ending
        self.supervisor.watch("store", store.stuck_for_s)
        return None

    def _run_agent(self, client: DeviceClient | None) -> Ending:
        ending = Ending("never started", EXIT_CRASHED)
        try:
            self._agent = agent = Agent(self, client)
            agent.start()
            self._schedule_after_start(agent)
            _log.info("agent=ready version=%s device=%s", VERSION, self.config.device.device_id)
            ending = self.supervisor.run()
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
            if self._agent is not None:
                self._agent.stop()
            if not self.store.stop(_STORE_STOP_S):
                _log.warning("store=slow it did not close in time; what was acknowledged is on the disk")
            self._write_status("stopped", ending.reason)
        return ending

    def _schedule_after_start(self, agent: Agent) -> None:
        """Schedule what follows a start: calling it healthy, leaving safe mode, ending a configuration's trial."""
        counter, schedule = self.counter, self.supervisor.schedule
        if counter.is_safe:
            _log.error("mode=safe for %.0f s: %s", SAFE_FOR_S, counter.why)
            self.health.put("mode", "safe", f"{counter.why}; restart_agent or another configuration ends it")
            schedule(SAFE_FOR_S, lambda: self.restart_when_idle("safe mode is over: all is tried again"))
        else:
            schedule(HEALTHY_AFTER_S, counter.healthy)
        end_trial(agent)

    def restart_when_idle(self, reason: str, command_id: str = "", until_s: float | None = None) -> None:
        """End this process for the next one when no command but ``command_id`` runs, or when that takes too long."""
        now_s = self.clock.now().monotonic_s
        deadline_s = now_s + _IDLE_WITHIN_S if until_s is None else until_s
        try:
            others = self._agent.running() - {command_id} if self._agent is not None else set()
        except StorageError:
            others = set()
        if not others or now_s >= deadline_s:
            self.supervisor.end(reason, EXIT_REPLACE)
        else:
            self.supervisor.schedule(_ASK_AGAIN_S, lambda: self.restart_when_idle(reason, command_id, deadline_s))

    # --- signals: SIGHUP reads the configuration again, SIGUSR1 asks what the store holds -----------------------------

    @contextmanager
    def _own_signals(self) -> Iterator[None]:
        def handle(number: int, _frame: FrameType | None) -> None:
            self._signals.add(number)
            self.supervisor.changed()

        before = {number: signal.signal(number, handle) for number in HANDLED}
        # One that came since the program began has waited.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        try:
            yield
        finally:
            # The process image after this one inherits it: none of them finds it without a handler.
            signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _changed(self) -> str:
        """In the main thread, after a signal or when a part's state changed; the status line."""
        signals, self._signals = self._signals, set()
        if signal.SIGHUP in signals:
            self._reload()
        self._write_status("running", with_store=signal.SIGUSR1 in signals)
        return self.health.summary()

    def _reload(self) -> None:
        """Take over another configuration by a restart in place; one with a fault changes nothing."""
        self._notifier.reloading()
        try:
            loaded = self._read()
            read_credentials(loaded.config.auth, self.environ)
        except ConfigurationError as error:
            for fault in error.faults:
                _log.error("reload=refused %s; what was in force stays", fault)
            text = f"the file was changed and is wrong: {'; '.join(error.faults)}"
            self.health.put(_CONFIGURATION, "refused", text)
            self._notifier.ready()
            return
        if loaded.config == self.config and not self.counter.is_safe:
            if not loaded.layer_fault:
                self.health.put(_CONFIGURATION, "ok")
            _log.info("reload=done nothing changed")
            self._notifier.ready()
            return
        keys = ", ".join(".".join(key) for key in changed_keys(self.config, loaded.config))
        _log.info("reload=restart for %s", keys or "nothing")
        self.restart_when_idle(f"reload: {keys}")

    # --- the status file ----------------------------------------------------------------------------------------------

    def status(self, state: str, reason: str = "", *, with_store: bool = False) -> StatusFile:
        """How the agent is now.

        Args:
            state: ``running`` or ``stopped``.
            reason: why it stopped.
            with_store: also what its store holds, which takes some time.
        """
        now = self.clock.now()
        plugins = self._agent.plugins() if self._agent is not None else ()
        return StatusFile(
            state=state,
            process_id=os.getpid(),
            version=VERSION,
            device_id=self.config.device.device_id,
            started_wall_s=self.started.wall_s,
            written_wall_s=now.wall_s,
            boot_id=now.boot_id,
            parts=self.health.parts(),
            reason=reason,
            packages=packages_of(plugins),
            store=self.store.status() if with_store else None,
            plugins=states_of(plugins, self.health.parts()),
        )

    def _write_status(self, state: str, reason: str = "", *, with_store: bool = False) -> None:
        path = status_path(self.config.state_dir, self.environ)
        try:
            write_status(path, self.status(state, reason, with_store=with_store))
        except OSError as error:
            _log.debug("status=not_written %s: %s", path, error)

    def _store_changed(self, state: str, detail: str) -> None:
        _log.log(logging.INFO if state == OK else logging.ERROR, "store=%s %s", state, detail)
        self.health.put("store", state, "" if state == OK else detail)


def _rename_store(path: Path, owner: str, own: str) -> None:
    """Another device's store gets another name.

    Raises:
        ConfigurationError: it cannot be renamed.
    """
    former = path.with_name(f"{path.name}.{re.sub('[^A-Za-z0-9_-]', '_', owner)[:100]}.{int(time.time())}.old")
    try:
        for ending in ("-wal", ""):
            with suppress(FileNotFoundError):
                path.with_name(path.name + ending).rename(former.with_name(former.name + ending))
    except OSError as error:
        fault = f"the store of device {owner} cannot be renamed: {error}: mend {path.parent}, or take that id again"
        raise ConfigurationError([fault], "state") from None
    _log.warning("device=changed from %s to %s: what waited for the former one is in %s", owner, own, former)
