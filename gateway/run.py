"""``device-gateway run``, the gateway's process: one event loop, everything started in order and stopped in reverse."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import sqlite3
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import uvicorn
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from agent.app.lock import state_lock
from agent.app.logs import set_up_logging
from agent.app.metrics import MetricsServer
from agent.app.status import StatusFile, status_path, write_status
from agent.app.version import VERSION
from agent.errors import EXIT_CRASHED, EXIT_STOPPED, ConfigurationError
from agent.health import Health
from agent.runtime.clocks import ServiceClock, SystemClock
from agent.runtime.supervisor import Notifier
from agent.wire.network import authority
from gateway.certificates import certificate_trouble
from gateway.commands import Commands
from gateway.config import GatewayConfig, HttpConfig
from gateway.http import HttpApp
from gateway.mqtt import MqttFront
from gateway.options import gateway_config_option, load
from gateway.quota import Quota
from gateway.readings import Uplink
from gateway.service import Service
from gateway.tokens import FILE_NAME, Tokens

_log = logging.getLogger(__name__)

_PREFIX: Final = "device_gateway"
WHO: Final = "gateway"
"""Owner of the status file."""
_NOTE_USE_S: Final = 60.0
_LOOK_S: Final = 1.0
FIRST_ANSWER_S: Final = 3.0
"""How long devices are not served yet, while the service's first answer, which brings its time, is waited for."""
_BACKLOG: Final = 2048
_KEEP_ALIVE_S: Final = 75
_DRAIN_S: Final = 3
_FILES_KEPT: Final = 256  # file descriptors that are not for devices


@click.command()
@gateway_config_option
def run(config_path: Path) -> None:
    """Run the gateway until SIGTERM or Ctrl-C.

    Device tokens and codes count at once; a new certificate or configuration needs a restart, which loses nothing.
    """
    config = load(config_path, with_keys=True)
    set_up_logging(config.logging.level, under_journald="JOURNAL_STREAM" in os.environ)
    with state_lock(config.state_dir):
        exit_code = asyncio.run(Gateway(config, os.environ).run())
    sys.exit(exit_code)


class Gateway:
    def __init__(self, config: GatewayConfig, environ: Mapping[str, str]) -> None:
        self._config = config
        self._environ = environ
        self._started_s = time.time()
        self._notifier = Notifier(environ)
        self._clock = SystemClock()
        self._health = Health(self._clock)
        self._written: object = None
        self._ending = asyncio.Event()
        self._reason, self._exit_code = "", EXIT_STOPPED
        self._tasks: list[asyncio.Task[None]] = []
        self._front: MqttFront | None = None

    async def run(self) -> int:
        """Start in order, wait for the end, stop in reverse; the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end, f"{number.name} received", EXIT_STOPPED)
        try:
            async with AsyncExitStack() as held:
                await self._start_all(held)
                self._notifier.ready()
                _log.info("gateway=ready version=%s service=%s", VERSION, self._config.service.base_url)
                await self._ending.wait()
                self._notifier.stopping()
                _log.info("gateway=stopping reason=%r", self._reason)
        except OSError as error:
            self._end(f"cannot start: {error}", EXIT_CRASHED)
            _log.error("gateway=cannot_start %s", error)
        finally:
            self._write_status("stopped")
            _log.info("gateway=stopped")
        return self._exit_code

    async def _start_all(self, held: AsyncExitStack) -> None:
        """Start every part; ``held`` ends them in reverse."""
        config, health = self._config, self._health
        tokens = Tokens(config.state_dir / FILE_NAME)
        held.callback(tokens.close)
        quota = Quota(config.requests_per_minute, time.monotonic)
        service = Service(
            config.service,
            config.auth.credentials(self._environ),
            quota,
            ServiceClock(self._clock, trust_wall=True),
            on_state=lambda state, detail: health.put("service", state, detail),
        )
        held.push_async_callback(service.close)
        uplink = Uplink(service)
        commands = Commands(service, tokens, config.commands.poll_s, config.commands.reconcile_s)
        counts: dict[str, Mapping[str, int]] = {"uplink": uplink.counts}
        if config.metrics.enabled:
            collector = GatewayCollector(self._started_s, quota, uplink, commands, health, counts)
            registry = CollectorRegistry()
            registry.register(collector)
            held.callback(MetricsServer(registry, config.metrics.host, config.metrics.port).stop)
        held.push_async_callback(self._cancel)
        if service.offered is None:
            self._start("discovery", service.keep_known())
        # The gateway gives devices the service's time; a new device uses it to tell old commands from new ones.
        until_s = time.monotonic() + FIRST_ANSWER_S
        while service.offered is None and not service.is_away and time.monotonic() < until_s:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        self._start("commands", commands.poll())
        self._start("events", commands.stream())
        app = HttpApp(config.http, service, uplink, commands, tokens)
        counts["http"] = app.counts
        await held.enter_async_context(serving(app, config.http, self._ended))
        if config.mqtt.enabled:
            front = MqttFront(config.mqtt, service, uplink, commands, tokens)
            counts["mqtt"] = front.counts
            self._front = front
            held.push_async_callback(front.stop)
            front.start().add_done_callback(self._ended)
        self._start("housekeeping", self._keep_house(tokens, commands, app))

    def _end(self, reason: str, exit_code: int) -> None:
        if not self._ending.is_set():
            self._reason, self._exit_code = reason, exit_code
            self._ending.set()

    # --- tasks --------------------------------------------------------------------------------------------------------

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.append(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """No task ends by itself: if one does, so does the process, to be started again by the service manager."""
        if not task.cancelled():
            _log.critical("%s=crashed report this as a bug", task.get_name(), exc_info=task.exception())
            self._end(f"{task.get_name()} crashed", EXIT_CRASHED)

    async def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task

    async def _keep_house(self, tokens: Tokens, commands: Commands, app: HttpApp) -> None:
        """Feed the service manager, write the status, follow and note the tokens, forget devices that have gone."""
        noted_s = time.monotonic()
        interval_s = min(_LOOK_S, self._notifier.watchdog_interval_s or _LOOK_S)
        while True:
            self._notifier.alive()
            self._look()
            await asyncio.sleep(interval_s)
            try:
                tokens.follow()
                tokens.note_first_use()
                app.end_revoked_polls()
                if time.monotonic() - noted_s >= _NOTE_USE_S:
                    noted_s = time.monotonic()
                    tokens.note_use()
                    commands.forget_unserved()
            except (ConfigurationError, sqlite3.Error) as error:
                self._health.put(
                    "tokens",
                    "unusable",
                    f"until it can be read again, revoked tokens still work: {error}",
                )
            else:
                self._health.put("tokens", "ok")

    def _look(self) -> None:
        if self._front is not None:
            self._health.put("mqtt", *self._front.state())
        trouble = certificate_trouble(self._config.http.certificate, time.time())
        self._health.put("http", "certificate" if trouble else "ok", trouble)
        now = {name: (part.state, part.detail) for name, part in self._health.parts().items()}
        if now != self._written:
            self._written = now
            self._write_status("running")
            self._notifier.status(self._health.summary())

    def _write_status(self, state: str) -> None:
        now = self._clock.now()
        status = StatusFile(
            state=state,
            process_id=os.getpid(),
            version=VERSION,
            device_id=WHO,
            started_wall_s=self._started_s,
            written_wall_s=now.wall_s,
            boot_id=now.boot_id,
            parts=self._health.parts(),
            reason=self._reason,
        )
        with suppress(OSError):  # a full disk is no reason to end
            write_status(status_path(self._config.state_dir, self._environ), status)


# --- the HTTP front on a socket ---------------------------------------------------------------------------------------


class _Server(uvicorn.Server):
    """A server in a process that has signal handlers of its own."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


@asynccontextmanager
async def serving(
    app: HttpApp, config: HttpConfig, on_end: Callable[[asyncio.Task[None]], object] = lambda _task: None
) -> AsyncIterator[str]:
    """Serve the application for the length of the block; where it listens, with the real port.

    Args:
        app: the application.
        config: where it listens.
        on_end: called if the server ends before the block does.

    Raises:
        ConfigurationError: the certificate or its key cannot be used.
        OSError: the address cannot be bound; its text names the fix.
    """
    tls = tls_context(config)
    listener = listen(config.host, config.port)
    server = _Server(
        uvicorn.Config(
            app,
            http="h11",  # it limits the size of a request's head
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=logging.WARNING,
            access_log=False,
            proxy_headers=True,
            forwarded_allow_ips=list(config.trusted_proxies),
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_DRAIN_S,
            backlog=_BACKLOG,
            limit_concurrency=max(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _FILES_KEPT),
            ssl_context_factory=None if tls is None else lambda _config, _default: tls,
        )
    )
    task = asyncio.create_task(server.serve([listener]), name="http")
    try:
        while not server.started and not task.done():  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        if task.done():
            raise OSError("the HTTP server ended while it started")
        scheme = "http" if tls is None else "https"
        base_url = f"{scheme}://{authority(config.host, listener.getsockname()[1])}"
        _log.info("http=listening at %s", base_url)
        task.add_done_callback(on_end)
        yield base_url
    finally:
        task.remove_done_callback(on_end)
        app.release()
        server.should_exit = True
        await asyncio.wait({task})
        listener.close()


def tls_context(config: HttpConfig) -> ssl.SSLContext | None:
    """The server's side of TLS; None where no certificate is configured.

    Raises:
        ConfigurationError: the certificate or its key cannot be used.
    """
    certificate, key = config.certificate, config.private_key
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without this an encrypted key would ask for its password on the terminal, and wait for ever.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        fault = f"{certificate} and {key or 'the key in it'} are no certificate with its unencrypted key: {reason}"
        raise ConfigurationError([f"{fault}; device-gateway certificates makes both"], "http") from None
    return context


def listen(host: str, port: int) -> socket.socket:
    """A socket that devices can connect to.

    Raises:
        OSError: there can be none, with the fix.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(
            address[:2], family=family, backlog=_BACKLOG, dualstack_ipv6=family == socket.AF_INET6
        )
    except OSError as error:
        fix = "end what listens there, or mend http.host and http.port"
        raise OSError(error.errno, f"cannot listen on {host} port {port}: {error.strerror}; {fix}") from None


# --- figures for Prometheus -------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class GatewayCollector(Collector):
    """Reads the figures when they are asked for.

    Attributes:
        started_s: when the process began, seconds since the epoch.
        counts: part -> event -> how often it happened.
    """

    started_s: float
    quota: Quota
    uplink: Uplink
    commands: Commands
    health: Health
    counts: Mapping[str, Mapping[str, int]]

    def collect(self) -> Iterator[Metric]:
        """All figures."""
        quota = self.quota
        yield InfoMetricFamily(_PREFIX, "The program", {"version": VERSION})
        yield GaugeMetricFamily(f"{_PREFIX}_start_timestamp_seconds", "When this process began", self.started_s)
        yield GaugeMetricFamily(f"{_PREFIX}_waiting", "Readings and results without an answer", self.uplink.waiting)
        for name, value in self.commands.figures().items():
            yield GaugeMetricFamily(f"{_PREFIX}_{name}", name.replace("_", " ").capitalize(), value)
        requests = CounterMetricFamily(f"{_PREFIX}_requests", "Requests to the service", labels=["kind"])
        for kind, count in dict(quota.requests).items():
            requests.add_metric([str(kind)], count)
        yield requests
        yield CounterMetricFamily(f"{_PREFIX}_requests_refused", "Answers 429", quota.refused)
        if quota.limit is not None:
            yield GaugeMetricFamily(f"{_PREFIX}_quota", "Requests in one window", quota.limit)
        left = quota.left
        if left is not None:
            yield GaugeMetricFamily(f"{_PREFIX}_quota_left", "Left in this window", left)
        healthy = GaugeMetricFamily(f"{_PREFIX}_part_ok", "1 while this part is well", labels=["part"])
        for name, part in self.health.parts().items():
            healthy.add_metric([name], float(part.state == "ok"))
        yield healthy
        events = CounterMetricFamily(f"{_PREFIX}_events", "What happened", labels=["part", "event"])
        for name, counts in dict(self.counts).items():
            for event, count in dict(counts).items():
                events.add_metric([name, event], count)
        yield events
