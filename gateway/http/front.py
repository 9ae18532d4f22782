"""The HTTP front: the application on a socket, in a thread of its own, with TLS where it has a certificate."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import uvicorn

from agent.errors import ConfigurationError
from agent.threads import OnCrash, WatchedThread, only_logged
from agent.wire.address import authority
from gateway.certificates import certificate_trouble
from gateway.config import HttpConfig
from gateway.http.app import GatewayApp, Limits
from gateway.http.enrollment import Enrollment
from gateway.ports import DeviceBackend, FrontStatus, TokenCheck

_log = logging.getLogger(__name__)

_BACKLOG: Final = 2048
_DRAIN_S: Final = 3
_KEEP_ALIVE_S: Final = 75


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The address that the front listens on, and its certificate.

    Attributes:
        port: 0 takes any free one.
        certificate: PEM file with the server's certificate and those above it; None serves plain HTTP, for loopback and
            for a proxy in front.
        private_key: PEM file; None when the certificate's file holds it too.
        limits: what one device may ask.
    """

    host: str = "127.0.0.1"
    port: int = 8081
    certificate: Path | None = None
    private_key: Path | None = None
    limits: Limits = field(default_factory=Limits)


def http_settings(http: HttpConfig) -> HttpSettings:
    """The section ``http`` as settings of the front."""
    limits = Limits(http.requests_per_minute, body_s=http.body_timeout_s)
    return HttpSettings(http.host, http.port, http.certificate, http.private_key, limits)


class HttpFront:
    """A :class:`~gateway.ports.Front` for devices that speak HTTP.

    Args:
        settings: where it listens.
        backend: takes and gives what devices send and get.
        tokens: says whose token it is.
        enrollment: takes devices with a code; None where there is none.
        wall: epoch seconds, for the ``Date`` of answers: the service's clock, which commands are dated by.
        on_crash: see :class:`~agent.threads.WatchedThread`.

    Raises:
        ConfigurationError: the certificate or its key cannot be used.
    """

    name = "http"

    def __init__(
        self,
        settings: HttpSettings,
        backend: DeviceBackend,
        tokens: TokenCheck,
        *,
        enrollment: Enrollment | None = None,
        wall: Callable[[], float] = time.time,
        on_crash: OnCrash = only_logged,
    ) -> None:
        self._settings = settings
        self._app = GatewayApp(backend, tokens, settings.limits, enrollment=enrollment, wall=wall)
        self._tls = tls_context(settings)
        self._on_crash = on_crash
        self._server: _Server | None = None
        self._socket: socket.socket | None = None
        self._thread: WatchedThread | None = None
        self._is_stopping = False
        self._trouble = ""

    @property
    def base_url(self) -> str:
        """Where it listens, such as ``https://0.0.0.0:8443``; the port is the real one once it has started."""
        settings = self._settings
        host, port = self._socket.getsockname()[:2] if self._socket is not None else (settings.host, settings.port)
        return f"{'http' if self._tls is None else 'https'}://{authority(host, port)}"

    def start(self) -> None:
        """Begin; returns once devices can be served or, for a broker, once connecting has begun."""
        self._socket = _listen(self._settings.host, self._settings.port)
        self._server = _Server(self._app, self._tls)
        self._thread = WatchedThread(self._serve, name="gateway-http", on_crash=self._on_crash)
        self._thread.start()
        self._server.wait_until_ready()
        if not self._server.started:
            self.stop(_DRAIN_S)
            raise ConfigurationError(["the HTTP front ended before it was ready; the log says why"], "http")
        self._check_certificate()
        _log.info("http=listening at %s", self.base_url)

    def stop(self, timeout_s: float) -> bool:
        """Take nothing new, end what is held, and return; True when all threads have ended in time."""
        ended = True
        self._is_stopping = True
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(timeout_s)
            ended = not self._thread.is_alive()
        if self._socket is not None:
            self._socket.close()
        return ended

    def reload(self) -> None:
        """Take the certificate that lies in its file now; connections that are open keep theirs (``SIGHUP``).

        Raises:
            ConfigurationError: it cannot be used; the one from before stays.
        """
        if self._tls is not None:
            tls_context(self._settings)  # looked at before it replaces one that works
            _load(self._tls, self._settings)
            self._check_certificate()

    def status(self) -> FrontStatus:
        """How it does. See :meth:`gateway.ports.Front.status`."""
        listening = self._thread is not None and self._thread.is_alive()
        return FrontStatus("listening" if listening else "stopped", self._trouble, dict(self._app.counts))

    def _serve(self) -> None:
        server, listener = self._server, self._socket
        if server is None or listener is None:
            return
        server.run([listener])
        if server.started and not self._is_stopping:
            raise RuntimeError("the server of the HTTP front ended by itself")

    def _check_certificate(self) -> None:
        if self._settings.certificate is None:
            return
        self._trouble = certificate_trouble(self._settings.certificate, time.time())
        if self._trouble:
            _log.error("http=certificate %s", self._trouble)


class _Server(uvicorn.Server):
    """Uvicorn, which lets held polls go when it ends."""

    def __init__(self, app: GatewayApp, tls: ssl.SSLContext | None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop=_loop(),
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level=logging.WARNING,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_DRAIN_S,
                backlog=_BACKLOG,
                ssl_context_factory=None if tls is None else lambda _config, _default: tls,
            )
        )
        self._gateway_app = app
        self._ready = threading.Event()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            super().run(sockets)
        finally:
            self._ready.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        asyncio.get_running_loop().call_soon(self._ready.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._gateway_app.release()
        await super().shutdown(sockets)

    def wait_until_ready(self) -> None:
        """Returns when requests are taken, or when it has ended."""
        self._ready.wait()


def tls_context(settings: HttpSettings) -> ssl.SSLContext | None:
    """The server's side of TLS; None where the settings name no certificate.

    Raises:
        ConfigurationError: the certificate or its key cannot be used.
    """
    if settings.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, settings)
    return context


def _load(context: ssl.SSLContext, settings: HttpSettings) -> None:
    certificate, key = settings.certificate, settings.private_key
    if certificate is None:
        return
    try:
        # An encrypted key would ask for its password on a terminal without a person.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except FileNotFoundError:
        missing = certificate if key is None or not certificate.exists() else key
        fault = f"{missing}: there is no such file; make one with device-gateway certificates, or mend the path"
        raise ConfigurationError([fault], "http") from None
    except PermissionError:
        fault = f"{key or certificate} may not be read by this user; chown it to the gateway's user"
        raise ConfigurationError([fault], "http") from None
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        fault = (
            f"{certificate} and {key or 'the key in it'} do not make a certificate with its unencrypted key: {reason}"
        )
        raise ConfigurationError([fault], "http") from None


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        OSError: the address cannot be bound; its text names the fix.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise OSError(error.errno, f"http.host {host!r} is no address of this machine: {error.strerror}") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # "::" is IPv4 too
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            text = f"port {port} on {host} is in use: stop what listens there, or set another http.port"
        else:
            text = f"cannot listen on {host} port {port}: {error.strerror}; mend http.host and http.port"
        raise OSError(error.errno, text) from None
    return listener


def _loop() -> str:
    try:
        import uvloop  # noqa: F401 - not there on every system
    except ImportError:
        return "asyncio"
    return "uvloop"
