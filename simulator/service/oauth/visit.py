"""One request to a page, as its handler sees it: the moment, the browser behind it, and what its form says."""

from __future__ import annotations

from typing import Any, Final, Self
from urllib.parse import urlsplit

from sqlalchemy import Row

from simulator.service.answers import Answer
from simulator.service.call import Call
from simulator.service.core.parameters import Pairs, parse_pairs, value_of
from simulator.service.gate import RESPONSE_HEADERS
from simulator.service.http_errors import HttpError
from simulator.service.oauth import pages
from simulator.service.oauth.pages import ContinueLink
from simulator.service.sessions import Notice
from simulator.service.storage import people
from simulator.service.times import show_time

FORM: Final = frozenset({b"application/x-www-form-urlencoded"})


class Visit:
    """A browser's request to a page, with its session and form.

    Attributes:
        now_ms: the one moment that all of its answer goes by.
        visitor: the browser.
        person: who is signed in; None for nobody.
    """

    __slots__ = ("_form", "call", "now_ms", "person", "service", "visitor")

    def __init__(self, call: Call, form: Pairs = ()) -> None:
        self.call = call
        self.service = call.service
        self.now_ms = self.service.clock.now_ms()
        self.visitor = self.service.sessions.visitor(call.scope["headers"], self.now_ms)
        self.person: Row[Any] | None = None
        self._form = form

    @classmethod
    async def begin(cls, call: Call, form: Pairs = ()) -> Self:
        """Read who is signed in."""
        visit = cls(call, form)
        session = visit.visitor.session
        if session is not None:
            visit.person = await call.service.look_up(
                lambda connection: people.find_by_seq(connection, session.person_seq)
            )
        return visit

    @classmethod
    async def with_form(cls, call: Call) -> Self:
        """Read who is signed in, and the body as a form.

        Raises:
            HttpError: 400, 413 or 415, the body is no form.
        """
        body = await call.read_body(FORM)
        try:
            form = parse_pairs(body)
        except ValueError:
            raise HttpError(400, "invalid_request", "The form cannot be read: send the page's own form.") from None
        return await cls.begin(call, form)

    def field(self, name: str) -> str:
        """A field of the form; empty when it is absent or there more than once."""
        return value_of(self._form, name) or ""

    def csrf(self, about: str) -> str:
        """What a form of this page carries."""
        return self.service.sessions.make_csrf(self.visitor, about, self.now_ms)

    def is_own_form(self, about: str) -> bool:
        """Whether the form comes from a page that this browser was shown."""
        return self.service.sessions.is_csrf(self.visitor, about, self.field("csrf"), self.now_ms)

    def sign_out(self) -> None:
        """Sign this browser out."""
        self.visitor = self.service.sessions.sign_out(self.visitor)
        self.person = None

    def show_next(self, kind: str, text: str, email: str = "") -> None:
        """One sentence for this browser's next page."""
        self.service.sessions.show_next(self.visitor, Notice(kind, text, email))

    def page(self, template: str, **context: Any) -> Answer:
        """A page for this browser; see :func:`simulator.service.oauth.pages.render`."""
        headers = (*context.pop("headers", ()), *self.service.sessions.set_cookie(self.visitor))
        return pages.render(template, headers=headers, host=urlsplit(self.service.public_url).netloc, **context)

    def go(self, location: str) -> Answer:
        """Redirect to another page after a form: one of ours, which begins with a slash, or a partner's."""
        return pages.see_other(location, *self.service.sessions.set_cookie(self.visitor))

    def trouble(
        self,
        fault: HttpError,
        heading: str,
        *,
        advice: str = "",
        for_developer: str = "",
        way_out: ContinueLink | None = None,
    ) -> Answer:
        """The error page; the error body for those who ask for JSON."""
        if self._wants_json():
            return fault.answer()
        return self.page(
            "error",
            status=fault.status,
            headers=fault.headers,
            heading=heading,
            message=fault.message,
            advice=advice,
            for_developer=for_developer,
            error=fault.error,
            reference=self._reference(),
            time=show_time(self.now_ms),
            way_out=way_out,
        )

    def too_old(self, begin_again: str) -> Answer:
        """The error page for a form of a page that this browser was not shown lately."""
        fault = HttpError(
            403,
            "page_expired",
            "This page was open for too long, or you have signed in or out in another tab since."
            " Your answer was not used.",
        )
        return self.trouble(
            fault,
            "This page is too old",
            advice="Open it anew and answer again. It asks you for your password if you are not signed in any more."
            " If this comes up every time, let the browser take cookies from this address.",
            way_out=ContinueLink(begin_again, "Open the page anew"),
        )

    def _wants_json(self) -> bool:
        accepted = b",".join(value for name, value in self.call.scope["headers"] if name == b"accept").lower()
        return b"application/json" in accepted and b"text/html" not in accepted

    def _reference(self) -> str:
        """The request's id, by which the log and the request log of the control paths know it."""
        for name, value in self.call.scope[RESPONSE_HEADERS]:
            if name == b"x-request-id":
                return str(value.decode("ascii"))
        return ""
