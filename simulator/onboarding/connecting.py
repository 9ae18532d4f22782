"""Open a service by its address and files with credentials."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.errors import ConfigurationError
from agent.wire.auth import Credential, KeyPair
from simulator.credentials import read_secret_file
from simulator.login.refreshing import RefreshingBearer
from simulator.login.token_store import TokenFile
from simulator.onboarding.case_labels import ProductAccount
from simulator.onboarding.exchange import RecordingTransport
from simulator.onboarding.quota import QuotaGate, Timing
from simulator.onboarding.retrying import Retrier
from simulator.onboarding.steps import Account
from simulator.wire.client import ServiceClient


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """Address and credentials of a service: a key pair, or the token file of ``fleet-simulator login``.

    Attributes:
        base_url: of the service; a token file knows its own.
        api_key, secret_key_file: the key pair.
        token_file, client_secret_file: the tokens, and the secret of a confidential client to renew them with.
        ca_file: the authorities that alone are trusted; None trusts the system's.
        timeout_s: patience with one request.
        max_wait_s: longest wait of one step for the quota.
        prefix: of the options' names, for error texts.
    """

    base_url: str | None
    api_key: str | None
    secret_key_file: Path | None
    token_file: Path | None = None
    client_secret_file: Path | None = None
    ca_file: Path | None = None
    timeout_s: float = 10.0
    max_wait_s: float = 120.0
    prefix: str = "--"

    @property
    def is_given(self) -> bool:
        """Whether there are any credentials."""
        return any(value is not None for value in (self.api_key, self.secret_key_file, self.token_file))


@dataclass(frozen=True, slots=True)
class Connected:
    """An open service with its quota, clock and accounts.

    Attributes:
        account: for journeys.
        product_account: for lists, products and removals.
    """

    base_url: str
    client: ServiceClient
    account: Account
    product_account: ProductAccount
    timing: Timing


@contextlib.contextmanager
def connected(
    access: ServiceAccess,
    *,
    connections: int = 16,
    name: str = "",
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[Connected]:
    """The service for the length of the block; nothing is sent yet.

    Args:
        access: address and credentials.
        connections: how many requests may be in flight.
        name: of the account in the journal.
        sleep: waits that many seconds, or less when it is interrupted.

    Raises:
        ConfigurationError: the credentials cannot be used; each fault names its option.
        ServiceError: the token file holds nothing that can be used.
    """
    credential, base_url = _credential(access)

    def wait(seconds: float) -> None:
        sleep(seconds)

    timing = Timing(time.monotonic, wait, access.max_wait_s)
    gate = QuotaGate(timing)
    transport = RecordingTransport(connections=connections, ca_file=access.ca_file)
    with ServiceClient(base_url, credential, timeout_s=access.timeout_s, transport=transport) as client:
        product_account = ProductAccount(client, Retrier(gate, timing), name)
        yield Connected(base_url, client, Account(client, gate, transport, name), product_account, timing)


@contextlib.contextmanager
def connected_if_given(access: ServiceAccess, name: str) -> Iterator[Connected | None]:
    """As :func:`connected`; None without credentials."""
    if not access.is_given:
        yield None
        return
    with connected(access, name=name) as found:
        yield found


def _credential(access: ServiceAccess) -> tuple[Credential, str]:
    prefix = access.prefix
    has_keys = access.api_key is not None or access.secret_key_file is not None
    if has_keys == (access.token_file is not None):
        raise ConfigurationError(
            [f"give {prefix}api-key and {prefix}secret-key-file, or {prefix}token-file of 'fleet-simulator login'"],
            "credentials",
        )
    if access.token_file is not None:
        secret = (
            None
            if access.client_secret_file is None
            else read_secret_file(access.client_secret_file, "--client-secret-file")
        )
        tokens = TokenFile(access.token_file)
        bearer = RefreshingBearer(tokens, client_secret=secret, timeout_s=access.timeout_s, ca_file=access.ca_file)
        return bearer, access.base_url or bearer.base_url
    if access.api_key is None or access.secret_key_file is None:
        missing = "api-key" if access.api_key is None else "secret-key-file"
        raise ConfigurationError([f"{prefix}{missing} is missing: a key pair has both parts"], "credentials")
    if access.base_url is None:
        raise ConfigurationError(["--base-url is missing: give the address of the service"], "credentials")
    return KeyPair(
        access.api_key, read_secret_file(access.secret_key_file, f"{prefix}secret-key-file")
    ), access.base_url
