"""Grants with their codes and tokens.

A code becomes one pair of tokens, a refresh token the next pair: together they are a grant. Each code and each refresh
token is good once. When one of them comes a second time somebody has a copy, and nobody knows who of the two is the
owner: the grant ends (RFC 6749, section 4.1.2; RFC 9700, section 4.14.2).

Codes and tokens carry 256 random bits and are stored as SHA-256 only.
"""

from __future__ import annotations

import secrets
import sqlite3
from typing import Any, Final

from simulator.service.caller import Caller, hash_secret
from simulator.service.db import insert, one

CODE_S: Final = 5 * 60
"""How long a code may wait to be exchanged (specification, "Limits")."""
ACCESS_S: Final = 3_600
"""How long an access token lives (specification, "Limits")."""
REFRESH_S: Final = 30 * 86_400
"""How long a refresh token lives, counted anew with every rotation."""
LONGEST_S: Final = 90 * 86_400
"""How long a grant lives at most, however often it is refreshed: then the user is asked again."""


def make_token() -> str:
    """A new code or token."""
    return secrets.token_urlsafe(32)


def open_grant(sql: sqlite3.Connection, grant_id: str, now_ms: int, **of: object) -> int:
    """A new grant, without tokens yet, ``of`` these ``account``, ``person``, ``client_id``, ``scope``; its row."""
    return insert(sql, "grants", id=grant_id, created_at=now_ms, ends_at=now_ms + LONGEST_S * 1000, **of)


def store_pair(sql: sqlite3.Connection, grant_row: int, pair: dict[str, Any], now_ms: int) -> None:
    """Store the tokens of a token response as the grant's; those that it has are over, they were rotated."""
    sql.execute("UPDATE tokens SET ended_at = ? WHERE grant_row = ? AND ended_at IS NULL", (now_ms, grant_row))
    grant = sql.execute("SELECT account, ends_at FROM grants WHERE row = ?", (grant_row,)).fetchone()
    ends = {"access": now_ms + ACCESS_S * 1000, "refresh": min(now_ms + REFRESH_S * 1000, grant["ends_at"])}
    for kind, expires_at in ends.items():
        if (token := pair.get(f"{kind}_token")) is not None:
            insert(
                sql,
                "tokens",
                token_hash=hash_secret(token),
                account=grant["account"],
                grant_row=grant_row,
                kind=kind,
                scope=pair["scope"],
                created_at=now_ms,
                expires_at=expires_at,
            )


def find_token(sql: sqlite3.Connection, token: str) -> sqlite3.Row | None:
    """A token's row with ``client_id``, ``granted`` and ``revoked_at`` of its grant."""
    return one(
        sql,
        "SELECT t.*, g.client_id, g.scope AS granted, g.revoked_at FROM tokens t JOIN grants g ON g.row = t.grant_row"
        " WHERE t.token_hash = ?",
        (hash_secret(token),),
    )


def revoke_grant(sql: sqlite3.Connection, grant_row: int, now_ms: int) -> None:
    """End everything that came of a grant."""
    sql.execute("UPDATE grants SET revoked_at = ? WHERE row = ? AND revoked_at IS NULL", (now_ms, grant_row))


def find_bearer(sql: sqlite3.Connection, token: str, now_ms: int) -> Caller | None:
    """Whom an access token speaks for; None when it is unknown or over."""
    row = one(
        sql,
        "SELECT g.account, g.client_id, t.scope, p.id AS user_id, a.quota FROM tokens t"
        " JOIN grants g ON g.row = t.grant_row JOIN people p ON p.row = g.person JOIN accounts a ON a.row = g.account"
        " WHERE t.token_hash = ? AND t.kind = 'access' AND t.expires_at > ? AND t.ended_at IS NULL"
        " AND g.revoked_at IS NULL",
        (hash_secret(token), now_ms),
    )
    if row is None:
        return None
    name = f"client {row['client_id']} user {row['user_id']}"
    return Caller(row["account"], name, frozenset(row["scope"].split()), row["quota"])


def prune(sql: sqlite3.Connection, now_ms: int) -> None:
    """Delete what is over, a bounded number at a time: tokens, grants with their last token, and codes.

    A used code stays as long as its grant.
    """
    statement = "SELECT token_hash, grant_row FROM tokens WHERE expires_at <= ? LIMIT 5000"
    over = sql.execute(statement, (now_ms,)).fetchall()
    sql.executemany("DELETE FROM tokens WHERE token_hash = ?", [(row["token_hash"],) for row in over])
    for grant_row in {row["grant_row"] for row in over}:
        if one(sql, "SELECT 1 FROM tokens WHERE grant_row = ?", (grant_row,)) is None:
            sql.execute("DELETE FROM grants WHERE row = ?", (grant_row,))
            sql.execute("DELETE FROM authorization_codes WHERE grant_row = ?", (grant_row,))
    sql.execute("DELETE FROM authorization_codes WHERE expires_at <= ? AND used_at IS NULL", (now_ms,))
