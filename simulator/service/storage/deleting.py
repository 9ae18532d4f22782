"""Deleting many rows: everything, all that one account has, or the oldest where only so many are kept."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, Table, delete, select

from simulator.service.storage import grants
from simulator.service.storage.tables import METADATA, api_keys, manufacturers

_KEPT: Final = frozenset({"manufacturers", "api_keys"})
"""The oldest rows that one transaction deletes: others write in between."""


def _emptied() -> list[Table]:
    return [table for table in METADATA.sorted_tables if table.name not in _KEPT]


def delete_all(connection: Connection) -> None:
    """Delete what all accounts have; accounts and their keys stay."""
    for table in _emptied():
        connection.execute(delete(table))
    # An account that a user's approval made has no keys: without its user nobody can reach it any more.
    keyed = select(api_keys.c.manufacturer_seq)
    connection.execute(delete(manufacturers).where(manufacturers.c.seq.not_in(keyed)))


def delete_account(connection: Connection, manufacturer_seq: int) -> None:
    """Delete what one account has: every row carries its account. What others gave to its clients ends with them."""
    grants.forget_clients_of(connection, manufacturer_seq)
    for table in _emptied():
        connection.execute(delete(table).where(table.c.manufacturer_seq == manufacturer_seq))
