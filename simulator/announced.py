"""The extensions that a service announces, for every program here that talks to one."""

from __future__ import annotations

from typing import Final

from agent.errors import ErrorAnswer, RateLimited, Unauthorized, UnexpectedAnswer
from agent.wire.server import NO_EXTENSIONS
from simulator.wire.client import ServiceClient

_AWAY: Final = frozenset({502, 503, 504})


def ask_offers(client: ServiceClient) -> frozenset[str]:
    """The extensions that a service announces; whatever it answers in place of the document says that it has none.

    Raises:
        ServiceError: the service cannot be reached, is overloaded, or does not take the keys.
    """
    try:
        return client.discover().extensions
    except (RateLimited, Unauthorized):
        raise
    except UnexpectedAnswer:
        return NO_EXTENSIONS
    except ErrorAnswer as error:
        if error.status in _AWAY:
            raise
        return NO_EXTENSIONS
