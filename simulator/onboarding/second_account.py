"""A second account for as long as a run, where the service is a local one whose control paths make it."""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
from collections.abc import Iterator
from urllib.parse import urlsplit

from agent.errors import ServiceError
from agent.wire.auth import KeyPair
from agent.wire.paths import segment
from agent.wire.secret import Secret
from simulator.wire.control import ControlClient

_ACCOUNTS = "/_emulator/accounts"


@contextlib.contextmanager
def borrowed_account(base_url: str) -> Iterator[KeyPair | None]:
    """The keys of an account made now, and deleted at the end with all that it has.

    None where there is no such service: it is on another machine, it is none of ours, or its control paths are off or
    need a token.
    """
    if not _is_here(base_url):
        yield None
        return
    with ControlClient(base_url) as control:
        try:
            made = control.request("POST", _ACCOUNTS, {"name": f"onboard-{secrets.token_hex(6)}"})
            keys = KeyPair(made["keys"][0]["api_key"], Secret(made["keys"][0]["secret_key"]))
            path = f"{_ACCOUNTS}/{segment(made['account_id'])}"
        except (ServiceError, KeyError, TypeError, IndexError):
            keys = None
        if keys is None:
            yield None
            return
        try:
            yield keys
        finally:
            with contextlib.suppress(ServiceError):  # a service that has ended took it along, or says it in its list
                control.request("DELETE", path)


def _is_here(base_url: str) -> bool:
    host = urlsplit(base_url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
