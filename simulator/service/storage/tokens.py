"""Token rows: made, found and deleted. Tokens carry 256 random bits and are stored as SHA-256 only."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, delete, insert, select

from agent.wire.secret import Secret
from simulator.service.core.client import hash_secret
from simulator.service.core.token_family import ACCESS_S, TokenPair, end_of_refresh
from simulator.service.storage.keys import Caller
from simulator.service.storage.tables import grants, people, tokens

ACCESS: Final = "access"
REFRESH: Final = "refresh"
PRUNE_ROWS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Grant:
    """Whose tokens they are.

    Attributes:
        ends_ms: no refresh token outlives it.
    """

    seq: int
    manufacturer_seq: int
    ends_ms: int


def make_pair(connection: Connection, grant: Grant, scope: str, now_ms: int, *, refreshable: bool) -> TokenPair:
    """Make and store new tokens of a grant."""
    pair = TokenPair(_make_token(), _make_token() if refreshable else None, scope)
    refresh_hash = None if pair.refresh_token is None else hash_secret(pair.refresh_token.reveal())
    common = {"manufacturer_seq": grant.manufacturer_seq, "grant_seq": grant.seq, "created_at": now_ms}
    access = {
        "token_hash": hash_secret(pair.access_token.reveal()),
        "kind": ACCESS,
        "expires_at": now_ms + ACCESS_S * 1000,
        "issued_with": refresh_hash,
        "scope": scope,
    }
    connection.execute(insert(tokens).values(**common, **access))
    if refresh_hash is not None:
        end = end_of_refresh(now_ms, grant.ends_ms)
        connection.execute(insert(tokens).values(**common, token_hash=refresh_hash, kind=REFRESH, expires_at=end))
    return pair


def _make_token() -> Secret:
    return Secret(secrets.token_urlsafe(32))


def find_bearer(connection: Connection, token: str, now_ms: int) -> Caller | None:
    """Whom an access token speaks for; None when it is unknown or over."""
    t, g = tokens.c, grants.c
    statement = (
        select(g.manufacturer_seq, g.client_id, t.scope, g.scope.label("granted"), people.c.id)
        .select_from(tokens)
        .join(grants, g.seq == t.grant_seq)
        .join(people, people.c.seq == g.person_seq)
        .where(t.token_hash == hash_secret(token), t.kind == ACCESS, t.expires_at > now_ms)
        .where(t.ended_at.is_(None), g.revoked_at.is_(None))
    )
    row = connection.execute(statement).one_or_none()
    if row is None:
        return None
    name = f"client {row.client_id} user {row.id}"
    return Caller(row.manufacturer_seq, name, b"", frozenset((row.scope or row.granted).split()))


def prune(connection: Connection, now_ms: int) -> int:
    """Delete tokens whose time is over, a bounded number at a time, and grants that have none left; how many tokens."""
    c = tokens.c
    over = select(c.token_hash, c.grant_seq).where(c.expires_at <= now_ms).limit(PRUNE_ROWS)
    rows = connection.execute(over).all()
    if rows:
        connection.execute(delete(tokens).where(c.token_hash.in_([row.token_hash for row in rows])))
        left = select(c.grant_seq).where(c.grant_seq == grants.c.seq).exists()
        ended = {row.grant_seq for row in rows}
        connection.execute(delete(grants).where(grants.c.seq.in_(ended), ~left))
    return len(rows)
