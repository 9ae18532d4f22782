"""Accounts as they are looked after: made, listed, changed and deleted with all that they have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, delete, func, select, update

from simulator.service.core.client import Client
from simulator.service.errors import Conflict, conflict, conflicts_in, invalid, not_found
from simulator.service.storage import clients, keys, people
from simulator.service.storage.keys import Caller, Keys
from simulator.service.storage.lists import Rows, Window, fetch
from simulator.service.storage.people import Person
from simulator.service.storage.tables import api_keys, manufacturers

ACCOUNTS_MAX: Final = 100_000
"""Accounts of one service; the keys of each are in memory."""
KEYS_MAX: Final = 100
"""Key pairs of one account."""


@dataclass(frozen=True, slots=True)
class NewAccount:
    """An account that is to be made.

    Attributes:
        profile: as JSON; None for the complete service's.
        quota: requests of each of its keys in a minute, 0 = no limit; None for the service's.
    """

    account_id: str
    name: str
    profile: str | None
    quota: int | None
    keys: tuple[Keys, ...]
    people: tuple[Person, ...]
    clients: tuple[Client, ...]


def add(connection: Connection, account: NewAccount, now_ms: int) -> tuple[int, list[Caller]]:
    """Make an account with everything that it begins with.

    Returns:
        Its row, and its keys as callers.

    Raises:
        Conflict: ``account_exists``, ``key_exists``, ``user_exists``, ``client_exists``: it, or a part of it, is there
            already; ``account_limit_reached``.
    """
    c = manufacturers.c
    if connection.execute(select(func.count()).select_from(manufacturers)).scalar_one() >= ACCOUNTS_MAX:
        raise Conflict("account_limit_reached", f"There are {ACCOUNTS_MAX} accounts, as many as there may be.")
    check_name(connection, account.name)
    seq = keys.add_manufacturer(connection, account.name, account.account_id, now_ms)
    connection.execute(update(manufacturers).where(c.seq == seq).values(profile=account.profile, quota=account.quota))
    callers = []
    for index, pair in enumerate(account.keys):
        with conflicts_in(f"keys.{index}"):
            callers.append(add_key(connection, seq, pair, now_ms))
    for index, person in enumerate(account.people):
        with conflicts_in(f"users.{index}"):
            people.add(connection, Person(person.user_id, seq, person.email, person.password_hash), now_ms)
    for index, client in enumerate(account.clients):
        with conflicts_in(f"clients.{index}"):
            clients.add(connection, seq, client, now_ms)
    return seq, callers


def check_name(connection: Connection, name: str) -> None:
    """Refuse the name of another account.

    Raises:
        Conflict: ``account_exists``.
    """
    if _named(connection, name):
        raise conflict("account_exists", "name", f"there is an account named {name!r} already")


def add_key(connection: Connection, seq: int, pair: Keys, now_ms: int) -> Caller:
    """A further key pair of an account.

    Raises:
        Conflict: ``key_exists``: this one, in any account; ``key_limit_reached``.
    """
    c = api_keys.c
    if connection.execute(select(c.api_key).where(c.api_key == pair.api_key)).first() is not None:
        raise conflict("key_exists", "api_key", f"the key {pair.api_key!r} belongs to an account already")
    if len(keys_of(connection, [seq])) >= KEYS_MAX:
        raise Conflict("key_limit_reached", f"The account has {KEYS_MAX} key pairs: remove one first.")
    return keys.add_key(connection, seq, pair, now_ms)


def remove_key(connection: Connection, seq: int, api_key: str) -> None:
    """Take a key pair away from an account.

    Raises:
        NotFound: ``key_not_found``.
        Conflict: ``last_key``: nobody could use the account any more.
    """
    known = {row.api_key for row in keys_of(connection, [seq])}
    if api_key not in known:
        raise not_found("key", api_key)
    if len(known) == 1:
        raise Conflict("last_key", "This is the account's only key pair: add another one first, or remove the account.")
    connection.execute(delete(api_keys).where(api_keys.c.api_key == api_key))


def find(connection: Connection, account_id: str) -> Row[Any]:
    """The account with this id, public key or name; the first of these that there is.

    Raises:
        NotFound: ``account_not_found``.
        Invalid: several have this name.
    """
    c = manufacturers.c
    owner = select(api_keys.c.manufacturer_seq).where(api_keys.c.api_key == account_id).scalar_subquery()
    for condition in (c.seq == owner, c.id == account_id):
        row = connection.execute(select(manufacturers).where(condition)).one_or_none()
        if row is not None:
            return row
    found = _named(connection, account_id)
    if len(found) > 1:
        raise invalid("account_id", "several accounts have this name: give the id or a public key")
    if not found:
        raise not_found("account", account_id, "on this service")
    return found[0]


def find_named(connection: Connection, name: str) -> Row[Any] | None:
    """The account with this name; the oldest where several have it."""
    return next(iter(_named(connection, name)), None)


def _named(connection: Connection, name: str) -> Sequence[Row[Any]]:
    c = manufacturers.c
    return connection.execute(select(manufacturers).where(c.name == name).order_by(c.seq).limit(2)).all()


def list_page(connection: Connection, window: Window) -> Rows[Any]:
    """Accounts in the order in which they were made."""
    return fetch(connection, select(manufacturers), window, manufacturers.c.seq)


def keys_of(connection: Connection, seqs: Sequence[int]) -> list[Row[Any]]:
    """The public keys of accounts, the oldest first."""
    c = api_keys.c
    chosen = select(c.manufacturer_seq, c.api_key, c.created_at).where(c.manufacturer_seq.in_(seqs))
    return list(connection.execute(chosen.order_by(c.manufacturer_seq, c.created_at, c.api_key)))


def rename(connection: Connection, row: Row[Any], name: str) -> None:
    """Give an account another name.

    Raises:
        Conflict: ``account_exists``.
    """
    if name != row.name:
        check_name(connection, name)
        connection.execute(update(manufacturers).where(manufacturers.c.seq == row.seq).values(name=name))


def set_quota(connection: Connection, seq: int, quota: int | None) -> None:
    """Requests of each key in a minute, 0 = no limit; None for the service's."""
    connection.execute(update(manufacturers).where(manufacturers.c.seq == seq).values(quota=quota))


def load_quotas(connection: Connection) -> dict[int, int]:
    """Account row -> its own quota, of the accounts that have one."""
    c = manufacturers.c
    return {row.seq: row.quota for row in connection.execute(select(c.seq, c.quota).where(c.quota.is_not(None)))}


def first(connection: Connection) -> int:
    """The row of the account that the service always has."""
    return int(connection.execute(select(func.min(manufacturers.c.seq))).scalar_one())


def remove(connection: Connection, seq: int) -> None:
    """Delete an account that has nothing any more, and its keys."""
    connection.execute(delete(api_keys).where(api_keys.c.manufacturer_seq == seq))
    connection.execute(delete(manufacturers).where(manufacturers.c.seq == seq))
