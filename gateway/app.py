"""The whole life of the gateway's process: what is started in order is stopped in reverse."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final

from agent.adapters.metrics_server import MetricsServer
from agent.adapters.sd_notify import make_notifier
from agent.app.disk_wait import retry_until_disk_writable
from agent.app.life import ProgramLife
from agent.app.lock import StateLock
from agent.app.logs import set_up_logging
from agent.app.version import VERSION
from agent.errors import ConfigurationError, StorageError
from agent.exit_codes import EXIT_CRASHED
from agent.runtime.supervisor import Ending
from gateway.config import GatewayConfig, LoadedGateway
from gateway.devices.token_file import FILE_NAME as TOKENS_FILE_NAME
from gateway.devices.token_table import TokenTable
from gateway.engine import STOP_FRONT_S, Engine
from gateway.http.front import HttpFront
from gateway.metrics import GatewayCollector, serve_metrics
from gateway.status import WHO
from gateway.store.schema import FILE_NAME
from gateway.store.service import StoreWriter

_log = logging.getLogger(__name__)

_STORE_STOP_S: Final = 10.0
_DRAIN_S: Final = 5.0
MOST_STOP_S: Final = 2 * STOP_FRONT_S + _DRAIN_S + _STORE_STOP_S
"""The longest that a stop in order takes."""
_MOST_THREAD_BYTES: Final = 1024 * 1024

Reload = Callable[[], LoadedGateway]
"""Reads the configuration again; raises :class:`~agent.errors.ConfigurationError`."""


def run_gateway(loaded: LoadedGateway, environ: Mapping[str, str], reload: Reload) -> int:
    """Run until the end; the exit code.

    Raises:
        ConfigurationError: keys, state directory, address or certificate cannot be used; nothing was started.
    """
    config = loaded.config
    set_up_logging(config.logging.level, config.logging.format, under_journald="JOURNAL_STREAM" in environ)
    threading.stack_size(_MOST_THREAD_BYTES)
    with ExitStack() as held:
        retry_until_disk_writable(
            lambda: held.enter_context(StateLock(config.state_dir)), lambda: make_notifier(environ)
        )
        life = GatewayLife(config, environ, reload)
        try:
            return life.run().exit_code
        finally:
            life.close()


class GatewayLife(ProgramLife):
    """One run of the gateway, from the lock to its release."""

    def __init__(self, config: GatewayConfig, environ: Mapping[str, str], reload: Reload) -> None:
        self._config = config
        self._read = reload
        self._credentials = config.auth.credentials(environ)
        super().__init__(config.state_dir, environ, WHO)
        self._tokens: TokenTable | None = None
        self._engine: Engine | None = None

    def run(self) -> Ending:
        """Start in order, wait for the end, stop in reverse."""
        config = self._config
        store = StoreWriter(
            config.state_dir / FILE_NAME,
            clock=self._clock,
            on_incident=self._log_incident,
            on_crash=self._supervisor.crashed,
        )
        with self._supervisor.signals(), self._hangups():
            early = self._open(store)
            if early is not None:
                return early
            try:
                return self._serve(store)
            finally:
                if not store.stop(_STORE_STOP_S):
                    _log.warning("store=slow it did not close in time; what was acknowledged is on the disk")
                _log.info("gateway=stopped")

    def _serve(self, store: StoreWriter) -> Ending:
        config = self._config
        self._supervisor.watch(lambda now_s: "the store does not answer" if store.stuck_for_s(now_s) else None)
        ending = Ending("never started", EXIT_CRASHED)
        self._tokens = TokenTable(
            config.state_dir / TOKENS_FILE_NAME,
            on_state=lambda state, detail: self._health.put("tokens", state, detail),
            on_crash=self._supervisor.crashed,
        )
        self._tokens.start()
        metrics: MetricsServer | None = None
        try:
            engine = Engine(
                config,
                self._credentials,
                store=store,
                tokens=self._tokens,
                clock=self._clock,
                supervisor=self._supervisor,
                health=self._health,
            )
            self._engine = engine
            if config.metrics.enabled:
                collector = GatewayCollector(engine, self._health, self._started.wall_s)
                metrics = serve_metrics(config.metrics.host, config.metrics.port, collector)
                _log.info("metrics=%s", metrics.address)
            engine.start()
            _log.info("gateway=ready version=%s service=%s", VERSION, config.service.base_url)
            ending = self._supervisor.run()
        except (StorageError, OSError) as error:
            ending = Ending(f"cannot start: {error}", EXIT_CRASHED)
            _log.error("gateway=cannot_start %s", error)
        except Exception as error:
            ending = Ending(f"{type(error).__name__}: {error}", EXIT_CRASHED)
            raise
        finally:
            self._notifier.stopping()
            _log.info("gateway=stopping reason=%r", ending.reason)
            if self._engine is not None:
                self._engine.stop(_DRAIN_S)
            if metrics is not None:
                metrics.stop()
            self._tokens.close()
            self._write_status("stopped", ending.reason)
        return ending

    # --- reload ---------------------------------------------------------------------------------------------------

    def _reload(self) -> None:
        """Tokens, certificates and the log level as they are now; all else needs a restart, and says so."""
        faults: list[str] = []
        try:
            new = self._read().config
        except ConfigurationError as error:
            new = self._config
            faults += error.faults
        set_up_logging(new.logging.level, new.logging.format, under_journald="JOURNAL_STREAM" in self._environ)
        self._config = self._config.model_copy(update={"logging": new.logging})
        changed = sorted(name for name in type(new).model_fields if getattr(new, name) != getattr(self._config, name))
        try:
            if self._tokens is not None:
                self._tokens.reload()
            for front in self._engine.fronts if self._engine is not None else ():
                if isinstance(front, HttpFront):
                    front.reload()
        except ConfigurationError as error:
            faults += error.faults
        for fault in faults:
            _log.error("reload=refused %s; what was in force stays", fault)
        if changed:
            _log.warning("reload=partly these sections change with a restart only: %s", ", ".join(changed))
        if not faults:
            _log.info("reload=done tokens, certificate and log level are as in the files")
