"""Deleting many rows: everything, all that one account has, or the oldest where only so many are kept."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, func, select, true

from simulator.service.storage import commands as command_rows
from simulator.service.storage import grants
from simulator.service.storage.tables import METADATA, api_keys, commands, manufacturers, readings

_KEPT: Final = frozenset({"manufacturers", "api_keys"})
ROWS_AT_ONCE: Final = 5_000
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


def cut_readings(connection: Connection, keep: int) -> int:
    """Delete the readings that came first, beyond the newest ``keep``; how many were deleted, a bounded number."""
    return _cut(connection, readings, true(), keep)


def cut_commands(connection: Connection, keep: int) -> int:
    """Delete the ended commands that were sent first, beyond the newest ``keep`` ended ones; open ones stay."""
    return _cut(connection, commands, commands.c.status.not_in(command_rows.OPEN), keep)


def _cut(connection: Connection, table: Table, which: ColumnElement[bool], keep: int) -> int:
    seq = table.c.seq
    first, last = connection.execute(select(func.min(seq), func.max(seq))).one()
    if first is None or last - first < keep:  # row numbers ascend by one at least: there are not more rows than that
        return 0
    beyond = select(seq).where(which).order_by(seq.desc()).offset(keep).limit(1)
    newest_cut = connection.execute(beyond).scalar()
    if newest_cut is None:
        return 0
    oldest = select(seq).where(and_(which, seq <= newest_cut)).order_by(seq).limit(ROWS_AT_ONCE)
    seqs = list(connection.execute(oldest).scalars())
    connection.execute(delete(table).where(seq.in_(seqs)))
    return len(seqs)
