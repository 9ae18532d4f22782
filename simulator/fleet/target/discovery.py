"""The extensions of a target: by the scenario, else by its discovery document."""

from __future__ import annotations

from agent.wire.auth import BearerToken, KeyPair
from agent.wire.dialect import Dialect
from agent.wire.secret import Secret
from simulator.announced import ask_offers
from simulator.fleet.target.target import Target
from simulator.wire.client import ServiceClient


def find_offers(target: Target, dialect: Dialect | None = None) -> frozenset[str]:
    """The extensions of the service; none of a plain server, which is sent nothing beyond the specification.

    Args:
        target: to the service.
        dialect: what the scenario says of it.

    Raises:
        ServiceError: the service cannot be reached, is overloaded, or does not take the keys.
    """
    if dialect is not None and dialect.extensions is not None:
        return dialect.extensions
    keys = target.keys[0]
    with ServiceClient(target.base_url, KeyPair(keys.api_key, keys.secret_key), ca_file=target.ca_file) as client:
        return ask_offers(client)


def find_gateway_offers(gateway_url: str, token: Secret) -> frozenset[str]:
    """The extensions of a gateway, which is all that the devices behind it talk to.

    Args:
        gateway_url: where it serves devices over HTTP.
        token: of any of its devices.

    Raises:
        ServiceError: the gateway cannot be reached, is overloaded, or does not take the token.
    """
    with ServiceClient(gateway_url, BearerToken(token)) as client:
        return ask_offers(client)
