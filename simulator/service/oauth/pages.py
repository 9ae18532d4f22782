"""``/partner-oauth-authorize``: sign-in and consent for a partner (specification, "Step 1: authorize").

The pages work without scripts.
"""

from __future__ import annotations

import hmac
import secrets
from functools import cache
from importlib.resources import files
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from simulator.service.db import one
from simulator.service.errors import ApiError
from simulator.service.http import CallDep, ErrorBody, Json, Router
from simulator.service.oauth.endpoints import FORM
from simulator.service.oauth.parameters import Pairs, parse_pairs, values_of
from simulator.service.oauth.provider import ASKED, Asked, decide, issue_code, way_back
from simulator.service.oauth.sessions import SESSION_MS, Session
from simulator.service.oauth.store import EMAIL_CHARACTERS, authenticate, clean_email
from simulator.service.scopes import TEXTS
from simulator.wire import paths

ANSWER: Final = "/partner-oauth-answer"
"""Where the forms of the authorize page go; that one takes GET only, as the specification has it."""
_COOKIE: Final = "device-service-session"
_STATIC: Final = {"pages.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"}
_NO_SNIFFING: Final = {"X-Content-Type-Options": "nosniff"}
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    **_NO_SNIFFING,
}
_PAGE_EXPIRED: Final = ApiError(
    403,
    "page_expired",
    "This page was open for too long, or you have signed in or out in another tab since. Your answer was not used.",
)

router = Router("partner access", free_query=True)


class _Visit:
    """One request of a browser: who is signed in, and what its form says."""

    def __init__(self, call: CallDep, form: Pairs = ()) -> None:
        self._call = call
        self._sessions = call.service.sessions
        self.form = values_of(form, ("csrf", "answer", "email", "password"))
        self._given = call.request.cookies.get(_COOKIE, "")
        self._cookie = self._given or secrets.token_urlsafe(32)
        self.session = self._sessions.find(self._cookie, call.now_ms)
        self.person = one(call.db.sql, "SELECT * FROM people WHERE row = ?", (self.session.person,))

    def decide(self) -> Asked | Response:
        """What the address asks for; the error page or the way back to the partner when it cannot be granted."""
        call = self._call
        try:
            decided = decide(call.db.sql, call.now_ms, call.request.scope["query_string"], call.service.public_url)
        except ApiError as error:
            return self.refuse(error)
        return self.go(decided) if isinstance(decided, str) else decided

    def address(self, path: str = paths.OAUTH_AUTHORIZE) -> str:
        """The address of this request's page, or another one with its query; :meth:`decide` found that it is ASCII."""
        return f"{path}?{self._call.request.scope['query_string'].decode('ascii')}"

    def is_own_form(self) -> bool:
        """Whether the form comes from a page that this browser was shown."""
        return hmac.compare_digest(self.form.get("csrf", "").encode(), self._sessions.csrf(self._cookie).encode())

    def change(self, session: Session) -> None:
        """Begin a new session in place of the browser's."""
        self._cookie = self._sessions.replace(self._cookie, session)

    def go(self, location: str) -> Response:
        """303: what the form did is done, and loading the next page again does not do it again."""
        return self._with_cookie(Response(status_code=303, headers={**_HEADERS, "Location": location}))

    def page(self, name: str, status: int = 200, redirect_uri: str | None = None, **context: Any) -> Response:
        """A page; ``redirect_uri`` is where the answer to its form may send the browser."""
        html = _template(name).render(
            action=self.address(ANSWER) if redirect_uri is not None else "",
            csrf=self._sessions.csrf(self._cookie),
            host=urlsplit(self._call.service.public_url).netloc,
            **context,
        )
        headers = {**_HEADERS, "Content-Security-Policy": make_policy(redirect_uri)}
        answer = Response(html.encode(errors="replace"), status, headers, "text/html; charset=utf-8")
        return self._with_cookie(answer)

    def refuse(self, error: ApiError, again: str = "") -> Response:
        """The error page, with a way to ``again``; the error body for those who ask for JSON."""
        accepted = self._call.request.headers.get("accept", "").lower()
        if "application/json" in accepted and "text/html" not in accepted:
            return Json({"error": error.error, "message": error.message}, error.status_code)
        reference = self._call.request.scope["request_id"]
        return self.page("error", error.status_code, error=error, again=again, reference=reference)

    def _with_cookie(self, answer: Response) -> Response:
        if self._cookie != self._given:
            answer.set_cookie(_COOKIE, self._cookie, httponly=True, samesite="lax")
        return answer


# --- the pages ------------------------------------------------------------------------------------------------------

_NEEDED: Final = {"client_id", "redirect_uri", "response_type", "scope"}
_PARAMETERS: Final = [
    {"name": name, "in": "query", "required": name in _NEEDED, "schema": {"type": "string"}} for name in ASKED
]
_HTML: Final = {"text/html": {"schema": {"type": "string"}}}
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The page", "content": _HTML},
    303: {"description": "Back to `redirect_uri`"},
    400: {"description": "No page to go back to; JSON when asked for", "content": _HTML, "model": ErrorBody},
}


@router.get(
    paths.OAUTH_AUTHORIZE,
    response_class=HTMLResponse,
    responses=_ANSWERS,
    openapi_extra={"parameters": _PARAMETERS},
)
async def show_authorize_page(call: CallDep) -> Response:
    """Sign-in and consent for a partner, in the user's browser.

    At the end it goes to `redirect_uri` with `code`, `state` and `iss`, or with `error`.
    """
    visit = _Visit(call)
    asked = visit.decide()
    if isinstance(asked, Response):
        return asked
    if visit.person is None:
        tried, visit.session.tried = visit.session.tried, None
        return visit.page("sign_in", redirect_uri=asked.redirect_uri, client=asked.client, tried=tried)
    return visit.page(
        "consent",
        redirect_uri=asked.redirect_uri,
        asked=asked,
        person=visit.person,
        scopes=[(name, TEXTS[name]) for name in TEXTS if name in asked.scopes],
        goes_to=urlsplit(asked.redirect_uri).netloc or "its app on this device",
    )


@router.post(ANSWER, include_in_schema=False)
async def take_answer(call: CallDep) -> Response:
    """What a person says on one of these pages. The request is decided anew: nothing in the form is believed."""
    call.request.scope["body_types"] = (FORM,)
    try:
        form = parse_pairs(await call.request.body())
    except ValueError:
        text = "The form cannot be read: send the page's own form."
        raise ApiError(400, "invalid_request", text) from None
    visit = _Visit(call, form)
    asked = visit.decide()
    if isinstance(asked, Response):
        return asked
    here, said = visit.address(), visit.form.get("answer")
    if not visit.is_own_form():
        # A second click on "Sign in" comes from a page of before the first one.
        return visit.go(here) if said == "sign_in" and visit.person is not None else visit.refuse(_PAGE_EXPIRED, here)
    issuer = call.service.public_url
    if said == "sign_in":
        email = clean_email(visit.form.get("email", ""))
        person = await authenticate(call.db.sql, email, visit.form.get("password", ""))
        ends_ms = call.now_ms + SESSION_MS
        visit.change(Session(ends_ms, person["row"]) if person else Session(ends_ms, tried=email[:EMAIL_CHARACTERS]))
    elif said == "switch":
        visit.change(Session(0))
    elif said == "deny":
        told = {"error": "access_denied", "error_description": "The user did not approve the request."}
        return visit.go(way_back(asked.redirect_uri, asked.state, issuer, **told))
    elif said == "approve" and visit.person is not None:
        with call.db.write() as sql:
            code = issue_code(sql, asked, visit.person["row"], call.service.ids.next(), call.now_ms)
        return visit.go(way_back(asked.redirect_uri, asked.state, issuer, code=code))
    return visit.go(here)


@router.get("/oauth/static/{name}", include_in_schema=False)
async def show_file(name: str) -> Response:
    """A file of the pages."""
    if name not in _STATIC:
        raise ApiError(404, "not_found", "There is nothing at this path.")
    content = (files("simulator.service.oauth") / "static" / name).read_bytes()
    return Response(content, headers={"Cache-Control": "no-cache", **_NO_SNIFFING}, media_type=_STATIC[name])


def make_policy(redirect_uri: str | None = None) -> str:
    """What a page may load and where its forms may lead.

    Chromium holds the redirects that follow on a form against ``form-action`` too, and a partner's callback often
    sends the browser on to another host of his. So an https address opens https, and one on this machine opens this
    machine; everything else opens itself alone.
    """
    parts = urlsplit(redirect_uri or "")
    target = f" {parts.scheme}:" if parts.scheme else ""
    if parts.scheme == "http" and parts.hostname != "::1":  # a policy cannot name an IPv6 address
        target = " http://127.0.0.1:* http://localhost:*"
    return (
        f"default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'{target}; "
        "frame-ancestors 'none'; base-uri 'none'"
    )


@cache
def _template(name: str) -> Template:
    loader = PackageLoader("simulator.service.oauth")
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return pages.get_template(f"{name}.html.j2")
