"""An account of a test: keys, clients, products, devices, commands, readings."""

from __future__ import annotations

import itertools
import operator
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final, TypeVar

import httpx

from agent.wire.secret import Secret
from simulator.keys import Keys
from simulator.pytest_plugin.control import Control, ControlRefused, Fault, ServiceUnderTest
from simulator.pytest_plugin.loopback import LoopbackTransport
from simulator.wire.client import ServiceClient

__tracebackhide__ = operator.methodcaller("errisinstance", (ControlRefused, AssertionError))
"""pytest shows no frames of this module, by this name: a refusal is about the line of the test."""
Found = TypeVar("Found")
WAIT_S: Final = 60.0
"""How long a test waits for what comes by itself. Nothing takes that long; a busy machine is no failure."""
_LOOK_S: Final = 0.02
_LIMIT: Final = 1_000
_OBSERVER: Final = {"x-emulator-observer": "1", "x-emulator-variant": "complete"}
_ENDED: Final = frozenset({"succeeded", "failed", "rejected", "expired", "timed_out", "canceled"})


class Account:
    """One manufacturer of the service, and what tests do in its name.

    Args:
        service: that it is of.
        account_id: its id.
        keys: ``api_key`` and ``secret_key``.

    Attributes:
        api_key: the public key.
        secret_key: the secret one.
    """

    def __init__(self, service: ServiceUnderTest, account_id: str, keys: Mapping[str, Any]) -> None:
        self.service = service
        self.account_id = account_id
        self._keys = Keys(str(keys["api_key"]), Secret(str(keys["secret_key"])))
        self.api_key, self.secret_key = self._keys.api_key, self._keys.secret_key
        self._numbers = itertools.count(1)
        self._since = service.since_now()

    @property
    def base_url(self) -> str:
        """The service's address."""
        return self.service.base_url

    @property
    def headers(self) -> dict[str, str]:
        """The two key headers."""
        return self._keys.headers()

    @cached_property
    def http(self) -> httpx.Client:
        """An HTTP client with the account's keys, relative to the service's address."""
        transport = LoopbackTransport()
        return httpx.Client(base_url=self.base_url, headers=self.headers, trust_env=False, transport=transport)

    @cached_property
    def _observer(self) -> Control:
        """For the plug-in's own requests: they stay out of the log, the faults, the quota and the variant."""
        return Control(self.base_url, "/", {**self.headers, **_OBSERVER})

    @cached_property
    def client(self) -> ServiceClient:
        """The typed client, with a method for each endpoint."""
        return ServiceClient(self.base_url, self._keys, transport=LoopbackTransport())

    def product(self, name: str = "Test product", **members: Any) -> str:
        """Create a product; its id."""
        return str(self._observer.post("products", {"name": name, **members})["product_id"])

    @cached_property
    def product_id(self) -> str:
        """The product that devices are of when a test names none."""
        return self.product()

    def device(
        self,
        identifier: str | None = None,
        *,
        product_id: str | None = None,
        user_id: str = "test-user",
        name: str = "",
    ) -> str:
        """Register a device; its id.

        Args:
            identifier: unique in the product; made when None.
            product_id: of the account; :attr:`product_id` when None.
            user_id: whom it belongs to.
            name: for people.
        """
        identifier = identifier or f"SN-{next(self._numbers):06d}"
        body = {
            "user_id": user_id,
            "product_id": product_id or self.product_id,
            "device_identifier": identifier,
            "device_name": name or identifier,
        }
        return str(self._observer.post("onboarding/device", body)["device_id"])

    def send(self, device_id: str, command: str, *, ttl_seconds: int | None = None, **payload: Any) -> str:
        """Send a command; its id.

        Args:
            device_id: the device.
            command: its name, the member ``command`` of the payload.
            ttl_seconds: how long it is good for.
            payload: further members of ``command_payload``.
        """
        body: dict[str, Any] = {"device_id": device_id, "command_payload": {"command": command, **payload}}
        if ttl_seconds is not None:
            body["ttl_seconds"] = ttl_seconds
        return str(self._observer.post("commands/send", body)["id"])

    def command(self, device_id: str, command_id: str) -> dict[str, Any]:
        """A command as the service shows it now."""
        return self._observer.get(f"devices/{device_id}/commands/{command_id}")

    def wait_for_command(self, device_id: str, command_id: str, timeout_s: float = WAIT_S) -> dict[str, Any]:
        """Wait until a command has ended; its record.

        Raises:
            AssertionError: it has not ended in time.
        """

        def ended() -> dict[str, Any] | None:
            record = self.command(device_id, command_id)
            return record if record["status"] in _ENDED else None

        return _wait(ended, timeout_s, lambda: f"the command is still {self.command(device_id, command_id)['status']}")

    def readings(self, device_id: str, **filters: Any) -> list[dict[str, Any]]:
        """All stored readings of a device, oldest first.

        Args:
            device_id: the device.
            filters: further query parameters of ``GET /sensor-data``.
        """
        found: list[dict[str, Any]] = []
        query = {"device_id": device_id, "order": "asc", "limit": _LIMIT, **filters}
        while True:
            page = self._observer.get("sensor-data", query)
            found += page["data"]
            if "limit" in filters or page["next_cursor"] is None:
                return found
            query["cursor"] = page["next_cursor"]

    def wait_for_readings(self, device_id: str, count: int = 1, timeout_s: float = WAIT_S) -> list[dict[str, Any]]:
        """Wait until at least ``count`` readings of a device are stored; all of them.

        Raises:
            AssertionError: there are fewer in time.
        """

        def stored() -> list[dict[str, Any]] | None:
            found = self.readings(device_id)
            return found if len(found) >= count else None

        return _wait(stored, timeout_s, lambda: f"there are {len(self.readings(device_id))} readings of {count}")

    def fault(self, method: str | None = None, path: str | None = None, **wanted: Any) -> Fault:
        """A fault that this account's requests meet; see :meth:`ServiceUnderTest.fault`."""
        return self.service.fault(method, path, **{"account_id": self.account_id, **wanted})

    def received(self, method: str | None = None, path: str | None = None, **wanted: Any) -> int:
        """Check how many requests of this account came; see :meth:`ServiceUnderTest.received`."""
        return self.service.received(method, path, **{"account_id": self.account_id, **self._since, **wanted})

    def script(self, device_id: str, **script: Any) -> dict[str, Any]:
        """Have the service play a device; see :meth:`ServiceUnderTest.script`."""
        return self.service.script(device_id, **script)

    def close(self) -> None:
        """Close the connections that are open."""
        for name in ("http", "_observer", "client"):
            if name in self.__dict__:
                self.__dict__[name].close()


def _wait(ask: Callable[[], Found | None], timeout_s: float, describe: Callable[[], str]) -> Found:
    """What ``ask`` finds in the end.

    Raises:
        AssertionError: nothing in time.
    """
    deadline_s = time.monotonic() + timeout_s
    while (found := ask()) is None:
        if time.monotonic() > deadline_s:
            raise AssertionError(f"after {timeout_s:g} s {describe()}")
        time.sleep(_LOOK_S)
    return found
