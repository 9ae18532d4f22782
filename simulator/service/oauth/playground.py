"""The playground: a page that is a partner application, to try each step of partner access by hand."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from agent.wire import paths
from simulator.service import addresses
from simulator.service.answers import Answer
from simulator.service.call import Call
from simulator.service.core.client import Client, check_client
from simulator.service.core.scopes import SCOPES
from simulator.service.endpoints import Endpoint, Reply
from simulator.service.errors import ServiceError
from simulator.service.oauth import pages
from simulator.service.oauth.scope_texts import describe
from simulator.service.oauth.visit import Visit
from simulator.service.service import Service
from simulator.service.storage import accounts, clients

log = logging.getLogger(__name__)

CLIENT_ID: Final = "playground"


@dataclass(frozen=True, slots=True)
class Step:
    """A request that the page sends."""

    id: str
    title: str
    text: str
    button: str


_STEPS: Final = (
    Step(
        "exchange",
        "Exchange the code for tokens",
        "The code alone is worth nothing: the verifier has to come with it. Send it a second time, and the service"
        " takes back every token that came of it, because then two parties have the code.",
        "Send it",
    ),
    Step(
        "call",
        "Call the API",
        "The access token is good for an hour, and for the endpoints of the scopes that you allowed. On any other it is"
        " answered with 403 insufficient_scope.",
        "Call it",
    ),
    Step(
        "introspect",
        "Ask what the token is",
        "Introspection (RFC 7662) tells a confidential client whether a token of its own is good still, for which"
        " scopes and until when. This page keeps no secret, so it is refused: 401 invalid_client.",
        "Ask",
    ),
    Step(
        "refresh",
        "Refresh",
        "Both tokens are replaced. The old refresh token must not be used again: when it is, everything is taken back,"
        " because then two parties have it.",
        "Refresh",
    ),
    Step(
        "revoke",
        "Give it all back",
        "Revocation (RFC 7009) of the refresh token ends the grant with all its tokens, as Revoke on your account page"
        " does. Call the API again afterwards: 401 invalid_token.",
        "Revoke",
    ),
)
_API_PATHS: Final = ("/products", "/devices", "/sensor-data", "/database/runtime-data", "/rules", "/analytics/devices")


def open_on(service: Service) -> bool:
    """Register the page as a partner application, now and after each reset, when the control paths are on.

    Returns:
        Whether the page is there. It is not at an address that no partner may have: http on other machines.
    """
    if not service.config.control:
        return False
    client = make_client(service.public_url)
    if check_client(client):
        log.info("no playground at %s: the public URL has to be https, or on this machine", service.public_url)
        return False

    def register(connection: Connection) -> None:
        clients.put(connection, accounts.first(connection), client, service.clock.now_ms())

    try:
        service.writer.call(register)
    except ServiceError as exc:
        log.warning("no playground: %s", exc.message)
        return False
    service.on_reset.append(register)
    return True


def make_client(public_url: str) -> Client:
    """The page as a partner application of this service."""
    uri = public_url + addresses.PLAYGROUND
    return Client(
        CLIENT_ID,
        "Playground",
        (uri,),
        SCOPES,
        description="The page of this service on which each step of partner access can be tried by hand.",
        home_url=uri,
    )


async def show_playground(call: Call) -> Answer:
    """The page; everything else is its script's."""
    return Visit(call).page(
        "playground",
        policy=pages.make_policy(scripted=True),
        client_id=CLIENT_ID,
        metadata_path=paths.OAUTH_METADATA,
        asked=describe(SCOPES),
        steps=_STEPS,
        api_paths=_API_PATHS,
    )


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        addresses.PLAYGROUND,
        show_playground,
        "show_playground",
        "The playground",
        "partner access",
        (Reply(200, "The page", media_type="text/html"),),
        public=True,
    ),
)
"""Not in the OpenAPI document: it is for people."""
