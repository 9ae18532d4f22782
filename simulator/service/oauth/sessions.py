"""Who is signed in with which browser. It is kept in memory: a restart of the service signs everybody out."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

SESSION_MS: Final = 60 * 60_000
"""A person stays signed in for so long."""
_SESSIONS: Final = 10_000


@dataclass(slots=True)
class Session:
    """What is known of a browser.

    Attributes:
        person: the row of the person who is signed in; None for nobody.
        tried: the email of a sign-in that failed, to be shown on the next page.
    """

    ends_ms: int
    person: int | None = None
    tried: str | None = None


class Sessions:
    """Browsers by their cookie. A browser that has not signed in has one too, which is stored nowhere."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def find(self, cookie: str, now_ms: int) -> Session:
        """What is known of a browser; an empty session when it is nothing."""
        session = self._sessions.get(cookie)
        return session if session is not None and now_ms < session.ends_ms else Session(now_ms)

    def replace(self, cookie: str, session: Session) -> str:
        """End the browser's session and begin this one.

        Returns:
            Its new cookie: whoever knew the old one knows nothing (session fixation).
        """
        self._sessions.pop(cookie, None)
        made = secrets.token_urlsafe(32)
        self._sessions[made] = session
        if len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)
        return made

    def clear(self) -> None:
        """Sign everybody out."""
        self._sessions.clear()

    def csrf(self, cookie: str) -> str:
        """What a form carries so that only a page that was shown to this browser can send it."""
        return hmac.new(self._key, cookie.encode(), hashlib.sha256).hexdigest()
