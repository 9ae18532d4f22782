"""People who sign in, and the tokens that they get.

Tokens carry 256 random bits and are stored as SHA-256 only. All tokens that descend from one sign-in belong to one
grant, so that they can be ended together.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, delete, insert, or_, select

from agent.errors import ConfigurationError
from agent.wire.secret import Secret
from simulator.service.faults import conflict
from simulator.service.storage.keys import Caller, hash_secret
from simulator.service.storage.tables import grants, people, tokens, users

ACCESS: Final = "access"
REFRESH: Final = "refresh"
ACCESS_S: Final = 3_600
"""How long an access token lives (specification, "Limits")."""
REFRESH_S: Final = 30 * 86_400
"""How long a refresh token lives."""
PRUNE_ROWS: Final = 5_000
_PASSWORD_CHARACTERS: Final = 1_024
_ID_CHARACTERS: Final = 200
_EMAIL: Final = re.compile(r"(?=.{3,254}\Z)[^@\s\x00-\x1f]+@[^@\s\x00-\x1f]+")


@dataclass(frozen=True, slots=True)
class Person:
    """A person who may sign in.

    Attributes:
        manufacturer_seq: the account whose API the person may call.
        password_hash: see :mod:`simulator.service.passwords`.
    """

    user_id: str
    manufacturer_seq: int
    email: str
    password_hash: str


@dataclass(frozen=True, slots=True)
class TokenPair:
    """New tokens, to be shown once."""

    access_token: Secret
    refresh_token: Secret
    scope: str


def clean_email(email: str) -> str:
    """The form that an address is stored and looked up in."""
    return email.strip().lower()


def check_password(password: Secret | str) -> Secret:
    """The password, if it can be one.

    Raises:
        ConfigurationError: it is empty, or longer than anybody types.
    """
    secret = Secret(password) if isinstance(password, str) else password
    if not 0 < len(secret.reveal()) <= _PASSWORD_CHARACTERS:
        raise ConfigurationError([f"a password must have 1 to {_PASSWORD_CHARACTERS} characters"], "service users")
    return secret


def make(email: str, password_hash: str, user_id: str, manufacturer_seq: int) -> Person:
    """A person, checked.

    Raises:
        ConfigurationError: the address or the id cannot be used.
    """
    faults = []
    if not _EMAIL.fullmatch(clean_email(email)) or not email.isprintable():
        faults.append(f"{email!r:.100} is no email address: give one such as person@example.com")
    if not 0 < len(user_id) <= _ID_CHARACTERS or not user_id.isprintable():
        faults.append(f"a user_id must have 1 to {_ID_CHARACTERS} printable characters")
    if faults:
        raise ConfigurationError(faults, "service users")
    return Person(user_id, manufacturer_seq, clean_email(email), password_hash)


def add(connection: Connection, person: Person, now_ms: int) -> None:
    """Store a person.

    Raises:
        ServiceFault: 409 ``user_exists``: the address, on the whole service, or the id is taken.
    """
    taken = select(people.c.seq).where(or_(people.c.email == person.email, people.c.id == person.user_id))
    if connection.execute(taken).first() is not None:
        raise conflict("user_exists", f"There is a person with the address {person.email!r} or this id already.")
    connection.execute(
        insert(people).values(
            id=person.user_id,
            manufacturer_seq=person.manufacturer_seq,
            email=person.email,
            password_hash=person.password_hash,
            created_at=now_ms,
        )
    )
    _know_as_user(connection, person, now_ms)


def _know_as_user(connection: Connection, person: Person, now_ms: int) -> None:
    """A person may have devices, and is a user of the account before the first one."""
    c = users.c
    known = select(c.seq).where(c.manufacturer_seq == person.manufacturer_seq, c.id == person.user_id)
    if connection.execute(known).first() is None:
        connection.execute(
            insert(users).values(manufacturer_seq=person.manufacturer_seq, id=person.user_id, created_at=now_ms)
        )


def find(connection: Connection, manufacturer_seq: int, email: str) -> Row[Any] | None:
    """The account's person with this address."""
    c = people.c
    statement = select(people).where(c.email == clean_email(email), c.manufacturer_seq == manufacturer_seq)
    return connection.execute(statement).one_or_none()


def open_grant(connection: Connection, person: Row[Any], scope: str, grant_id: str, now_ms: int) -> TokenPair:
    """A new grant with its first tokens."""
    statement = insert(grants).values(
        id=grant_id,
        manufacturer_seq=person.manufacturer_seq,
        person_seq=person.seq,
        scope=scope,
        created_at=now_ms,
    )
    grant_seq = connection.execute(statement.returning(grants.c.seq)).scalar_one()
    pair = TokenPair(Secret(secrets.token_urlsafe(32)), Secret(secrets.token_urlsafe(32)), scope)
    connection.execute(
        insert(tokens),
        [
            {
                "token_hash": hash_secret(token.reveal()),
                "manufacturer_seq": person.manufacturer_seq,
                "grant_seq": grant_seq,
                "kind": kind,
                "created_at": now_ms,
                "expires_at": now_ms + lifetime_s * 1000,
            }
            for token, kind, lifetime_s in (
                (pair.access_token, ACCESS, ACCESS_S),
                (pair.refresh_token, REFRESH, REFRESH_S),
            )
        ],
    )
    return pair


def find_bearer(connection: Connection, token: str, now_ms: int) -> Caller | None:
    """Whom an access token speaks for; None when it is unknown or over."""
    statement = (
        select(grants.c.manufacturer_seq, grants.c.scope, people.c.id)
        .select_from(tokens)
        .join(grants, grants.c.seq == tokens.c.grant_seq)
        .join(people, people.c.seq == grants.c.person_seq)
        .where(
            tokens.c.token_hash == hash_secret(token),
            tokens.c.kind == ACCESS,
            tokens.c.expires_at > now_ms,
        )
    )
    row = connection.execute(statement).one_or_none()
    if row is None:
        return None
    return Caller(row.manufacturer_seq, f"user {row.id}", b"", frozenset(row.scope.split()))


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
