"""People who sign in. Most belong to an account; one who only approves partners' requests has none before the first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, insert, or_, select, update

from agent.errors import ConfigurationError
from agent.wire.secret import Secret
from simulator.service.errors import conflict, not_found
from simulator.service.storage.keys import add_manufacturer
from simulator.service.storage.tables import people, users

_PASSWORD_CHARACTERS: Final = 1_024
_ID_CHARACTERS: Final = 200
_EMAIL: Final = re.compile(r"(?=.{3,254}\Z)[^@\s\x00-\x1f]+@[^@\s\x00-\x1f]+")


@dataclass(frozen=True, slots=True)
class Person:
    """A person who may sign in.

    Attributes:
        manufacturer_seq: the account whose API the person may call; None until the first approval makes one.
        password_hash: see :mod:`simulator.service.passwords`.
    """

    user_id: str
    manufacturer_seq: int | None
    email: str
    password_hash: str


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


def make(email: str, password_hash: str, user_id: str, manufacturer_seq: int | None) -> Person:
    """Make a person out of checked members.

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
        Conflict: ``user_exists``: the address, on the whole service, or the id is taken.
    """
    taken = select(people.c.email).where(or_(people.c.email == person.email, people.c.id == person.user_id))
    row = connection.execute(taken).first()
    if row is not None:
        field = "email" if row.email == person.email else "user_id"
        taken_one = person.email if field == "email" else person.user_id
        raise conflict("user_exists", field, f"there is a person {taken_one!r} already, of this account or another one")
    connection.execute(
        insert(people).values(
            id=person.user_id,
            manufacturer_seq=person.manufacturer_seq,
            email=person.email,
            password_hash=person.password_hash,
            created_at=now_ms,
        )
    )
    if person.manufacturer_seq is not None:
        _ensure_user(connection, person.manufacturer_seq, person.user_id, now_ms)


def _ensure_user(connection: Connection, manufacturer_seq: int, user_id: str, now_ms: int) -> None:
    """A person may have devices, and is a user of the account before the first one."""
    c = users.c
    known = select(c.seq).where(c.manufacturer_seq == manufacturer_seq, c.id == user_id)
    if connection.execute(known).first() is None:
        connection.execute(insert(users).values(manufacturer_seq=manufacturer_seq, id=user_id, created_at=now_ms))


def find(connection: Connection, manufacturer_seq: int, email: str) -> Row[Any] | None:
    """The account's person with this address."""
    c = people.c
    statement = select(people).where(c.email == clean_email(email), c.manufacturer_seq == manufacturer_seq)
    return connection.execute(statement).one_or_none()


def find_anywhere(connection: Connection, email: str) -> Row[Any] | None:
    """The person with this address, of whichever account, or of none yet."""
    return connection.execute(select(people).where(people.c.email == clean_email(email))).one_or_none()


def find_by_seq(connection: Connection, seq: int) -> Row[Any] | None:
    """The person of this row."""
    return connection.execute(select(people).where(people.c.seq == seq)).one_or_none()


def of_account(connection: Connection, manufacturer_seq: int | None) -> list[int]:
    """The rows of an account's people; none for no account."""
    return list(connection.execute(select(people.c.seq).where(people.c.manufacturer_seq == manufacturer_seq)).scalars())


def provision(connection: Connection, seq: int, account_id: str, now_ms: int) -> int:
    """Make the person a manufacturer (specification, "Account provisioning"); one who is keeps the account there is.

    Args:
        connection: in a transaction.
        seq: the person's row.
        account_id: the id of the account, should one be made.
        now_ms: this instant.

    Returns:
        The account's row.

    Raises:
        NotFound: ``user_not_found``.
    """
    row = connection.execute(select(people).where(people.c.seq == seq).with_for_update()).one_or_none()
    if row is None:
        raise not_found("user", str(seq))
    if row.manufacturer_seq is not None:
        return int(row.manufacturer_seq)
    account = add_manufacturer(connection, row.email, account_id, now_ms)
    connection.execute(update(people).where(people.c.seq == seq).values(manufacturer_seq=account))
    _ensure_user(connection, account, row.id, now_ms)
    return account
