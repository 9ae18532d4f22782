"""``/partner-oauth-authorize``: sign-in and consent for a partner (specification, "Step 1: authorize")."""

from __future__ import annotations

import secrets
from functools import partial
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from sqlalchemy import Connection

from agent.wire.secret import Secret
from simulator.service import addresses
from simulator.service.answers import Answer
from simulator.service.call import Call
from simulator.service.core.authorize import (
    UNREADABLE,
    AuthorizationRequest,
    Decision,
    ErrorPage,
    RedirectError,
    client_id_of,
    decide,
)
from simulator.service.core.client import origin_of
from simulator.service.core.parameters import parse_pairs
from simulator.service.endpoints import Endpoint, Parameter, Reply
from simulator.service.http_errors import HttpError
from simulator.service.oauth import pages
from simulator.service.oauth.scope_texts import describe
from simulator.service.oauth.sign_in import sign_in_with_form
from simulator.service.oauth.visit import Visit
from simulator.service.service import Service
from simulator.service.sessions import Answered
from simulator.service.storage import clients, grants

_TAG: Final = "partner access"


async def show(call: Call) -> Answer:
    """Sign-in or consent; the error page, or straight back to the partner, when the request cannot be granted."""
    visit = await Visit.begin(call)
    match await _decide(visit):
        case AuthorizationRequest() as request:
            return _ask(visit, request)
        case refused:
            return _refuse(visit, refused)


async def answer(call: Call) -> Answer:
    """What a person says on one of these pages. The request is decided anew: nothing in the form is believed."""
    visit = await Visit.with_form(call)
    decision = await _decide(visit)
    if not isinstance(decision, AuthorizationRequest):
        return _refuse(visit, decision)
    here, said = _address(decision), visit.field("answer")
    if not visit.is_own_form(here):
        # A second click on "Sign in" comes from a page of before the first one.
        return visit.go(here) if said == "sign_in" and visit.person is not None else visit.too_old(here)
    match said:
        case "sign_in":
            return await sign_in_with_form(visit, here)
        case "approve":
            return await _approve(visit, decision)
        case "deny":
            return await _deny(visit, decision)
        case "switch":
            visit.sign_out()
        case "again" if visit.visitor.session is not None:
            visit.visitor.session.forget(here)
    return visit.go(here)


async def redirect_to_form_page(call: Call) -> Answer:
    """Redirect whoever opens a form's address to the page that the form is on."""
    visit = await Visit.begin(call)
    decision = await _decide(visit)
    return visit.go(_address(decision)) if isinstance(decision, AuthorizationRequest) else _refuse(visit, decision)


async def _decide(visit: Visit) -> Decision:
    try:
        pairs = parse_pairs(visit.call.scope["query_string"])
    except ValueError:
        return UNREADABLE
    client_id = client_id_of(pairs)
    if client_id is None:
        return decide(pairs, None)
    return decide(pairs, await visit.service.look_up(lambda connection: clients.find(connection, client_id)))


def _refuse(visit: Visit, refused: ErrorPage | RedirectError) -> Answer:
    if isinstance(refused, RedirectError):
        return visit.go(refused.location(visit.service.public_url))
    return visit.trouble(
        HttpError(400, refused.error, refused.message),
        "This link does not work",
        advice="Go back to the application and start again. If it happens again, tell the people who make it, and give"
        " them the reference below. It is nothing that you did.",
        for_developer="The client must be registered at this service, and redirect_uri must be, character by character,"
        " one of its registered addresses: scheme, host, port, path and query. See /docs for the parameters.",
    )


def _ask(visit: Visit, request: AuthorizationRequest) -> Answer:
    here = _address(request)
    common = {
        "action": _address(request, addresses.ANSWER),
        "csrf": visit.csrf(here),
        "client_name": request.client.name,
        "policy": pages.make_policy(request.redirect_uri, picture=_picture(request)),
    }
    notice = visit.service.sessions.take_notice(visit.visitor)
    session = visit.visitor.session
    if visit.person is None or session is None:
        return visit.page("sign_in", notice=notice, email=notice.email if notice else "", **common)
    answered = session.answered(here, visit.now_ms)
    if answered is not None:
        return visit.page("answered", approved=answered.approved, **common)
    return visit.page(
        "consent",
        notice=notice,
        email=visit.person.email,
        asked=describe(request.scopes),
        becomes_manufacturer=visit.person.manufacturer_seq is None,
        client_id=request.client.client_id,
        description=request.client.description,
        home_url=request.client.home_url,
        logo_url=request.client.logo_url,
        redirect_uri=request.redirect_uri,
        goes_to=urlsplit(request.redirect_uri).netloc or "its app on this device",
        **common,
    )


async def _approve(visit: Visit, request: AuthorizationRequest) -> Answer:
    """One request gets one code: a second click gets the same one for as long as the partner has not used it."""
    here, session = _address(request), visit.visitor.session
    if visit.person is None or session is None:
        return visit.go(here)
    person_seq = visit.person.seq
    async with session.turn:
        before = session.answered(here, visit.now_ms)
        if before is None:
            await visit.call.check_epoch()
            location = await _issue_code(visit.service, request, person_seq)
            session.remember(here, Answered(True, location, visit.now_ms))
            return visit.go(location)
    if before.approved and await visit.service.look_up(
        lambda connection: _is_unused(connection, before.location, visit.now_ms)
    ):
        return visit.go(before.location)
    return visit.go(here)


async def _deny(visit: Visit, request: AuthorizationRequest) -> Answer:
    here, session = _address(request), visit.visitor.session
    location = request.denied().location(visit.service.public_url)
    if session is None:
        return visit.go(location)
    async with session.turn:
        before = session.answered(here, visit.now_ms)
        if before is not None and before.approved:
            return visit.go(here)
        session.remember(here, Answered(False, location, visit.now_ms))
    return visit.go(location)


async def _issue_code(service: Service, request: AuthorizationRequest, person_seq: int) -> str:
    """Make a code, and a manufacturer of a user who is none yet.

    Args:
        service: where.
        request: what :func:`simulator.service.core.authorize.decide` returned for THIS submission, decided anew.
        person_seq: ``people.seq`` of the user who is signed in.

    Returns:
        Where to send the browser: the redirect URI with ``code``, ``state`` and ``iss``. It is a secret until it is
        used: never log it.

    Raises:
        NotFound: the user was deleted meanwhile.
    """
    code = Secret(secrets.token_urlsafe(32))
    account_id, now_ms = service.ids.next(), service.clock.now_ms()

    def issue(connection: Connection) -> None:
        grants.issue_code(connection, code, request, person_seq, account_id=account_id, now_ms=now_ms)

    await service.writer.submit(issue)
    return request.location(code.reveal(), service.public_url)


def _address(request: AuthorizationRequest, path: str = addresses.AUTHORIZE) -> str:
    """The address of this request's page: what it says and nothing else. Two requests that differ have two."""
    return f"{path}?{urlencode(request.pairs())}"


def _is_unused(connection: Connection, location: str, now_ms: int) -> bool:
    code = parse_qsl(urlsplit(location).query)
    return grants.is_code_unused(connection, next(value for name, value in reversed(code) if name == "code"), now_ms)


def _picture(request: AuthorizationRequest) -> str | None:
    """The origin of the client's picture."""
    return None if request.client.logo_url is None else origin_of(request.client.logo_url)


_TEXT: Final = {"type": "string"}
_SCOPES: Final = "Scopes with spaces between, each of the client's set, such as `manufacturer:products`"

ENDPOINTS: Final = (
    Endpoint(
        "GET",
        addresses.AUTHORIZE,
        show,
        "show_authorize_page",
        "Sign-in and consent for a partner, in the user's browser; at the end it goes to `redirect_uri` with `code`,"
        " `state` and `iss`, or with `error`",
        "partner access",
        (
            Reply(200, "The page", media_type="text/html"),
            Reply(
                303,
                "To `redirect_uri` with `error`, when the request cannot be granted",
                located=True,
                media_type="text/html",
            ),
            Reply(
                400,
                "A page (JSON when asked for): the client or its `redirect_uri` is not known",
                media_type="text/html",
            ),
        ),
        parameters=(
            Parameter("client_id", "The partner's client", _TEXT, required=True),
            Parameter("redirect_uri", "One of the client's registered addresses, to the letter", _TEXT, required=True),
            Parameter("response_type", "`code`", _TEXT, required=True),
            Parameter("scope", _SCOPES, _TEXT, required=True),
            Parameter("state", "Random text, returned unchanged; the client compares", _TEXT),
            Parameter("code_challenge", "Base64url of the verifier's SHA-256; required of public clients", _TEXT),
            Parameter("code_challenge_method", "`S256`", _TEXT),
        ),
        public=True,
    ),
)

_ON: Final = (Reply(303, "On to the next page, or back to the partner", located=True, media_type="text/html"),)


async def _show_file(name: str, _call: Call) -> Answer:
    return pages.static(name)


FORMS: Final = (
    *(
        Endpoint(method, addresses.ANSWER, handler, handler.__name__, "The forms of the page", _TAG, _ON, public=True)
        for method, handler in (("POST", answer), ("GET", redirect_to_form_page))
    ),
    *(
        Endpoint(
            "GET",
            addresses.STATIC + name,
            partial(_show_file, name),
            f"show_{name}",
            "A file of the page",
            _TAG,
            (Reply(200, "The file", media_type="text/html"),),
            public=True,
        )
        for name in pages.STATIC_NAMES
    ),
)
"""Not in the OpenAPI document: what a form carries is between the page and its service."""
