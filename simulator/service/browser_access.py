"""Requests of the pages that a program adds to the service: they carry a session instead of keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

SESSION_HEADER: Final = b"x-console"
"""In every request that a page's script sends: the value that belongs to its session."""
ACCOUNT_HEADER: Final = b"x-console-account"
"""The public key of the account that such a request is for."""


class BrowserAccess(Protocol):
    """Who may come with a session."""

    def has_page(self, path: str) -> bool:
        """Whether the path is one of the pages or of their files, which decide by themselves what they show."""
        ...

    def check(self, scope: Scope, given: Mapping[bytes, bytes]) -> None:
        """Let a request with :data:`SESSION_HEADER` pass.

        Args:
            scope: of the request.
            given: its headers.

        Raises:
            HttpError: 401: no session, or one that has ended; 403: another page sent it.
        """
        ...

    def may_read(self, scope: Scope, given: Mapping[bytes, bytes]) -> bool:
        """Whether a GET without the header belongs to a session: event streams, pictures and downloads send none."""
        ...


class BrowserLayer:
    """Takes requests of the pages past the layers that are for devices and apps: faults, profiles and other origins.

    Whether they have a session is checked further inside, by :class:`simulator.service.gate.Gate`.

    Args:
        app: what everybody else's requests go to.
        direct: what the pages' requests go to.
        access: knows the pages.
    """

    def __init__(self, app: ASGIApp, direct: ASGIApp, access: BrowserAccess) -> None:
        self._app = app
        self._direct = direct
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's start and end."""
        is_page = scope["type"] == "http" and is_from_page(scope, self._access)
        await (self._direct if is_page else self._app)(scope, receive, send)


def is_from_page(scope: Scope, access: BrowserAccess) -> bool:
    """Whether a page or one of its files is wanted, or a page's script sends this."""
    for name, _ in scope["headers"]:
        if name == SESSION_HEADER:
            return True
    return access.has_page(scope["path"])
