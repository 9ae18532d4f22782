"""Which devices a rollout is for, and with which client it is carried out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import httpx

from agent.app.version import VERSION
from agent.config.credentials import Credentials
from agent.config.model import ServiceConfig
from agent.errors import ConfigurationError, NotFound, RateLimited
from agent.wire.answers import read_retry_after
from agent.wire.auth import KeyPair
from agent.wire.devices import Device
from agent.wire.extensions import LIST_PARAMETERS
from agent.wire.network import open_transport
from agent.wire.sending import SendingClient
from agent.wire.trust import service_trust
from gateway.devices import unknown_devices
from gateway.quota import Kind, Quota

Value = TypeVar("Value")


def rollout_client(
    service: ServiceConfig, credentials: Credentials, monotonic: Callable[[], float] = time.monotonic
) -> SendingClient:
    """A client that keeps to the key's quota and leaves a running gateway its part of it.

    Its requests are spread over the window that the service announces; what others take of the same key it sees there.
    After a 429 it makes none before the time that the service asked for.

    Args:
        service: where.
        credentials: the key pair.
        monotonic: seconds on the monotonic clock.

    Raises:
        ConfigurationError: the address, the keys or the certificate file cannot be used.
    """
    trust = service_trust(service.ca_file) if service.base_url.startswith("https:") else None
    return SendingClient(
        service.base_url,
        KeyPair(credentials.api_key, credentials.secret),
        timeout_s=service.timeout_s,
        max_answer_bytes=service.max_answer_bytes,
        transport=_Metered(open_transport(trust, httpx.Limits()), Quota(None, monotonic)),
        user_agent=f"device-gateway/{VERSION}",
        reading=service.dialect.dialect().reading,
    )


class _Metered(httpx.BaseTransport):
    """Waits until half of the window's requests are left to others, before each request."""

    def __init__(self, network: httpx.BaseTransport, quota: Quota) -> None:
        self._network = network
        self._quota = quota

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Make one request when the quota has room for it."""
        while wait_s := self._quota.wait_s(Kind.POLLS):
            time.sleep(min(wait_s, 5.0))
        with self._quota.request(Kind.POLLS):
            response = self._network.handle_request(request)
            self._quota.answered(response.status_code, response.headers, read_retry_after(response.headers))
            return response

    def close(self) -> None:
        """Give the connections back."""
        self._network.close()


def read_device_ids(path: Path) -> list[str]:
    """The device ids of a file, one in each line; empty lines and those that begin with ``#`` do not count.

    Raises:
        ConfigurationError: it cannot be read, or has none.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        fault = f"{path} cannot be read: {error}; write one device id in each line, as UTF-8"
        raise ConfigurationError([fault], "--devices") from None
    found = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not found:
        raise ConfigurationError([f"{path} has no device id: write one in each line"], "--devices")
    return found


def known_devices(client: SendingClient, device_ids: Sequence[str]) -> list[str]:
    """These devices, each once.

    Raises:
        ConfigurationError: the service does not know some of them.
        ServiceError: it could not be asked.
    """
    wanted = list(dict.fromkeys(device_ids))
    unknown = unknown_devices(client, wanted)
    if unknown:
        faults = [f"the service does not know the device {each}: mend the id, or leave it out" for each in unknown]
        raise ConfigurationError(faults, "rollout")
    return wanted


def devices_of_product(client: SendingClient, offers: frozenset[str], product_id: str) -> list[str]:
    """All devices of a product.

    Args:
        client: for the requests.
        offers: the extensions of the service; without them no filter is sent.
        product_id: of the product.

    Raises:
        ConfigurationError: there are none, or the service does not say of each device which product it is of.
        ServiceError: it could not be asked.
    """
    filtered = product_id if LIST_PARAMETERS in offers else None
    none = f"the product {product_id} has no device: compare the id, or register devices first"
    try:
        found = with_retries(lambda: list(client.devices(product_id=filtered)))
    except NotFound:
        raise ConfigurationError([none], "rollout") from None
    unsaid = [each for each in found if each.product_id is None]
    if unsaid:
        fault = (
            f"the service does not say which product the device {unsaid[0].device_id} is of ({len(unsaid)} such "
            "device(s)): name the devices with --device-id or --devices"
        )
        raise ConfigurationError([fault], "rollout")
    mine = [each.device_id for each in found if _is_of(each, product_id)]
    if not mine:
        raise ConfigurationError([none], "rollout")
    return mine


def with_retries(ask: Callable[[], Value]) -> Value:
    """What is asked for; after a 429 again, once the client has waited for the next window."""
    while True:
        try:
            return ask()
        except RateLimited:
            continue


def _is_of(device: Device, product_id: str) -> bool:
    return bool(device.device_id) and device.product_id == product_id
