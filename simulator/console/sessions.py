"""Who may use the console: one-time links, and the sessions that they open.

A link's token and a session's value have 160 random bits and more; what is kept of them is SHA-256. Links are in
memory. Sessions end with the service, unless it keeps its data in a folder: then they are there again when it is. Time
here is real time: the service's clock may be set.
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

from simulator.console.session_file import SessionFile, StoredSession
from simulator.wire.base64url import to_base64url

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
        csrf: what each request of its pages' scripts carries; it follows from the cookie's value, and is not kept.
    """

    host: str
    csrf: str


class Sessions:
    """Links that were not opened yet, and sessions.

    Args:
        cookie: the name of the cookie; services on one machine share their cookies, so each has a name of its own.
        now_s: seconds since the epoch, by the machine's clock.
        file: where sessions are kept for the service's next start; None for nowhere.
    """

    def __init__(self, cookie: str, *, now_s: Callable[[], float], file: SessionFile | None = None) -> None:
        self._cookie = cookie
        self._now_s = now_s
        self._links: OrderedDict[bytes, float] = OrderedDict()
        self._file = file
        self._kept: OrderedDict[str, StoredSession] = OrderedDict(file.read() if file is not None else ())

    def make_link(self) -> str:
        """The token of a new link."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._links[_hash(token)] = self._now_s() + LINK_S
        while len(self._links) > LINKS_MAX:
            self._links.popitem(last=False)
        return token

    def open(self, token: str, host: str) -> str | None:
        """Use up a link.

        Args:
            token: of the link.
            host: that the browser came to.

        Returns:
            The value of ``Set-Cookie`` for the new session; None when the link is unknown, used or too old.
        """
        until_s = self._links.pop(_hash(token), None)
        if until_s is None or self._now_s() > until_s:
            return None
        value = secrets.token_urlsafe(_TOKEN_BYTES)
        self._kept[_hash(value).hex()] = StoredSession(host, self._now_s() + SESSION_S)
        while len(self._kept) > SESSIONS_MAX:
            self._kept.popitem(last=False)
        self._write()
        return f"{self._cookie}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={SESSION_S}"

    def find(self, given: Mapping[bytes, bytes]) -> Session | None:
        """The session of a request with these headers; None when there is none, or it has ended."""
        value = self._cookie_of(given)
        if value is None:
            return None
        key = _hash(value).hex()
        kept = self._kept.get(key)
        if kept is None:
            return None
        if self._now_s() > kept.ends_s:
            del self._kept[key]
            self._write()
            return None
        return Session(kept.host, _csrf_of(value)) if kept.host == given.get(b"host", b"").decode("latin-1") else None

    def end(self, given: Mapping[bytes, bytes]) -> None:
        """End the session of this request."""
        value = self._cookie_of(given)
        if value is not None and self._kept.pop(_hash(value).hex(), None) is not None:
            self._write()

    def _write(self) -> None:
        if self._file is not None:
            self._file.write(self._kept)

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


def _csrf_of(value: str) -> str:
    return to_base64url(hashlib.sha256(b"csrf\0" + value.encode()).digest())
