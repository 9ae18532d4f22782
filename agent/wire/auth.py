"""How a request proves who sends it: the key pair, or a bearer token (specification, "Authentication").

:class:`~agent.wire.connection.Connection` binds a credential to its base URL. A bound credential adds its headers to
requests of that origin and to no other; an unbound one adds them nowhere.
"""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Final, Self

import httpx

from agent.errors import ConfigurationError
from agent.wire.secret import Secret, never_show

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_VISIBLE_ASCII: Final = re.compile(r"[\x21-\x7e]+")


def origin_of(url: httpx.URL) -> str:
    """Scheme, host and port (RFC 6454), with the default port written out."""
    return f"{url.scheme}://{url.host.lower()}:{url.port or _DEFAULT_PORTS.get(url.scheme, 0)}"


class Credential(httpx.Auth, ABC):
    """Headers that go to one origin only; ``origin`` is None until it is bound."""

    def __init__(self) -> None:
        self.origin: str | None = None

    def bound_to(self, url: httpx.URL) -> Self:
        """The same credential for requests to the origin of ``url``."""
        bound = copy.copy(self)
        bound.origin = origin_of(url)
        return bound

    def auth_flow(self, request: httpx.Request) -> Iterator[httpx.Request]:  # type: ignore[override]  # httpx asks for a Generator; nothing is ever sent into it
        """Add the headers when the request goes to the bound origin."""
        if self.origin is not None and origin_of(request.url) == self.origin:
            request.headers.update(self._headers())
        yield request

    @abstractmethod
    def _headers(self) -> dict[str, str]:
        """The headers that prove who sends a request."""


class KeyPair(Credential):
    """``x-api-key`` and ``x-secret-key`` on every request (specification, "Manufacturer API: key pair").

    Raises:
        ConfigurationError: a key is empty, has spaces, line ends or characters beyond ASCII, or the two are swapped.
    """

    def __init__(self, api_key: str, secret_key: Secret) -> None:
        super().__init__()
        faults = [*_faults("api_key", api_key), *_faults("secret_key", secret_key.reveal())]
        if api_key.startswith("msk_"):
            faults.append("api_key: this is a secret key (it begins with msk_): swap api_key and secret_key")
        if faults:
            raise ConfigurationError(faults, "key pair")
        never_show(secret_key.reveal())
        self._api_key = api_key
        self._secret_key = secret_key

    def __repr__(self) -> str:
        return f"KeyPair({self._api_key[:6]}..., {self._secret_key!r})"

    def _headers(self) -> dict[str, str]:
        return {"x-api-key": self._api_key, "x-secret-key": self._secret_key.reveal()}


class BearerToken(Credential):
    """``Authorization: Bearer`` on every request (specification, "Step 3: call the API").

    Args:
        token: the token, or what says it anew for each request.

    Raises:
        ConfigurationError: the token is empty, has spaces, line ends or characters beyond ASCII.
    """

    def __init__(self, token: Secret | Callable[[], Secret]) -> None:
        super().__init__()
        self._current = token if callable(token) else lambda: token
        now = self._current().reveal()
        faults = _faults("token", now)
        if faults:
            raise ConfigurationError(faults, "bearer token")
        never_show(now)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._current().reveal()}"}


def _faults(name: str, value: str) -> list[str]:
    if not value:
        return [f"{name}: it is empty: give the key that the service issued"]
    if not _VISIBLE_ASCII.fullmatch(value):
        return [
            f"{name}: it contains a space, a line end or a character beyond ASCII: copy the key again, nothing else"
        ]
    return []
