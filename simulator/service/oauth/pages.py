"""``/partner-oauth-authorize``: sign-in and consent for a partner (specification, "Step 1: authorize").

The pages work without scripts.
"""

from __future__ import annotations

import hmac
import re
import secrets
from functools import cache
from importlib.resources import files
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from oauthlib.oauth2 import AccessDeniedError

from agent.wire import paths
from simulator.service.errors import ApiError
from simulator.service.http import CallDep, ErrorBody, Json, Router
from simulator.service.oauth.endpoints import FORM
from simulator.service.oauth.parameters import Pairs, parse_pairs, values_of, with_query
from simulator.service.oauth.provider import ASKED, Asked, decide, send_back
from simulator.service.oauth.sessions import SESSION_MS, Session
from simulator.service.oauth.store import EMAIL_CHARACTERS, authenticate, clean_email, is_loopback
from simulator.service.oauth.tokens import issue_code
from simulator.service.scopes import TEXTS
from simulator.service.times import show_time

ANSWER: Final = "/partner-oauth-answer"
"""Where the forms of the authorize page go; that one takes GET only, as the specification has it."""
_COOKIE: Final = "device-service-session"
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*", re.ASCII)
_STATIC: Final = {"pages.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"}
_NO_SNIFFING: Final = {"X-Content-Type-Options": "nosniff"}
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    **_NO_SNIFFING,
}

router = Router("partner access", free_query=True)


class _Visit:
    """One request of a browser: who is signed in, what it asks for, and what its form says."""

    def __init__(self, call: CallDep, form: Pairs = ()) -> None:
        self._call = call
        self._sessions = call.service.sessions
        self._form = values_of(form, ("csrf", "answer", "email", "password"))
        given = call.request.cookies.get(_COOKIE, "")
        self.cookie = given or secrets.token_urlsafe(32)
        self._is_new = not given
        self.session = self._sessions.find(self.cookie, call.now_ms)
        row = None
        if self.session.person is not None:
            row = call.db.sql.execute("SELECT * FROM people WHERE row = ?", (self.session.person,)).fetchone()
        self.person = row

    def decide(self) -> Asked | Response:
        """What the address asks for; the error page or the way back to the partner when it cannot be granted."""
        issuer = self._call.service.public_url
        try:
            pairs = parse_pairs(self._call.request.scope["query_string"])
        except ValueError:
            text = (
                "The address that led here cannot be read: its query is not percent-encoded UTF-8, or has too many"
                " parameters. Go back to the application and start again."
            )
            return self._refuse(ApiError(400, "invalid_request", text))
        try:
            decided = decide(self._call.db.sql, self._call.now_ms, pairs, issuer)
        except ApiError as error:
            return self._refuse(error)
        return self.go(decided) if isinstance(decided, str) else decided

    def address(self, path: str = paths.OAUTH_AUTHORIZE) -> str:
        """The address of this request's page, or another one with its query; :meth:`decide` found that it is ASCII."""
        return f"{path}?{self._call.request.scope['query_string'].decode('ascii')}"

    def field(self, name: str) -> str:
        """A field of the form; empty when it is absent or there more than once."""
        return self._form.get(name, "")

    def is_own_form(self) -> bool:
        """Whether the form comes from a page that this browser was shown."""
        return hmac.compare_digest(self.field("csrf").encode(), self._sessions.csrf(self.cookie).encode())

    def change(self, session: Session) -> None:
        """Begin a new session in place of the browser's."""
        self._sessions.end(self.cookie)
        self.cookie, self._is_new = self._sessions.open(session), True

    def go(self, location: str) -> Response:
        """303: what the form did is done, and loading the next page again does not do it again."""
        return self._with_cookie(Response(status_code=303, headers={**_HEADERS, "Location": location}))

    def page(self, template: str, status: int = 200, redirect_uri: str | None = None, **context: Any) -> Response:
        """A page; ``redirect_uri`` is where the answer to its form may send the browser."""
        host = urlsplit(self._call.service.public_url).netloc
        csrf = self._sessions.csrf(self.cookie)
        html = _templates().get_template(f"{template}.html.j2").render(host=host, csrf=csrf, **context)
        headers = {**_HEADERS, "Content-Security-Policy": make_policy(redirect_uri)}
        answer = Response(html.encode(errors="replace"), status, headers, "text/html; charset=utf-8")
        return self._with_cookie(answer)

    def too_old(self, again: str) -> Response:
        """The error page for a form of a page that this browser was not shown."""
        return self._trouble(
            ApiError(
                403,
                "page_expired",
                "This page was open for too long, or you have signed in or out in another tab since."
                " Your answer was not used.",
            ),
            "This page is too old",
            advice="Open it anew and answer again. It asks you for your password if you are not signed in any more."
            " If this comes up every time, let the browser take cookies from this address.",
            again=again,
        )

    def _refuse(self, refused: ApiError) -> Response:
        return self._trouble(
            refused,
            "This link does not work",
            advice="Go back to the application and start again. If it happens again, tell the people who make it, and"
            " give them the reference below. It is nothing that you did.",
            for_developer="The client must be registered at this service, and redirect_uri must be, character by"
            " character, one of its registered addresses: scheme, host, port, path and query. See /docs for the"
            " parameters.",
        )

    def _trouble(
        self, error: ApiError, heading: str, *, advice: str, for_developer: str = "", again: str = ""
    ) -> Response:
        """The error page; the error body for those who ask for JSON."""
        accepted = self._call.request.headers.get("accept", "").lower()
        if "application/json" in accepted and "text/html" not in accepted:
            return Json({"error": error.error, "message": error.message}, error.status_code)
        return self.page(
            "error",
            error.status_code,
            heading=heading,
            message=error.message,
            advice=advice,
            for_developer=for_developer,
            error=error.error,
            reference=self._call.request.scope["request_id"],
            time=show_time(self._call.now_ms),
            again=again,
        )

    def _with_cookie(self, answer: Response) -> Response:
        if self._is_new:
            answer.set_cookie(_COOKIE, self.cookie, httponly=True, samesite="lax")
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
    common: dict[str, Any] = {
        "redirect_uri": asked.redirect_uri,
        "action": visit.address(ANSWER),
        "client_name": asked.client.name,
    }
    if visit.person is None:
        tried, visit.session.tried = visit.session.tried, None
        return visit.page("sign_in", wrong=tried is not None, email=tried or "", **common)
    return visit.page(
        "consent",
        email=visit.person["email"],
        asked=[(name, *TEXTS[name]) for name in TEXTS if name in asked.scopes],
        becomes_manufacturer=visit.person["account"] is None,
        client=asked.client,
        back_to=asked.redirect_uri,
        goes_to=urlsplit(asked.redirect_uri).netloc or "its app on this device",
        **common,
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
    here, said = visit.address(), visit.field("answer")
    if not visit.is_own_form():
        # A second click on "Sign in" comes from a page of before the first one.
        return visit.go(here) if said == "sign_in" and visit.person is not None else visit.too_old(here)
    if said == "sign_in":
        await _sign_in(call, visit)
    elif said == "switch":
        visit.change(Session(0))
    elif said == "deny":
        denied = AccessDeniedError("The user did not approve the request.")
        return visit.go(send_back(asked.redirect_uri, asked.state, call.service.public_url, denied))
    elif said == "approve" and visit.person is not None:
        return visit.go(_approve(call, asked, visit.person["row"]))
    return visit.go(here)


async def _sign_in(call: CallDep, visit: _Visit) -> None:
    email = clean_email(visit.field("email"))
    person = await authenticate(call.db.sql, email, visit.field("password"))
    ends_ms = call.now_ms + SESSION_MS
    if person is not None:
        visit.change(Session(ends_ms, person["row"]))
    else:
        visit.change(Session(ends_ms, tried=email[:EMAIL_CHARACTERS]))


def _approve(call: CallDep, asked: Asked, person: int) -> str:
    """Make a code, and a manufacturer of a user who is none yet; where the browser goes with it."""
    with call.db.write() as sql:
        code = issue_code(
            sql,
            person,
            client_id=asked.client.client_id,
            redirect_uri=asked.redirect_uri,
            scopes=asked.scopes,
            code_challenge=asked.code_challenge,
            account_id=call.service.ids.next(),
            now_ms=call.now_ms,
        )
    return with_query(asked.redirect_uri, {"code": code, "state": asked.state, "iss": call.service.public_url})


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
    target = ""
    if redirect_uri is not None:
        parts = urlsplit(redirect_uri)
        if parts.scheme == "https":
            target = "https:"
        elif parts.scheme == "http" and parts.hostname == "::1":
            target = "http:"  # a policy cannot name an IPv6 address
        elif parts.scheme == "http" and is_loopback(parts.hostname or ""):
            target = "http://127.0.0.1:* http://localhost:*"
        elif _SCHEME.fullmatch(parts.scheme):
            target = f"{parts.scheme}:"
    return (
        f"default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self' {target}; "
        "frame-ancestors 'none'; base-uri 'none'"
    )


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("simulator.service.oauth"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
