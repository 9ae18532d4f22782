"""Errors of the token endpoint and its neighbours (RFC 6749, section 5.2), beside the service's own ``message``."""

from __future__ import annotations

from typing import Final

from pydantic_core import to_json

from simulator.service.answers import Answer, Header
from simulator.service.faults import ServiceFault

NO_STORE: Final[tuple[Header, ...]] = ((b"cache-control", b"no-store"), (b"pragma", b"no-cache"))
"""RFC 6749, section 5.1: nobody on the way keeps an answer with tokens."""
_BASIC: Final[Header] = (b"www-authenticate", b'Basic realm="device-service", charset="UTF-8"')


class OAuthFault(ServiceFault):
    """No tokens: ``error`` is a word of RFC 6749, and ``message`` stands as ``error_description`` too."""

    def answer(self) -> Answer:
        """The error body."""
        body = {"error": self.error, "error_description": self.message, "message": self.message}
        return Answer(self.status, to_json(body), (*NO_STORE, *self.headers))


def invalid_request(description: str) -> OAuthFault:
    """400: a parameter is missing, repeated or malformed."""
    return OAuthFault(400, "invalid_request", description)


def invalid_client(description: str, *, used_basic: bool) -> OAuthFault:
    """401: the client is not who it says; with a challenge when it came by HTTP Basic (RFC 6749, section 5.2)."""
    return OAuthFault(401, "invalid_client", description, headers=(_BASIC,) if used_basic else ())
