"""The HTTP front on a socket: uvicorn, with TLS where there is a certificate."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Final

import uvicorn

from agent.errors import ConfigurationError
from agent.wire.network import authority
from gateway.config import HttpConfig
from gateway.http import HttpApp

_log = logging.getLogger(__name__)

_BACKLOG: Final = 2048
_KEEP_ALIVE_S: Final = 75
_DRAIN_S: Final = 3
_FILES_KEPT: Final = 256  # file descriptors that are not for devices


class _Server(uvicorn.Server):
    """A server in a process that has signal handlers of its own."""

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()


@contextlib.asynccontextmanager
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
    listener = _listen(config.host, config.port)
    server = _Server(
        uvicorn.Config(
            app,
            http="h11",  # it bounds the head of a request
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
        # An encrypted key would ask for its password on a terminal without a person.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        fault = f"{certificate} and {key or 'the key in it'} are no certificate with its unencrypted key: {reason}"
        raise ConfigurationError([f"{fault}; device-gateway certificates makes both"], "http") from None
    return context


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(
            address[:2], family=family, backlog=_BACKLOG, dualstack_ipv6=family == socket.AF_INET6
        )
    except OSError as error:
        fix = "end what listens there, or mend http.host and http.port"
        raise OSError(error.errno, f"cannot listen on {host} port {port}: {error.strerror}; {fix}") from None
