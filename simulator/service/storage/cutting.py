"""Deleting the oldest readings and ended commands, where so many are to be kept and no more."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, func, select, true

from simulator.service.storage import commands as command_rows
from simulator.service.storage.tables import commands, readings

ROWS_AT_ONCE: Final = 5_000
"""Rows that one transaction deletes: others write in between."""


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
