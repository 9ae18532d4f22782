"""The service as a library: started in a test or a demo on any free port, stopped at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from pathlib import Path
from typing import Final, Self, TypeVar
from urllib.parse import urlsplit

import uvicorn
from fastapi import APIRouter

from agent.errors import ConfigurationError
from agent.wire.secret import Secret
from simulator.listening import refused_port
from simulator.service.app import build_app
from simulator.service.caller import is_loopback_host
from simulator.service.config import ServiceConfig
from simulator.service.control.accounts import Keys, first_account, oldest_key, set_variant
from simulator.service.db import one
from simulator.service.gate import CONSOLE_PREFIX
from simulator.service.service import Service
from simulator.service.variant import ServerVariant
from simulator.watched import PartEnded

log = logging.getLogger(__name__)

T = TypeVar("T")

DRAIN_S: Final = 3
"""How long requests that are under way may take when the service ends."""
_BACKLOG: Final = 2048
_LOOK_S: Final = 1.0


class RunningService:
    """A service that runs for as long as the ``with`` block, in a thread of its own.

    Args:
        config: its settings; the default is in a temporary folder, on any free port, with keys made now.
        up: folder in which ``fleet-simulator up`` says what stands around it, for runs that the console starts.

    Raises:
        ConfigurationError: the port is in use, or the data folder or the seed cannot be used.
    """

    def __init__(self, config: ServiceConfig | None = None, up: Path | None = None) -> None:
        self.config = config or ServiceConfig()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        with contextlib.ExitStack() as ends:
            listener = ends.enter_context(listen(self.config.host, self.config.port))
            self._service = Service(self.config)
            ends.callback(self._service.close)
            self._service.public_url = base_url(listener)
            self._server = uvicorn.Server(_uvicorn_config(self._service, self._started, up))
            self._ends = ends.pop_all()
        self._listener = listener
        self._thread = threading.Thread(target=self._run, name="service-http", daemon=True)

    def _started(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready.set()

    def _run(self) -> None:
        try:
            self._server.run([self._listener])
        except BaseException as error:
            log.exception("the service has ended")
            self._failure = error
        finally:
            self._ready.set()

    def start(self) -> Self:
        """Serve; returns when requests are taken: the listening socket is there already.

        Raises:
            PartEnded: the server ended before it was ready.
        """
        try:
            self._thread.start()
            self._ready.wait()
            self.look()
        except BaseException:
            self.stop()
            raise
        return self

    def look(self) -> None:
        """Raise when it has ended by itself.

        Raises:
            PartEnded: what ended it.
        """
        if self._failure is not None or not self._thread.is_alive():
            raise PartEnded("service", self._failure or RuntimeError("the server has stopped"))

    def stop(self) -> None:
        """End: held polls are answered, what waits is written, the storage is closed. Harmless when it has ended."""
        self._server.should_exit = True
        if self._loop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._service.stop_waiting)
        if self._thread.ident is not None:
            self._thread.join()
        self._ends.close()

    def do(self, work: Callable[[Service], T]) -> T:
        """Carry it out in the service's thread, with its transaction committed; what it returns.

        Raises:
            PartEnded: the service has ended meanwhile.
        """

        async def carry_out() -> T:
            result = work(self._service)
            await self._service.db.committed()
            return result

        if self._loop is None:
            raise RuntimeError("the service has not been started")
        self.look()
        done = asyncio.run_coroutine_threadsafe(carry_out(), self._loop)
        while not wait((done,), _LOOK_S).done:
            self.look()
        return done.result()

    @property
    def base_url(self) -> str:
        """Where it is reached, such as ``http://127.0.0.1:41817``."""
        return self._service.public_url

    @property
    def api_key(self) -> str:
        """The first account's public key."""
        own = self._service.own_keys
        return self.do(oldest_key) if own is None else own.api_key

    @property
    def made_keys(self) -> Keys | None:
        """The first account's key pair, where this start has made it."""
        return self._service.made_keys

    @property
    def secret_key(self) -> Secret:
        """The first account's secret.

        Raises:
            ConfigurationError: an earlier start made it, and it was not given to this one.
        """
        keys = self._service.own_keys
        if keys is None:
            raise ConfigurationError(["an earlier start made the keys of this data folder: give them"], "service keys")
        return keys.secret_key

    @property
    def control_token(self) -> Secret | None:
        """What callers of control paths must send; None where none is needed."""
        return self._service.control_token

    @property
    def console_url(self) -> str | None:
        """The console's address with its token, for a browser of this machine.

        None without a console, and where the service listens at another address alone: its pages are for loopback.
        """
        token = self._service.console_token
        is_reached = is_loopback_host(urlsplit(self.base_url).netloc)
        return None if token is None or not is_reached else f"{self.base_url}{CONSOLE_PREFIX}/#token={token.reveal()}"

    @property
    def where(self) -> str:
        """Where everything is kept, for a person."""
        return self._service.db.where

    @property
    def variant(self) -> ServerVariant:
        """How the first account is answered."""

        def look(service: Service) -> ServerVariant:
            row = one(service.db.sql, "SELECT variant FROM accounts ORDER BY row LIMIT 1")
            given = None if row is None else row["variant"]
            return ServerVariant() if given is None else ServerVariant.model_validate_json(given)

        return self.do(look)

    def set_variant(self, variant: ServerVariant) -> None:
        """Answer the first account as this server would from now on."""

        def change(service: Service) -> None:
            with service.db.write() as sql:
                set_variant(sql, first_account(sql), variant)

        self.do(change)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket.

    Raises:
        ConfigurationError: the address is in use or is none of this machine's.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as exc:  # the latter of a host name that cannot be one
        raise refused_port(host, port, exc, "--port") from None
    return listener


def base_url(listener: socket.socket) -> str:
    """The URL of a listening socket; of one that listens everywhere, on this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - what nobody can be reached at
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _uvicorn_config(service: Service, on_start: Callable[[], None], up: Path | None) -> uvicorn.Config:
    logging.getLogger("simulator.service").setLevel(service.config.log_level.upper())
    return uvicorn.Config(
        build_app(service, on_start, _console(service, up)),
        http=service.connections.protocol(),
        ws="none",
        lifespan="on",
        log_config=None,
        log_level=max(logging.WARNING, logging.getLevelName(service.config.log_level.upper())),
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=DRAIN_S,
        backlog=_BACKLOG,
    )


def _console(service: Service, up: Path | None) -> Sequence[APIRouter]:
    if service.console_token is None:
        return ()
    from simulator.console.app import ConsoleSettings, make_console  # only where somebody looks at it

    config = service.config
    return make_console(service, ConsoleSettings(config.runs_dir or Path("fleet-runs"), config.scenarios_dir, up))
