"""Whether a transaction was committed whose connection was lost during the commit."""

from __future__ import annotations

import secrets
from typing import Final

from sqlalchemy import Connection, text

_IN_PROGRESS: Final = "in progress"
_END_SESSION: Final = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'device-service'"
    " AND datname = current_database() AND backend_xid = CAST(CAST(:number % 4294967296 AS text) AS xid)"
)


class CommitMark:
    """A number that is stored with a transaction: PostgreSQL's own of it, or one in the SQLite file's header."""

    def __init__(self) -> None:
        self._number: int | None = None

    def set(self, connection: Connection) -> None:
        """Mark the transaction that the connection is in."""
        if connection.dialect.name == "postgresql":
            self._number = connection.execute(text("SELECT txid_current()")).scalar_one()
        else:
            self._number = secrets.randbelow(2**31 - 1) + 1
            connection.exec_driver_sql(f"PRAGMA user_version = {self._number}")

    def is_committed(self, connection: Connection) -> bool | None:
        """Whether the marked transaction is stored; None while that is not decided.

        Args:
            connection: another one, whose transaction began later.
        """
        if self._number is None:
            return False
        if connection.dialect.name != "postgresql":
            return bool(connection.exec_driver_sql("PRAGMA user_version").scalar_one() == self._number)
        status = connection.execute(text("SELECT txid_status(:number)"), {"number": self._number}).scalar_one()
        if status == _IN_PROGRESS:  # the server has not noticed that nobody is there any more
            connection.execute(_END_SESSION, {"number": self._number})
            return None
        return bool(status == "committed")
