"""What a user's answer comes to: a code and the way back to the client."""

from __future__ import annotations

import secrets

from sqlalchemy import Connection

from agent.wire.secret import Secret
from simulator.service.oauth.authorize import AuthorizationRequest
from simulator.service.service import Service
from simulator.service.storage import grants


async def approve(service: Service, request: AuthorizationRequest, person_seq: int) -> str:
    """The user says yes: makes a code, and a manufacturer of a user who is none yet.

    Args:
        service: where.
        request: what :func:`simulator.service.oauth.authorize.decide` returned for THIS submission, decided anew.
        person_seq: ``people.seq`` of the user who is signed in.

    Returns:
        Where to send the browser: the redirect URI with ``code``, ``state`` and ``iss``. It is a secret until it is
        used: never log it.

    Raises:
        ServiceFault: 404 ``user_not_found``: the user was deleted meanwhile.
    """
    code = Secret(secrets.token_urlsafe(32))
    account_id, now_ms = service.ids.next(), service.clock.now_ms()

    def issue(connection: Connection) -> None:
        grants.issue_code(connection, code, request, person_seq, account_id=account_id, now_ms=now_ms)

    await service.writer.submit(issue)
    return request.location(code.reveal(), service.public_url)


def deny(service: Service, request: AuthorizationRequest) -> str:
    """The user says no: where to send the browser with ``access_denied``."""
    return request.denied().location(service.public_url)
