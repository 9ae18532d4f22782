"""Partner applications. Any user may approve any of them; the account is whose reset takes them away."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from agent.errors import ConfigurationError
from agent.wire.secret import Secret
from simulator.service.core.client import (
    GRANT_TYPES,
    SIGN_IN,
    Client,
    check_client,
    check_secret,
    hash_secret,
    origins_of,
)
from simulator.service.core.scopes import SCOPES
from simulator.service.errors import conflict
from simulator.service.storage.tables import partner_clients


@dataclass(frozen=True, slots=True)
class NewClient:
    """A client that was registered just now.

    Attributes:
        client_secret: to be shown once; None for a public client.
    """

    client_id: str
    client_secret: Secret | None


@dataclass(frozen=True, slots=True)
class WantedClient:
    """A client that is to be registered; see :class:`simulator.service.core.client.Client`.

    Attributes:
        public: it keeps no secret.
        client_id: made when None.
        client_secret: of a client that is not public; 256 random bits are made when None.
    """

    name: str
    redirect_uris: tuple[str, ...]
    scopes: Sequence[str] = SCOPES
    public: bool = False
    client_id: str | None = None
    client_secret: Secret | None = None
    grant_types: Sequence[str] = GRANT_TYPES
    description: str | None = None
    home_url: str | None = None
    logo_url: str | None = None


def make(wanted: WantedClient) -> tuple[Client, NewClient]:
    """What is stored of a client, and what is shown once.

    Raises:
        ConfigurationError: its secret cannot be used.
    """
    secret = wanted.client_secret
    if wanted.public and secret is not None:
        raise ConfigurationError(["a public client has no client_secret: leave it out, or public"], "service clients")
    if secret is not None and (fault := check_secret(secret.reveal())) is not None:
        raise ConfigurationError([fault], "service clients")
    if secret is None and not wanted.public:
        secret = Secret(f"pcs_{secrets.token_urlsafe(32)}")
    client = Client(
        client_id=wanted.client_id or f"client-{secrets.token_hex(8)}",
        name=wanted.name,
        redirect_uris=wanted.redirect_uris,
        scopes=tuple(dict.fromkeys(wanted.scopes)),
        secret_hash=None if secret is None else hash_secret(secret.reveal()),
        grant_types=tuple(wanted.grant_types),
        description=wanted.description,
        home_url=wanted.home_url,
        logo_url=wanted.logo_url,
    )
    return client, NewClient(client.client_id, secret)


def make_checked(wanted: WantedClient) -> tuple[Client, NewClient]:
    """As :func:`make`, of a client that can be registered.

    Raises:
        ConfigurationError: everything that speaks against it.
    """
    client, made = make(wanted)
    check(client)
    return client, made


def add(connection: Connection, manufacturer_seq: int, client: Client, now_ms: int) -> None:
    """Store a new OAuth client.

    Raises:
        ConfigurationError: everything that speaks against it.
        Conflict: ``client_exists``: the id is taken, on the whole service.
    """
    check(client)
    c = partner_clients.c
    if connection.execute(select(c.seq).where(c.client_id == client.client_id)).first() is not None:
        issue = f"there is a client {client.client_id!r} already, of this account or another one"
        raise conflict("client_exists", "client_id", issue)
    connection.execute(
        insert(partner_clients).values(manufacturer_seq=manufacturer_seq, created_at=now_ms, **_columns(client))
    )


def put(connection: Connection, manufacturer_seq: int, client: Client, now_ms: int) -> bool | None:
    """Register a client, or make the one of this id what is given; tokens that it has stay good.

    Returns:
        True when it is new, False when it was changed, None when it is as it was.

    Raises:
        ConfigurationError: everything that speaks against it.
        Conflict: ``client_exists``: another account has a client of this id.
    """
    check(client)
    c = partner_clients.c
    row = connection.execute(select(partner_clients).where(c.client_id == client.client_id)).one_or_none()
    if row is None or row.manufacturer_seq != manufacturer_seq:
        add(connection, manufacturer_seq, client, now_ms)
        return True
    if _read(row) == client:
        return None
    connection.execute(update(partner_clients).where(c.seq == row.seq).values(**_columns(client)))
    return False


def find(connection: Connection, client_id: str | None) -> Client | None:
    """The client of this id."""
    if client_id is None:
        return None
    if client_id == SIGN_IN.client_id:
        return SIGN_IN
    row = connection.execute(select(partner_clients).where(partner_clients.c.client_id == client_id)).one_or_none()
    return None if row is None else _read(row)


def browser_origins(connection: Connection) -> frozenset[str]:
    """The web origins of all public clients: whose pages may call this service from a browser."""
    c = partner_clients.c
    rows = connection.execute(select(c.redirect_uris).where(c.secret_hash.is_(None)))
    return frozenset().union(*(origins_of(json.loads(row.redirect_uris)) for row in rows))


def check(client: Client) -> None:
    """Refuse what cannot be registered.

    Raises:
        ConfigurationError: everything that speaks against it.
    """
    faults = check_client(client)
    if faults:
        raise ConfigurationError(faults, "service clients")


def _columns(client: Client) -> dict[str, Any]:
    return {
        "client_id": client.client_id,
        "name": client.name,
        "secret_hash": client.secret_hash,
        "redirect_uris": json.dumps(client.redirect_uris),
        "scope": " ".join(client.scopes),
        "grant_types": " ".join(client.grant_types),
        "description": client.description,
        "home_url": client.home_url,
        "logo_url": client.logo_url,
    }


def _read(row: Row[Any]) -> Client:
    return Client(
        client_id=row.client_id,
        name=row.name,
        redirect_uris=tuple(json.loads(row.redirect_uris)),
        scopes=tuple(row.scope.split()),
        secret_hash=row.secret_hash,
        grant_types=tuple(row.grant_types.split()),
        description=row.description,
        home_url=row.home_url,
        logo_url=row.logo_url,
    )
