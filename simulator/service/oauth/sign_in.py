"""Sign-in (specification, ``POST /auth/signin`` and "Token response (OAuth)")."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from agent.wire import paths
from simulator.service.answers import Answer, ok
from simulator.service.call import Call
from simulator.service.core.scopes import ALL
from simulator.service.core.token_family import TokenPair
from simulator.service.endpoints import ERROR, Endpoint, Reply
from simulator.service.gate import KEY_CHALLENGE
from simulator.service.http_errors import HttpError
from simulator.service.oauth.signing_in import too_many_attempts
from simulator.service.oauth.token import NO_STORE, token_response
from simulator.service.records import SignInRecord
from simulator.service.storage import grants, people
from simulator.wire.messages import SignIn


async def sign_in(call: Call) -> Answer:
    """Tokens for a person of the caller's account.

    They go past the stored answers of the extension ``idempotency-key``: no token is ever stored in clear.
    """
    request = await call.message(SignIn)
    service, account = call.service, call.caller.manufacturer_seq
    email, address, now_ms = people.clean_email(request.email), service.address_of(call.scope), service.clock.now_ms()
    wait_s = service.attempts.begin(email, address, now_ms)
    if wait_s:
        raise too_many_attempts(wait_s)
    person = await service.look_up(lambda c: people.find(c, account, request.email))
    matches = await service.passwords.check(None if person is None else person.password_hash, request.password)
    if person is None or not matches:
        raise HttpError(401, "invalid_credentials", "The email or the password is wrong.", headers=(KEY_CHALLENGE,))
    service.attempts.succeed(email, address, now_ms)
    grant_id = service.ids.next()

    def open_grant(connection: Connection) -> TokenPair:
        return grants.open_grant(connection, person, ALL, grant_id, now_ms)

    await call.check_epoch()
    made = await service.writer.submit(open_grant)
    return ok(token_response(made) | {"user": {"user_id": person.id, "email": person.email}}, *NO_STORE)


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
            Reply(429, "`too_many_attempts`: wrong passwords for this email, or from this address", ERROR),
        ),
        body=(SignIn,),
        replayed=False,
    ),
)
