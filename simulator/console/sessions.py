"""Who may use the console: one-time links, and the sessions that they open.

A link's token and a session's value have 160 random bits and more; what is kept of them is SHA-256. Sessions are in
memory, so they end with the service. Time here is real time: the service's clock may be set.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final

LINK_S: Final = 15 * 60
"""How long a link may be opened."""
SESSION_S: Final = 12 * 3600
"""How long a session lasts."""
LINKS_MAX: Final = 64
SESSIONS_MAX: Final = 64
"""Beyond either the oldest one ends."""
_TOKEN_BYTES: Final = 20


@dataclass(frozen=True, slots=True)
class Session:
    """One browser that has opened a link.

    Attributes:
        host: the ``Host`` that it came to; it is good for no other.
        csrf: what each request of its pages' scripts carries.
        ends_s: when it ends, in seconds of the clock.
    """

    host: str
    csrf: str
    ends_s: float


class Sessions:
    """Links that were not opened yet, and sessions.

    Args:
        cookie: the name of the cookie; services on one machine share their cookies, so each has a name of its own.
        secure: whether pages are reached over https only.
        now_s: seconds of a clock that nobody sets.
    """

    def __init__(self, cookie: str, *, secure: bool, now_s: Callable[[], float]) -> None:
        self._cookie = cookie
        self._secure = secure
        self._now_s = now_s
        self._links: OrderedDict[bytes, float] = OrderedDict()
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()

    def make_link(self) -> str:
        """The token of a new link."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._links[_hash(token)] = self._now_s() + LINK_S
        while len(self._links) > LINKS_MAX:
            self._links.popitem(last=False)
        return token

    def open(self, token: str, host: str, *, is_secure: bool = False) -> str | None:
        """Use up a link.

        Args:
            token: of the link.
            host: that the browser came to.
            is_secure: it came over TLS.

        Returns:
            The value of ``Set-Cookie`` for the new session; None when the link is unknown, used or too old.
        """
        until_s = self._links.pop(_hash(token), None)
        if until_s is None or self._now_s() > until_s:
            return None
        value = secrets.token_urlsafe(_TOKEN_BYTES)
        self._sessions[_hash(value)] = Session(host, secrets.token_urlsafe(_TOKEN_BYTES), self._now_s() + SESSION_S)
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        cookie = f"{self._cookie}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={SESSION_S}"
        return f"{cookie}; Secure" if self._secure or is_secure else cookie

    def find(self, given: Mapping[bytes, bytes]) -> Session | None:
        """The session of a request with these headers; None when there is none, or it has ended."""
        value = self._cookie_of(given)
        key = None if value is None else _hash(value)
        session = None if key is None else self._sessions.get(key)
        if key is None or session is None:
            return None
        if self._now_s() > session.ends_s:
            del self._sessions[key]
            return None
        return session if session.host == given.get(b"host", b"").decode("latin-1") else None

    def end(self, given: Mapping[bytes, bytes]) -> None:
        """End the session of this request."""
        value = self._cookie_of(given)
        if value is not None:
            self._sessions.pop(_hash(value), None)

    def _cookie_of(self, given: Mapping[bytes, bytes]) -> str | None:
        header = given.get(b"cookie")
        if header is None:
            return None
        try:
            cookies = SimpleCookie(header.decode("latin-1"))
        except CookieError:
            return None
        morsel = cookies.get(self._cookie)
        return None if morsel is None else morsel.value


def is_csrf_of(session: Session, value: bytes) -> bool:
    """Whether a request carries the session's own value."""
    return hmac.compare_digest(value, session.csrf.encode())


def _hash(value: str) -> bytes:
    return hashlib.sha256(value.encode()).digest()
