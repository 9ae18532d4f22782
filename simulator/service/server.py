"""The service as a library: started in a test or a demo on any free port, stopped at the end."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from types import FrameType
from typing import Any, Final, Self

import uvicorn
from starlette.types import Lifespan

from agent.errors import ConfigurationError
from agent.wire.secret import Secret
from simulator.listening import refused_port
from simulator.service.accounts import WantedUser
from simulator.service.additions import Addition, MakeAddition
from simulator.service.app import build_app
from simulator.service.config import ServiceConfig
from simulator.service.profiles.model import ServerProfile
from simulator.service.service import Service
from simulator.service.storage.clients import NewClient, WantedClient
from simulator.service.storage.keys import Keys
from simulator.service.whole_state import save_at_end
from simulator.watched import PartEnded, make_thread

DRAIN_S: Final = 3
"""How long requests that are under way may take when the service ends."""
_BACKLOG: Final = 2048


class _Server(uvicorn.Server):
    """Uvicorn, which lets held polls go when it ends, ends with its service, and with exit code 0 after a signal."""

    def __init__(
        self, config: uvicorn.Config, service: Service, addition: Addition | None, on_ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._service = service
        self.addition = addition
        self._on_ready = on_ready
        service.on_failed(self._leave)

    def _leave(self, _failure: PartEnded) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.waiters.close()
        self._service.feed.close()
        self._service.faults.close()
        self._service.payload_checks.close()
        if self.addition is not None:
            self.addition.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._end) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True


class RunningService:
    """A service that runs for as long as the ``with`` block, in a thread of its own.

    Args:
        config: its settings; the default is in a temporary folder, on any free port, with keys made now.
        on_failure: called once when an error has ended a part of the service, which then ends; from any thread.
        make_addition: makes further endpoints and pages for it; None for none.

    Raises:
        ConfigurationError: the port is in use, or the data folder cannot be used.
    """

    def __init__(
        self,
        config: ServiceConfig | None = None,
        on_failure: Callable[[PartEnded], object] = lambda _failure: None,
        make_addition: MakeAddition | None = None,
    ) -> None:
        self.config = config or ServiceConfig()
        self._ready = threading.Event()
        self._listener = listen(self.config.host, self.config.port)
        try:
            self._service = Service(self.config)
            try:
                self._service.public_url = base_url(self._listener)
                self._server = make_server(self._service, self._ready.set, make_addition)
            except BaseException:
                self._service.close()
                raise
        except BaseException:
            self._listener.close()
            raise
        self.addition = self._server.addition
        """Further endpoints and pages; None without."""
        self._service.on_failed(on_failure)
        self._thread = make_thread(self._run, "service-http", self._service.fail)
        self._stopped = False

    def start(self) -> Self:
        """Serve; returns when requests are taken.

        Raises:
            ConfigurationError: the server ended before it was ready; the log says why.
        """
        self._thread.start()
        self._ready.wait()
        if not self._server.started:
            self.stop()
            raise ConfigurationError(["the service ended before it was ready; its log says why"], "service")
        return self

    def _run(self) -> None:
        try:
            self._server.run([self._listener])
        finally:
            self._ready.set()

    def stop(self) -> None:
        """End: held polls are answered, what waits is written, the storage is closed.

        Raises:
            StorageError: the snapshot at the end could not be written.
        """
        if self._stopped:
            return
        self._stopped = True
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._listener.close()
        try:
            if self.config.snapshot_on_exit is not None and self._service.failure is None:
                save_at_end(self._service, self.config.snapshot_on_exit)
        finally:
            self._service.close()

    @property
    def failure(self) -> PartEnded | None:
        """Which part of it an error has ended; None while all is well."""
        return self._service.failure

    @property
    def base_url(self) -> str:
        """Where it is reached, such as ``http://127.0.0.1:41817``."""
        return self._service.public_url

    @property
    def api_key(self) -> str:
        """The first account's public key."""
        return self._service.accounts.api_key

    @property
    def secret_key(self) -> Secret:
        """The first account's secret.

        Raises:
            ConfigurationError: an earlier start made it, and it was not given to this one.
        """
        return self._service.accounts.secret_key

    @property
    def control_token(self) -> Secret | None:
        """What callers of control paths must send; None where none is needed."""
        return self._service.control_token

    def add_account(self, name: str, made: Keys | None = None) -> Keys:
        """A further manufacturer, with keys of its own: these, or fresh ones."""
        return self._service.accounts.add_now(name, made)

    def set_profile(self, profile: ServerProfile, api_key: str | None = None) -> None:
        """Answer an account by this profile from now on; the first account when no key is given.

        Raises:
            ConfigurationError: there is no such account.
        """
        self._service.accounts.set_profile_now(profile, self._account(api_key))

    def add_user(
        self,
        email: str,
        password: Secret | str,
        *,
        user_id: str | None = None,
        api_key: str | None = None,
        has_account: bool = True,
    ) -> str:
        """A person who may sign in.

        Args:
            email: unique on the whole service.
            password: stored as scrypt.
            user_id: the person's id; made when None.
            api_key: a key of the account that the person belongs to; the first account when None.
            has_account: False for a person who is no manufacturer before the first approval of a partner.

        Returns:
            The person's id.

        Raises:
            ConfigurationError: the address or the password cannot be used, or there is no such account.
            Conflict: the address or the id is taken.
        """
        secret = Secret(password) if isinstance(password, str) else password
        account = self._account(api_key) if has_account else None
        return self._service.accounts.add_user_now(WantedUser(email, secret, user_id), account)

    def add_client(
        self, name: str, redirect_uris: Sequence[str], *, api_key: str | None = None, **settings: Any
    ) -> NewClient:
        """A partner application; its id, and its secret unless it is public.

        Args:
            name: what users know it by.
            redirect_uris: where it may have browsers sent to.
            api_key: a key of the account that it is registered by; the first account when None.
            settings: the other members of :class:`simulator.service.storage.clients.WantedClient`.

        Raises:
            ConfigurationError: it cannot be registered like that.
            Conflict: the id is taken.
        """
        wanted = WantedClient(name, tuple(redirect_uris), **settings)
        return self._service.accounts.add_client_now(wanted, self._account(api_key))

    def _account(self, api_key: str | None) -> int:
        return self._service.accounts.account_of(api_key or self.api_key)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def serve(
    config: ServiceConfig, on_ready: Callable[[Service, str], None], make_addition: MakeAddition | None = None
) -> None:
    """Serve in this thread until SIGTERM or SIGINT; the process is the service's own.

    Args:
        config: the settings.
        on_ready: called with the service and its base URL when requests are taken.
        make_addition: makes further endpoints and pages for it; None for none.

    Raises:
        ConfigurationError: the port is in use, or the data folder cannot be used.
        PartEnded: an error has ended a thread or task of the service.
        StorageError: the snapshot at the end could not be written.
    """
    listener = listen(config.host, config.port)
    with contextlib.closing(listener):
        own_url = base_url(listener)
        service = Service(config)
        service.public_url = own_url

        def ready() -> None:
            on_ready(service, own_url)

        try:
            make_server(service, ready, make_addition).run([listener])
            if config.snapshot_on_exit is not None and service.failure is None:
                save_at_end(service, config.snapshot_on_exit)
        finally:
            service.close()
        if service.failure is not None:
            raise service.failure


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


def make_server(service: Service, on_ready: Callable[[], None], make_addition: MakeAddition | None = None) -> _Server:
    """Uvicorn around the service."""
    logging.getLogger("simulator.service").setLevel(service.config.log_level.upper())
    addition = make_addition(service) if make_addition is not None else None
    app = build_app(service, _lifespan(service, addition), addition)
    config = uvicorn.Config(
        app,
        loop=_loop(),
        http="httptools",
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
    return _Server(config, service, addition, on_ready)


def _lifespan(service: Service, addition: Addition | None) -> Lifespan[Any]:
    @contextlib.asynccontextmanager
    async def running(app: object) -> AsyncIterator[None]:
        async with service.running(app):
            if addition is None:
                yield
                return
            async with addition.running():
                yield

    return running


def _loop() -> str:
    try:
        import uvloop  # noqa: F401 - not there on every system
    except ImportError:
        return "asyncio"
    return "uvloop"
