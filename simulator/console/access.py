"""Which requests of a browser belong to a session of the console."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from starlette.types import Scope

from simulator.console.sessions import Sessions, is_csrf_of
from simulator.service.browser_access import SESSION_HEADER
from simulator.service.http_errors import HttpError

PREFIX: Final = "/console/"
_READING: Final = frozenset({"GET", "HEAD"})
_OWN_SITES: Final = frozenset({b"same-origin", b"none"})


class ConsoleAccess:
    """Decides about them; see :class:`simulator.service.browser_access.BrowserAccess`.

    Args:
        sessions: those that are open.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def has_page(self, path: str) -> bool:
        """Whether the path is a page of the console, or one of its files."""
        return path == "/" or path.startswith(PREFIX)

    def check(self, scope: Scope, given: Mapping[bytes, bytes]) -> None:
        """Let a request of a page's script pass: the session's cookie, its value in the header, its own origin."""
        del scope
        if not is_own_page(given):
            raise HttpError(403, "foreign_origin", "A web page of another origin sent this: the console takes none.")
        session = self._sessions.find(given)
        if session is None or not is_csrf_of(session, given[SESSION_HEADER]):
            text = "The console's session has ended. Open a new link: fleet-simulator console prints one."
            raise HttpError(401, "session_ended", text)

    def may_read(self, scope: Scope, given: Mapping[bytes, bytes]) -> bool:
        """Whether a GET without the header belongs to a session."""
        return scope["method"] in _READING and is_own_page(given) and self._sessions.find(given) is not None


def is_own_page(given: Mapping[bytes, bytes]) -> bool:
    """Whether no other page has sent it: browsers say so in ``Sec-Fetch-Site`` and ``Origin``, where they send them."""
    if given.get(b"sec-fetch-site", b"none") not in _OWN_SITES:
        return False
    origin = given.get(b"origin")
    return origin is None or urlsplit(origin.decode("latin-1")).netloc == given.get(b"host", b"").decode("latin-1")
