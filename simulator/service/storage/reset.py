"""Deleting everything, or all that one account has; accounts and their keys stay."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, Table, delete, select, text

from simulator.service.storage import grants
from simulator.service.storage.tables import METADATA, api_keys, manufacturers

_KEPT: Final = frozenset({"manufacturers", "api_keys"})
_MANY_ROWS: Final = 2_000
"""From so many rows on PostgreSQL truncates a table faster than it deletes its rows."""


def _emptied() -> list[Table]:
    return [table for table in METADATA.sorted_tables if table.name not in _KEPT]


def delete_all(connection: Connection) -> None:
    """Delete every account's everything."""
    large = []
    for table in _emptied():
        if connection.dialect.name == "postgresql" and _has_many_rows(connection, table):
            large.append(connection.dialect.identifier_preparer.format_table(table))
        else:
            connection.execute(delete(table))
    if large:
        connection.execute(text(f"TRUNCATE {', '.join(large)}"))
    # An account that a user's approval made has no keys: without its user nobody can reach it any more.
    keyed = select(api_keys.c.manufacturer_seq)
    connection.execute(delete(manufacturers).where(manufacturers.c.seq.not_in(keyed)))


def delete_account(connection: Connection, manufacturer_seq: int) -> None:
    """Delete what one account has: every row carries its account. What others gave to its clients ends with them."""
    grants.forget_clients_of(connection, manufacturer_seq)
    for table in _emptied():
        connection.execute(delete(table).where(table.c.manufacturer_seq == manufacturer_seq))


def _has_many_rows(connection: Connection, table: Table) -> bool:
    first = next(iter(table.primary_key.columns))
    return connection.execute(select(first).offset(_MANY_ROWS).limit(1)).first() is not None
