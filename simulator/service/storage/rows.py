"""Rows of lists, fetched as they are looked at."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, CursorResult, Select

# One row has 256 KiB at most. PostgreSQL's driver fetches 1, then 5, 25, then so many at once.
_STREAMED: Final = {"stream_results": True, "max_row_buffer": 64}


def stream(connection: Connection, statement: Select[Any]) -> CursorResult[Any]:
    """The rows of a statement, of which no more are in memory than are looked at; whoever looks at them closes it.

    PostgreSQL's driver would fetch all of them at once otherwise; SQLite's never does.
    """
    return connection.execute(statement, execution_options=_STREAMED)
