"""The profile that each account is answered with, as JSON; an account with the complete service's has none."""

from __future__ import annotations

from sqlalchemy import Connection, select, update

from simulator.service.storage.tables import manufacturers


def load_all(connection: Connection) -> dict[int, str]:
    """Account row -> profile."""
    c = manufacturers.c
    return {row.seq: row.profile for row in connection.execute(select(c.seq, c.profile).where(c.profile.is_not(None)))}


def save(connection: Connection, manufacturer_seq: int, profile: str | None) -> None:
    """Keep it; None forgets it."""
    connection.execute(update(manufacturers).where(manufacturers.c.seq == manufacturer_seq).values(profile=profile))


def find_account(connection: Connection, account_id: str) -> int | None:
    """The row of the account with this id."""
    return connection.execute(select(manufacturers.c.seq).where(manufacturers.c.id == account_id)).scalar_one_or_none()
