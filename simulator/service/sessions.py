"""Browser sessions: cookies, and the proof that a form is one of our pages' own (CSRF).

Sessions live in memory: a restart of the service signs everybody out and loses nothing else. A browser that has not
signed in has a cookie too, of random bits that are stored nowhere; its forms are bound to that.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from simulator.service.answers import Header

IDLE_MS: Final = 60 * 60_000
"""A session ends when nothing was asked of it for so long."""
LONGEST_MS: Final = 12 * 60 * 60_000
"""A session ends so long after the sign-in, used or not."""
FORM_MS: Final = 60 * 60_000
"""A page's form can be sent for so long."""
ANSWERED_MS: Final = 5 * 60_000
"""So long an answered request stays answered: as long as a code lives (specification, "Step 2: exchange the code")."""
_SESSIONS: Final = 10_000
_ANSWERS_OF_SESSION: Final = 50
_NOTICES: Final = 1_000


@dataclass(frozen=True, slots=True)
class Answered:
    """What a person said to one authorization request, and where the browser was sent with it."""

    approved: bool
    location: str = field(repr=False)
    at_ms: int


@dataclass(slots=True)
class Session:
    """A person who is signed in with one browser.

    Attributes:
        turn: held while a request is answered, so that two clicks on one button are one answer.
    """

    person_seq: int
    opened_ms: int
    seen_ms: int
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _answered: OrderedDict[str, Answered] = field(default_factory=OrderedDict)

    def answered(self, request: str, now_ms: int) -> Answered | None:
        """The answer to this authorization request, if it was given not long ago."""
        found = self._answered.get(request)
        return found if found is not None and 0 <= now_ms - found.at_ms < ANSWERED_MS else None

    def remember(self, request: str, answered: Answered) -> None:
        """Keep an answer; only the latest ones are kept."""
        self._answered[request] = answered
        self._answered.move_to_end(request)
        while len(self._answered) > _ANSWERS_OF_SESSION:
            self._answered.popitem(last=False)

    def forget(self, request: str) -> None:
        """The person wants to be asked again."""
        self._answered.pop(request, None)


@dataclass(frozen=True, slots=True)
class Visitor:
    """The browser behind a request.

    Attributes:
        cookie: its cookie's value; a new one when it had none.
        is_new: the answer has to set the cookie.
        session: None when nobody is signed in.
    """

    cookie: str = field(repr=False)
    is_new: bool
    session: Session | None


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence for the page after a form; ``kind`` is ``bad``, ``good`` or ``mind``.

    Attributes:
        email: what was typed, so that it is typed once only.
    """

    kind: str
    text: str
    email: str = ""


class Sessions:
    """The sessions of all browsers."""

    def __init__(self) -> None:
        self._name = b"device-service-session"
        self._attributes = b"; Path=/; HttpOnly; SameSite=Lax"
        self._key = secrets.token_bytes(32)
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self._notices: OrderedDict[bytes, Notice] = OrderedDict()

    def visitor(self, headers: Iterable[Header], now_ms: int) -> Visitor:
        """Whose request this is. A session that is over is as good as none."""
        cookie = self._read_cookie(headers)
        if cookie is None:
            return Visitor(secrets.token_urlsafe(32), True, None)
        digest = _digest(cookie)
        session = self._sessions.get(digest)
        if session is not None:
            if not _is_open(session, now_ms):
                del self._sessions[digest]
                return Visitor(cookie, False, None)
            session.seen_ms = now_ms
            self._sessions.move_to_end(digest)
        return Visitor(cookie, False, session)

    def sign_in(self, person_seq: int, before: Visitor, now_ms: int) -> Visitor:
        """A new session under a new id: whoever knew the browser's old one knows nothing (session fixation)."""
        self.sign_out(before)
        cookie = secrets.token_urlsafe(32)
        session = Session(person_seq, now_ms, now_ms)
        self._sessions[_digest(cookie)] = session
        while len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)
        return Visitor(cookie, True, session)

    def sign_out(self, visitor: Visitor) -> Visitor:
        """The session ends; the browser goes on under a new id."""
        self._sessions.pop(_digest(visitor.cookie), None)
        self._notices.pop(_digest(visitor.cookie), None)
        return Visitor(secrets.token_urlsafe(32), True, None)

    def sign_out_people(self, person_seqs: Collection[int]) -> None:
        """Sign these people out everywhere: they are deleted, and their row numbers may be given out again."""
        gone = [digest for digest, session in self._sessions.items() if session.person_seq in person_seqs]
        for digest in gone:
            del self._sessions[digest]
            self._notices.pop(digest, None)

    def sign_out_everybody(self) -> None:
        """Everything in the storage is new: nobody in it has signed in."""
        self._sessions.clear()
        self._notices.clear()

    def set_cookie(self, visitor: Visitor) -> tuple[Header, ...]:
        """The header that gives a browser its cookie; none when it has it already."""
        if not visitor.is_new:
            return ()
        return ((b"set-cookie", self._name + b"=" + visitor.cookie.encode() + self._attributes),)

    def make_csrf(self, visitor: Visitor, about: str, now_ms: int) -> str:
        """What a form carries so that only a page shown to this browser, about this very thing, can send it."""
        return f"{now_ms:x}.{self._sign(visitor, about, now_ms)}"

    def is_csrf(self, visitor: Visitor, about: str, offered: str, now_ms: int) -> bool:
        """Whether the form comes from a page of ours, shown to this browser not too long ago."""
        shown, _, signature = offered.partition(".")
        try:
            made_ms = int(shown, 16)
        except ValueError:
            return False
        expected = self._sign(visitor, about, made_ms)
        return hmac.compare_digest(signature.encode(), expected.encode()) and 0 <= now_ms - made_ms < FORM_MS

    def show_next(self, visitor: Visitor, notice: Notice) -> None:
        """Show this on the browser's next page."""
        self._notices[_digest(visitor.cookie)] = notice
        while len(self._notices) > _NOTICES:
            self._notices.popitem(last=False)

    def take_notice(self, visitor: Visitor) -> Notice | None:
        """What is to be shown on this page; it is shown once."""
        return self._notices.pop(_digest(visitor.cookie), None)

    def _sign(self, visitor: Visitor, about: str, made_ms: int) -> str:
        text = f"{visitor.cookie}\n{made_ms:x}\n{about}"
        return hmac.new(self._key, text.encode(errors="surrogatepass"), hashlib.sha256).hexdigest()

    def _read_cookie(self, headers: Iterable[Header]) -> str | None:
        for name, value in headers:
            if name == b"cookie":
                for part in value.split(b";"):
                    key, _, content = part.strip().partition(b"=")
                    if key == self._name and content.isascii() and 0 < len(content) <= 128:
                        return content.decode("ascii")
        return None


def _digest(cookie: str) -> bytes:
    """What is kept of a cookie: the time of a look-up shows nothing of other cookies."""
    return hashlib.sha256(cookie.encode()).digest()


def _is_open(session: Session, now_ms: int) -> bool:
    # A clock that was set back, as the control paths can, makes no session older.
    return now_ms - session.seen_ms < IDLE_MS and now_ms - session.opened_ms < LONGEST_MS
