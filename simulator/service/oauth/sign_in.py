"""Sign-in: ``POST /auth/signin`` (specification, "Token response (OAuth)"), and the form on the pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import Connection, Row

from agent.wire import paths
from agent.wire.secret import Secret
from simulator.service.answers import Answer, ok
from simulator.service.call import Call
from simulator.service.core.scopes import ALL
from simulator.service.core.token_family import TokenPair
from simulator.service.endpoints import ERROR, Endpoint, Reply
from simulator.service.gate import KEY_CHALLENGE
from simulator.service.http_errors import HttpError
from simulator.service.oauth.token import NO_STORE, token_response
from simulator.service.oauth.visit import Visit
from simulator.service.records import SignInRecord
from simulator.service.storage import grants, people
from simulator.wire.messages import SignIn

_WRONG: Final = "The email or the password is wrong."
_EMAIL_CHARACTERS: Final = 254
_PASSWORD_CHARACTERS: Final = 1_024

Find = Callable[[Connection, str], Row[Any] | None]
"""Finds the person with an email."""


async def sign_in(call: Call) -> Answer:
    """Tokens for a person of the caller's account.

    They go past the stored answers of the extension ``idempotency-key``: no token is ever stored in clear.
    """
    request = await call.message(SignIn)
    service, account, now_ms = call.service, call.caller.manufacturer_seq, call.service.clock.now_ms()
    person = await _find_with_password(
        call, request.email, request.password, lambda connection, email: people.find(connection, account, email)
    )
    if person is None:
        raise HttpError(401, "invalid_credentials", _WRONG, headers=(KEY_CHALLENGE,))
    grant_id = service.ids.next()

    def open_grant(connection: Connection) -> TokenPair:
        return grants.open_grant(connection, person, ALL, grant_id, now_ms)

    await call.check_epoch()
    made = await service.writer.submit(open_grant)
    return ok(token_response(made) | {"user": {"user_id": person.id, "email": person.email}}, *NO_STORE)


async def sign_in_with_form(visit: Visit, back: str) -> Answer:
    """Check the form's email and password, then redirect to ``back``, which shows what comes next."""
    email = visit.field("email")
    person = await _find_with_password(visit.call, email, Secret(visit.field("password")), people.find_anywhere)
    if person is None:
        visit.show_next("bad", _WRONG, people.clean_email(email)[:_EMAIL_CHARACTERS])
    else:
        visit.visitor = visit.service.sessions.sign_in(person.seq, visit.visitor, visit.now_ms)
    return visit.go(back)


async def _find_with_password(call: Call, email: str, password: Secret, find: Find) -> Row[Any] | None:
    """The person with this email and password; None, after the same time, for a wrong one of either."""
    service, email = call.service, people.clean_email(email)
    person = None
    if email.isprintable() and len(email) <= _EMAIL_CHARACTERS:
        person = await service.look_up(lambda connection: find(connection, email))
    given = password.reveal()
    stored = None if person is None or len(given) > _PASSWORD_CHARACTERS else person.password_hash
    if not await service.passwords.check(stored, Secret(given[:_PASSWORD_CHARACTERS])):
        return None
    return person


ENDPOINTS: Final = (
    Endpoint(
        "POST",
        paths.SIGN_IN,
        sign_in,
        "sign_in",
        "Tokens for a person of the caller's account",
        "authentication",
        (
            Reply(200, "Tokens; `expires_in` seconds of the service's clock", SignInRecord),
            Reply(400, "`validation_error`", ERROR),
            Reply(401, "`invalid_credentials`: the email or the password is wrong", ERROR),
            Reply(403, "`insufficient_scope`: this takes the key pair, not a bearer token", ERROR),
        ),
        body=(SignIn,),
        replayed=False,
    ),
)
