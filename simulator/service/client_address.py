"""The address that a request comes from, also behind proxies (``X-Forwarded-For``, as RFC 7239 describes it)."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.types import Scope  # whoever only reads settings loads no server

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_HOPS_MAX: Final = 20


def parse_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Networks in CIDR notation, or single addresses.

    Raises:
        ValueError: one is neither; the text names it.
    """
    return tuple(ipaddress.ip_network(text.strip(), strict=False) for text in texts)


def client_address(scope: Scope, trusted: Sequence[Network]) -> str:
    """The nearest address on the way that is no trusted proxy; empty when the peer has none.

    ``X-Forwarded-For`` is read from its end, and only as far as each hop is a trusted proxy: anybody can write what
    stands before.
    """
    client = scope.get("client")
    address = client[0] if client else ""
    if not trusted:
        return address
    forwarded = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
    hops = [hop.strip() for hop in forwarded.decode("latin-1").split(",") if hop.strip()][-_HOPS_MAX:]
    while hops and _is_within(address, trusted):
        address = hops.pop()
    return address


def _is_within(address: str, networks: Sequence[Network]) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in networks)
