"""Accounts, their keys and profiles. Secrets are stored as SHA-256 only: they have too many random bits to be tried."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, func, insert, select, update

from agent.errors import ConfigurationError
from agent.wire.secret import Secret
from simulator.service.core.client import hash_secret
from simulator.service.storage.tables import api_keys, manufacturers

FIRST_ACCOUNT: Final = "default"
_LAST_ACCOUNT: Final = "last account"


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom a request comes from.

    Attributes:
        manufacturer_seq: the account's row.
        api_key: the public key that the quota counts; of a bearer token it is ``client <id> user <id>``.
        secret_hash: SHA-256 of the secret that belongs to it.
        scopes: what a bearer token may do; None for a key pair, which may do everything.
    """

    manufacturer_seq: int
    api_key: str
    secret_hash: bytes
    scopes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Keys:
    """A key pair, to be shown once."""

    api_key: str
    secret_key: Secret


def make_keys() -> Keys:
    """A new pair: 128 random bits for the name, 256 for the secret."""
    return Keys(f"mk_{secrets.token_hex(16)}", Secret(f"msk_{secrets.token_urlsafe(32)}"))


def load_callers(connection: Connection) -> dict[bytes, Caller]:
    """Every key, by the bytes that a header carries; the first account's oldest one comes first."""
    c = api_keys.c
    statement = select(c.manufacturer_seq, c.api_key, c.secret_hash)
    rows = connection.execute(statement.order_by(c.manufacturer_seq, c.created_at, c.api_key))
    return {row.api_key.encode(): Caller(row.manufacturer_seq, row.api_key, row.secret_hash) for row in rows}


def add_account(connection: Connection, name: str, account_id: str, keys: Keys, now_ms: int) -> Caller:
    """A new account with one key pair."""
    return add_key(connection, add_manufacturer(connection, name, account_id, now_ms), keys, now_ms)


def add_manufacturer(connection: Connection, name: str, account_id: str, now_ms: int) -> int:
    """A new account without keys; its row, which no account before it has had."""
    values: dict[str, object] = {"id": account_id, "name": name, "created_at": now_ms}
    # SQLite gives the number of a deleted last row out again, and what is under way may still go by it. There is
    # one writing connection, so it knows.
    stored = connection.execute(select(func.max(manufacturers.c.seq))).scalar() or 0
    values["seq"] = connection.info[_LAST_ACCOUNT] = max(stored, connection.info.get(_LAST_ACCOUNT, 0)) + 1
    return int(connection.execute(insert(manufacturers).values(values).returning(manufacturers.c.seq)).scalar_one())


def add_key(connection: Connection, manufacturer_seq: int, keys: Keys, now_ms: int) -> Caller:
    """A further key pair of an account."""
    caller = Caller(manufacturer_seq, keys.api_key, hash_secret(keys.secret_key.reveal()))
    connection.execute(
        insert(api_keys).values(
            api_key=caller.api_key,
            manufacturer_seq=manufacturer_seq,
            secret_hash=caller.secret_hash,
            created_at=now_ms,
        )
    )
    return caller


def has_keys(connection: Connection, manufacturer_seq: int) -> bool:
    """Whether the account can be used with keys; one that a user's approval made cannot."""
    c = api_keys.c
    return (
        connection.execute(select(c.api_key).where(c.manufacturer_seq == manufacturer_seq).limit(1)).first() is not None
    )


def ensure_first_account(connection: Connection, given: Keys | None, account_id: str, now_ms: int) -> Keys | None:
    """The account that the service always has.

    Returns:
        Keys that were made just now and nobody knows yet; None when they were given or are there from before.

    Raises:
        ConfigurationError: the given key is stored with another secret.
    """
    first = connection.execute(select(manufacturers.c.seq).order_by(manufacturers.c.seq).limit(1)).scalar()
    if first is None:
        keys = given or make_keys()
        add_account(connection, FIRST_ACCOUNT, account_id, keys, now_ms)
        return None if given else keys
    if given is not None:
        stored = connection.execute(
            select(api_keys.c.secret_hash).where(api_keys.c.api_key == given.api_key)
        ).scalar_one_or_none()
        if stored is None:
            add_key(connection, first, given, now_ms)
        elif not hmac.compare_digest(stored, hash_secret(given.secret_key.reveal())):
            raise ConfigurationError(
                [f"the data folder knows {given.api_key} with another secret key: give that one, or another folder"],
                "service keys",
            )
    return None


def load_profiles(connection: Connection) -> dict[int, str]:
    """Account row -> profile, as JSON; an account with the complete service's has none."""
    c = manufacturers.c
    return {row.seq: row.profile for row in connection.execute(select(c.seq, c.profile).where(c.profile.is_not(None)))}


def save_profile(connection: Connection, manufacturer_seq: int, profile: str | None) -> None:
    """Store an account's profile; None deletes it."""
    connection.execute(update(manufacturers).where(manufacturers.c.seq == manufacturer_seq).values(profile=profile))
