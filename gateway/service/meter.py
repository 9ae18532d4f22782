"""The one key's budget, shared by the gateway's threads, and the clients whose every request takes a grant of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import httpx

from agent.app.version import VERSION
from agent.config.credentials import Credentials
from agent.config.model import ServiceConfig
from agent.errors import TransportError
from agent.wire.answers import read_retry_after
from agent.wire.auth import KeyPair
from agent.wire.device_client import DeviceClient
from agent.wire.network import open_transport, this_thread
from agent.wire.rate_limit import read_rate_limit
from agent.wire.trust import service_trust
from gateway.core.budget import Budget, BudgetState, Grant, Kind, Wait

_TOO_MANY: Final = 429


class Meter:
    """A :class:`~gateway.core.budget.Budget` for many threads.

    A thread asks for a grant, makes its call inside :meth:`spend`, and :class:`MeteredTransport` reports to the budget
    how the request ended. Further requests of the same call, such as the next page of a list, wait for grants of their
    own.

    Args:
        budget: the key's.
        monotonic: seconds on the monotonic clock.
    """

    def __init__(self, budget: Budget, monotonic: Callable[[], float]) -> None:
        self._budget = budget
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._mine = threading.local()
        self._closing = threading.Event()

    def ask(self, kind: Kind) -> Grant | Wait:
        """A grant for one request of this kind, or how long to wait for one; see :meth:`Budget.ask`."""
        with self._lock:
            return self._budget.ask(kind, self._monotonic())

    @contextmanager
    def spend(self, grant: Grant) -> Iterator[None]:
        """Requests of this thread are made on this grant; one that is not used goes back."""
        self._mine.grant, self._mine.kind = grant, grant.kind
        try:
            yield
        finally:
            unused, self._mine.grant = self._mine.grant, None
            if unused is not None:
                with self._lock:
                    self._budget.unused(unused, self._monotonic())

    def state(self) -> BudgetState:
        """State of the budget."""
        with self._lock:
            return self._budget.state(self._monotonic())

    def close(self) -> None:
        """End every wait for a grant, with an exception in its thread."""
        self._closing.set()

    # --- for the transport ----------------------------------------------------------------------------------------

    def take(self) -> Grant:
        """The grant that this thread's next request is made on, waiting for one when the call needs another."""
        grant: Grant | None = getattr(self._mine, "grant", None)
        self._mine.grant = None
        began_s = self._monotonic()
        while grant is None:
            answer = self.ask(getattr(self._mine, "kind", Kind.UPKEEP))
            if isinstance(answer, Grant):
                grant = answer
            elif self._closing.wait(max(0.0, answer.until_s - self._monotonic())):
                raise TransportError("the gateway stops: the request was not made")
        budget = this_thread.budget
        if budget is not None:  # waiting for the quota is no part of the exchange
            budget.extend(self._monotonic() - began_s)
        return grant

    def answered(self, grant: Grant, response: httpx.Response) -> None:
        """Count an answer; its headers have the quota."""
        announced = read_rate_limit(response.headers)
        with self._lock:
            now_s = self._monotonic()
            if response.status_code == _TOO_MANY:
                self._budget.refused(grant, now_s, read_retry_after(response.headers), announced)
            else:
                self._budget.answered(grant, now_s, announced)

    def failed(self, grant: Grant, error: httpx.RequestError) -> None:
        """Note that a request got no answer."""
        with self._lock:
            if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
                self._budget.unused(grant, self._monotonic())
            else:
                self._budget.lost(grant, self._monotonic())


class MeteredTransport(httpx.BaseTransport):
    """Every request of a client goes through the meter.

    Args:
        transport: the network.
        meter: the budget.
    """

    def __init__(self, transport: httpx.BaseTransport, meter: Meter) -> None:
        self._transport = transport
        self._meter = meter

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """One request on one grant."""
        grant = self._meter.take()
        try:
            response = self._transport.handle_request(request)
        except httpx.RequestError as error:
            self._meter.failed(grant, error)
            raise
        self._meter.answered(grant, response)
        return response

    def close(self) -> None:
        """Close the connections to the service."""
        self._transport.close()


def make_client(service: ServiceConfig, credentials: Credentials, meter: Meter, connections: int) -> DeviceClient:
    """A client whose every request takes a grant.

    Args:
        service: where.
        credentials: the key pair.
        meter: the key's budget.
        connections: at the same time.

    Raises:
        ConfigurationError: the address, the keys or the certificate file cannot be used.
    """
    network = open_transport(
        service_trust(service.ca_file) if service.base_url.startswith("https:") else None,
        httpx.Limits(max_connections=connections, max_keepalive_connections=connections, keepalive_expiry=60.0),
    )
    return DeviceClient(
        service.base_url,
        KeyPair(credentials.api_key, credentials.secret),
        timeout_s=service.timeout_s,
        max_answer_bytes=service.max_answer_bytes,
        transport=MeteredTransport(network, meter),
        user_agent=f"device-gateway/{VERSION}",
    )
