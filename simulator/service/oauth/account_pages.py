"""The account page, where people see and take back what they allowed, and the files that all pages use."""

from __future__ import annotations

from functools import partial
from typing import Final

from simulator.service import addresses
from simulator.service.answers import Answer
from simulator.service.call import Call
from simulator.service.core.client import SIGN_IN
from simulator.service.endpoints import Endpoint, Handler, Reply
from simulator.service.oauth import pages
from simulator.service.oauth.scope_texts import describe
from simulator.service.oauth.sign_in import sign_in_with_form
from simulator.service.oauth.visit import Visit, moment
from simulator.service.storage import grants
from simulator.service.storage.grants import GrantShown

_ABOUT: Final = addresses.ACCOUNT


async def show_account(call: Call) -> Answer:
    """Who is signed in, and who may use the account; the sign-in form for a browser where nobody is."""
    visit = await Visit.begin(call)
    notice = visit.service.sessions.take_notice(visit.visitor)
    csrf, person = visit.csrf(_ABOUT), visit.person
    if person is None:
        return visit.page(
            "sign_in",
            action=addresses.ACCOUNT_SIGN_IN,
            client_name=None,
            csrf=csrf,
            notice=notice,
            email=notice.email if notice else "",
        )
    shown = await visit.service.look_up(lambda c: grants.grants_of_person(c, person.seq, visit.now_ms))
    return visit.page(
        "account",
        csrf=csrf,
        notice=notice,
        email=person.email,
        user_id=person.id,
        is_manufacturer=person.manufacturer_seq is not None,
        grants=[_show_grant(grant) for grant in shown],
    )


async def sign_in_to_account(call: Call) -> Answer:
    """The sign-in form of the account page."""
    visit = await Visit.with_form(call)
    if visit.person is not None:
        return visit.go(addresses.ACCOUNT)
    if not visit.is_own_form(_ABOUT):
        return visit.too_old(addresses.ACCOUNT)
    return await sign_in_with_form(visit, addresses.ACCOUNT)


async def sign_out_of_account(call: Call) -> Answer:
    """Sign out of this browser; what was granted stays."""
    visit = await Visit.with_form(call)
    if visit.person is not None:
        if not visit.is_own_form(_ABOUT):
            return visit.too_old(addresses.ACCOUNT)
        visit.sign_out()
        visit.show_next("good", "You are signed out.")
    return visit.go(addresses.ACCOUNT)


async def revoke(call: Call) -> Answer:
    """Take back a grant; once it is taken back, doing so again changes nothing."""
    visit = await Visit.with_form(call)
    person = visit.person
    if person is None:
        return visit.go(addresses.ACCOUNT)
    if not visit.is_own_form(_ABOUT):
        return visit.too_old(addresses.ACCOUNT)
    grant_id = visit.field("grant")
    known = await visit.service.look_up(lambda c: grants.grants_of_person(c, person.seq, visit.now_ms))
    grant = next((grant for grant in known if grant.grant_id == grant_id), None)
    if grant is None:
        visit.show_next("mind", "That had already ended; nothing was changed.")
        return visit.go(addresses.ACCOUNT)
    await call.check_epoch()
    await visit.service.writer.submit(lambda c: grants.revoke_grant(c, grant_id, person.seq, visit.now_ms))
    visit.show_next("good", f"{grant.client_name} may not use your account any more.")
    return visit.go(addresses.ACCOUNT)


async def redirect_to_form_page(call: Call) -> Answer:
    """Redirect whoever opens a form's address to the page that the form is on."""
    return Visit(call).go(addresses.ACCOUNT)


def _show_grant(grant: GrantShown) -> dict[str, object]:
    return {
        "id": grant.grant_id,
        "name": grant.client_name,
        "home_url": grant.home_url,
        "note": "Somebody with your password and the keys of your account"
        if grant.client_id == SIGN_IN.client_id
        else "",
        "scopes": describe(grant.scopes),
        "allowed": moment(grant.created_ms),
        "used": moment(grant.last_used_ms),
        "ends": moment(grant.expires_ms),
    }


async def _show_file(name: str, _call: Call) -> Answer:
    return pages.static(name)


def _page(path: str, handler: Handler, name: str) -> Endpoint:
    reply = Reply(200, "The page", media_type="text/html")
    return Endpoint("GET", path, handler, name, "For people", "partner access", (reply,), public=True)


def _form(path: str, handler: Handler, name: str) -> tuple[Endpoint, ...]:
    reply = (Reply(303, "To the page", located=True, media_type="text/html"),)
    return tuple(
        Endpoint(method, path, does, name, "A form of the account page", "partner access", reply, public=True)
        for method, does in (("POST", handler), ("GET", redirect_to_form_page))
    )


ENDPOINTS: Final = (
    _page(addresses.ACCOUNT, show_account, "show_account"),
    *_form(addresses.ACCOUNT_SIGN_IN, sign_in_to_account, "sign_in_to_account"),
    *_form(addresses.ACCOUNT_SIGN_OUT, sign_out_of_account, "sign_out_of_account"),
    *_form(addresses.ACCOUNT_REVOKE, revoke, "revoke_grant"),
    *(_page(addresses.STATIC + name, partial(_show_file, name), f"show_{name}") for name in pages.STATIC_NAMES),
)
"""Not in the OpenAPI document: they are for people."""
