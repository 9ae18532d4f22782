"""``/_emulator/clients``: registering a partner application. Loopback callers only."""

from __future__ import annotations

from typing import Final

from pydantic_core import to_json

from agent.errors import ConfigurationError
from agent.wire.base import Items, Sent, Text
from agent.wire.secret import Secret
from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.answers import Answer
from simulator.service.call import Call
from simulator.service.core.client import GRANT_TYPES, Client
from simulator.service.core.scopes import SCOPES
from simulator.service.endpoints import ERROR, Endpoint, Parameter, Reply
from simulator.service.errors import invalid_all
from simulator.service.records import NewClientRecord
from simulator.service.routes.control import account_of
from simulator.service.storage import clients

_OF_ACCOUNT: Final = frozenset({"api_key"})


class ClientBody(Sent):
    """A partner application that is to be registered.

    Attributes:
        public: it keeps no secret: a single-page or mobile application.
        client_id: made when left out.
        client_secret: at least 32 characters; made when left out.
        scopes: what it may ask for; all when left out.
    """

    name: Text
    redirect_uris: Items[Text]
    scopes: Items[Text] = SCOPES
    public: bool = False
    client_id: Text | None = None
    client_secret: Text | None = None
    grant_types: Items[Text] = GRANT_TYPES
    description: Text | None = None
    home_url: Text | None = None
    logo_url: Text | None = None

    def wanted(self) -> clients.WantedClient:
        """What is to be registered."""
        secret = None if self.client_secret is None else Secret(self.client_secret)
        return clients.WantedClient(**self.model_dump() | {"client_secret": secret})


async def add_client(call: Call) -> Answer:
    """Register it; its secret is in this answer and nowhere else."""
    caller = account_of(call, call.query(_OF_ACCOUNT)) or call.service.first_caller()
    body, service, now_ms = await call.message(ClientBody), call.service, call.service.clock.now_ms()
    try:
        client, made = clients.make_checked(body.wanted())
    except ConfigurationError as exc:
        raise invalid_all([("body", fault) for fault in exc.faults]) from None
    await service.writer.submit(lambda connection: clients.add(connection, caller.manufacturer_seq, client, now_ms))
    return Answer(201, to_json(client_record(client, made)), ((b"cache-control", b"no-store"),))


def client_record(client: Client, made: clients.NewClient) -> NewClientRecord:
    """A client that was registered just now, with its secret."""
    return {
        "client_id": made.client_id,
        "client_secret": None if made.client_secret is None else made.client_secret.reveal(),
        "name": client.name,
        "redirect_uris": list(client.redirect_uris),
        "scopes": list(client.scopes),
        "grant_types": list(client.grant_types),
    }


ENDPOINTS: Final = (
    Endpoint(
        "POST",
        f"{CONTROL_PREFIX}clients",
        add_client,
        "add_client",
        "Register a partner application",
        "control",
        (
            Reply(201, "What it is; `client_secret` is shown this once, and null for a public client", NewClientRecord),
            Reply(404, "No account has this key", ERROR),
            Reply(409, "`client_exists`: the `client_id` is taken", ERROR),
        ),
        body=(ClientBody,),
        parameters=(Parameter("api_key", "A key of the account that registers it", {"type": "string"}),),
        public=True,
    ),
)
