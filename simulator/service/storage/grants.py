"""Grants, their codes and their tokens: what :mod:`simulator.service.core.token_family` decides is carried out here.

Codes carry 256 random bits and are stored as SHA-256 only. A code is used up, and its tokens are made, in the
transaction of the caller; the rows that decide are locked first, so that of many who come at once one wins. What is
refused is returned, not raised: an exception would undo the revocation that goes with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, delete, insert, or_, select, update

from agent.wire.secret import Secret
from simulator.service.core.authorize import AuthorizationRequest
from simulator.service.core.client import REFRESH_TOKEN, SIGN_IN, Client, hash_secret
from simulator.service.core.token_family import (
    CODE_S,
    LONGEST_S,
    Code,
    Exchange,
    RefreshToken,
    TokenPair,
    TokenVerdict,
    judge_code,
    judge_refresh,
)
from simulator.service.storage import people
from simulator.service.storage.tables import authorization_codes, grants, partner_clients, tokens
from simulator.service.storage.tokens import PRUNE_ROWS, REFRESH, Grant, make_pair

INVALID_GRANT: Final = "invalid_grant"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there are no tokens: ``error`` and ``error_description`` of the answer."""

    error: str
    description: str


def issue_code(
    connection: Connection,
    code: Secret,
    request: AuthorizationRequest,
    person_seq: int,
    *,
    account_id: str,
    now_ms: int,
) -> None:
    """Store a code for what a user approved. Every scope is a manufacturer's, so the user becomes one.

    Args:
        connection: in a transaction.
        code: made just now.
        request: what was approved.
        person_seq: the user's row.
        account_id: the id of the account, should the user have none yet.
        now_ms: this instant.

    Raises:
        NotFound: ``user_not_found``.
    """
    connection.execute(
        insert(authorization_codes).values(
            code_hash=hash_secret(code.reveal()),
            manufacturer_seq=people.provision(connection, person_seq, account_id, now_ms),
            client_id=request.client.client_id,
            person_seq=person_seq,
            redirect_uri=request.redirect_uri,
            scope=" ".join(request.scopes),
            code_challenge=request.code_challenge,
            created_at=now_ms,
            expires_at=now_ms + CODE_S * 1000,
        )
    )


def redeem_code(
    connection: Connection, code: str, client: Client, exchange: Exchange, *, grant_id: str, now_ms: int
) -> TokenPair | Refusal:
    """Tokens for a code; when it was used before, the end of everything that came of it."""
    c = authorization_codes.c
    this = c.code_hash == hash_secret(code)
    row = connection.execute(
        select(authorization_codes).where(this, c.client_id == client.client_id).with_for_update()
    ).one_or_none()
    if row is None:
        return Refusal(INVALID_GRANT, "This client has no such code.")
    stored = Code(row.client_id, row.redirect_uri, row.code_challenge, row.expires_at, row.used_at)
    verdict, why = judge_code(stored, exchange, now_ms)
    if verdict is TokenVerdict.GOOD:
        grant_seq, pair = _open(connection, row, row.scope, client, grant_id=grant_id, now_ms=now_ms)
        connection.execute(update(authorization_codes).where(this).values(used_at=now_ms, grant_seq=grant_seq))
        return pair
    if verdict is TokenVerdict.REUSED:
        _revoke(connection, row.grant_seq, now_ms)
    return Refusal(INVALID_GRANT, why)


def is_code_unused(connection: Connection, code: str, now_ms: int) -> bool:
    """Whether the code can still be exchanged."""
    c = authorization_codes.c
    statement = select(c.code_hash).where(c.code_hash == hash_secret(code), c.used_at.is_(None), c.expires_at > now_ms)
    return connection.execute(statement).first() is not None


def open_grant(connection: Connection, person: Row[Any], scope: str, grant_id: str, now_ms: int) -> TokenPair:
    """A new grant of somebody who signed in with a password, with its first tokens."""
    whose = _Owner(person.manufacturer_seq, person.seq)
    return _open(connection, whose, scope, SIGN_IN, grant_id=grant_id, now_ms=now_ms)[1]


@dataclass(frozen=True, slots=True)
class _Owner:
    """Whose grant it is, as a row of codes has it."""

    manufacturer_seq: int
    person_seq: int


def _open(
    connection: Connection, whose: _Owner | Row[Any], scope: str, client: Client, *, grant_id: str, now_ms: int
) -> tuple[int, TokenPair]:
    ends_ms = now_ms + LONGEST_S * 1000
    statement = insert(grants).values(
        id=grant_id,
        manufacturer_seq=whose.manufacturer_seq,
        person_seq=whose.person_seq,
        client_id=client.client_id,
        scope=scope,
        created_at=now_ms,
        ends_at=ends_ms,
    )
    grant_seq = connection.execute(statement.returning(grants.c.seq)).scalar_one()
    grant = Grant(grant_seq, whose.manufacturer_seq, ends_ms)
    refreshable = REFRESH_TOKEN in client.grant_types
    return grant_seq, make_pair(connection, grant, scope, now_ms, refreshable=refreshable)


def rotate(
    connection: Connection, refresh_token: str, client: Client, scope: str | None, now_ms: int
) -> TokenPair | Refusal:
    """The next pair of a family. The pair before is over: its access token as well.

    Args:
        connection: in a transaction.
        refresh_token: as it was sent.
        client: who sent it.
        scope: what the access token is to hold; None for all that the grant has.
        now_ms: this instant.
    """
    this = tokens.c.token_hash == hash_secret(refresh_token)
    row = connection.execute(
        select(tokens, grants.c.scope.label("granted"), grants.c.ends_at, grants.c.revoked_at)
        .join(grants, grants.c.seq == tokens.c.grant_seq)
        .where(this, tokens.c.kind == REFRESH, grants.c.client_id == client.client_id)
        .with_for_update()
    ).one_or_none()
    if row is None:
        return Refusal(INVALID_GRANT, "This client has no such refresh token.")
    verdict, why = judge_refresh(RefreshToken(row.expires_at, row.ended_at, row.revoked_at), now_ms)
    if verdict is TokenVerdict.REUSED:
        _revoke(connection, row.grant_seq, now_ms)
    if verdict is not TokenVerdict.GOOD:
        return Refusal(INVALID_GRANT, why)
    granted = row.granted.split(" ")
    asked = granted if scope is None else [name for name in dict.fromkeys(scope.split(" ")) if name]
    if not asked or not set(asked) <= set(granted):
        return Refusal("invalid_scope", f"The grant holds: {row.granted}.")
    access = (tokens.c.grant_seq == row.grant_seq) & (tokens.c.issued_with == row.token_hash)
    connection.execute(update(tokens).where(this | access).values(ended_at=now_ms))
    connection.execute(update(grants).where(grants.c.seq == row.grant_seq).values(used_at=now_ms))
    grant = Grant(row.grant_seq, row.manufacturer_seq, row.ends_at)
    return make_pair(connection, grant, " ".join(asked), now_ms, refreshable=True)


def revoke_token(connection: Connection, token: str, client: Client, now_ms: int) -> Refusal | None:
    """End a token (RFC 7009): a refresh token with its whole grant, an access token alone.

    Returns:
        None when it is good no more, as an unknown one is; why not, when it is another client's.
    """
    row = connection.execute(
        select(tokens.c.token_hash, tokens.c.kind, tokens.c.grant_seq, grants.c.client_id)
        .join(grants, grants.c.seq == tokens.c.grant_seq)
        .where(tokens.c.token_hash == hash_secret(token))
    ).one_or_none()
    if row is None:
        return None
    if row.client_id != client.client_id:
        return Refusal(INVALID_GRANT, "The token is another client's.")
    if row.kind == REFRESH:
        _revoke(connection, row.grant_seq, now_ms)
    else:
        connection.execute(update(tokens).where(tokens.c.token_hash == row.token_hash).values(ended_at=now_ms))
    return None


def _revoke(connection: Connection, grant_seq: int, now_ms: int) -> None:
    c = grants.c
    connection.execute(update(grants).where(c.seq == grant_seq, c.revoked_at.is_(None)).values(revoked_at=now_ms))


def forget_clients_of(connection: Connection, manufacturer_seq: int) -> None:
    """Delete the codes, grants and tokens that people of any account gave to clients of this one."""
    ids = select(partner_clients.c.client_id).where(partner_clients.c.manufacturer_seq == manufacturer_seq)
    theirs = select(grants.c.seq).where(grants.c.client_id.in_(ids))
    connection.execute(delete(tokens).where(tokens.c.grant_seq.in_(theirs)))
    connection.execute(delete(grants).where(grants.c.client_id.in_(ids)))
    connection.execute(delete(authorization_codes).where(authorization_codes.c.client_id.in_(ids)))


def prune_codes(connection: Connection, now_ms: int) -> int:
    """Delete codes that nobody used in time, and used ones whose grant is gone, a bounded number; how many."""
    c = authorization_codes.c
    granted = select(grants.c.seq).where(grants.c.seq == c.grant_seq).exists()
    over = select(c.code_hash).where(c.expires_at <= now_ms, or_(c.used_at.is_(None), ~granted)).limit(PRUNE_ROWS)
    hashes = list(connection.execute(over).scalars())
    if hashes:
        connection.execute(delete(authorization_codes).where(c.code_hash.in_(hashes)))
    return len(hashes)
