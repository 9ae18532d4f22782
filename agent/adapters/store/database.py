"""An SQLite file with a versioned schema: how it is opened, made, and brought from an earlier version to this one.

The agent's store and the gateway's are such files.

Source: sqlite.org/wal.html, sqlite.org/pragma.html.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Schema:
    """What a program keeps in its file.

    Attributes:
        program: in errors: ``the agent``.
        tables: SQL of version 1.
        marks: tables that every file of this program has.
        steps: version -> SQL that turns a file of the version before into it. A new file gets the tables and then every
            step.
        oldest_reader: the lowest version whose programs can use a file of this one; None: this version alone. A step
            that only adds tables, or columns with a default, leaves it as it is.
    """

    program: str
    tables: str
    marks: frozenset[str]
    steps: Mapping[int, str] = field(default_factory=dict)
    oldest_reader: int | None = None

    @property
    def version(self) -> int:
        """The version that this program writes."""
        return 1 + len(self.steps)

    @property
    def readable_by(self) -> int:
        """The lowest version whose programs can use a file of this one. The file says it itself (``user_version``)."""
        return self.version if self.oldest_reader is None else self.oldest_reader

    def prepare(self, connection: sqlite3.Connection, path: Path) -> None:
        """Make the tables in a new file, or bring an old one to this version; nothing in it is lost by that.

        A file of a newer program stays as it is when it says that this one can use it.

        Raises:
            ConfigurationError: a newer program wrote this file, or another one.
            sqlite3.Error: it cannot be read or written.
        """
        found = self.read_version(connection, path)
        if found == self.version:
            return
        if found is not None and found > self.version:
            if self.can_use(connection):
                return
            sentence = (
                f"it has schema version {found} and {self.program} knows versions up to {self.version}: install the "
                "newer device-agent again, or give this one another state_dir"
            )
            raise ConfigurationError([sentence], str(path))
        scripts = [self.tables] if found is None else []
        scripts += [step for version, step in sorted(self.steps.items()) if version > (found or 1)]
        # executescript would commit on its own; one transaction means that a half-made file does not exist.
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in ";".join(scripts).split(";"):
                if statement.strip():
                    connection.execute(statement)
            connection.execute("DELETE FROM schema_version")
            connection.execute("INSERT INTO schema_version VALUES (?)", (self.version,))
            connection.execute(f"PRAGMA user_version = {self.readable_by:d}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def can_use(self, connection: sqlite3.Connection) -> bool:
        """Whether a file of a newer program says that programs of this version can use it."""
        least: int = connection.execute("PRAGMA user_version").fetchone()[0]
        return 0 < least <= self.version

    def read_version(self, connection: sqlite3.Connection, path: Path) -> int | None:
        """The file's schema version; None for a new file.

        Raises:
            ConfigurationError: the file is another program's.
            sqlite3.DatabaseError: it is damaged.
        """
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables:
            return None
        if not {"schema_version", *self.marks} <= tables:
            sentence = f"it is another program's database: give {self.program} a state_dir of its own"
            raise ConfigurationError([sentence], str(path))
        row = connection.execute("SELECT max(version) FROM schema_version").fetchone()
        return None if row is None or row[0] is None else int(row[0])


def open_file(
    path: Path,
    pragmas: Sequence[str],
    *,
    before_log: Sequence[str] = (),
    cached_statements: int,
    check_same_thread: bool = True,
) -> sqlite3.Connection:
    """Open a file with a write-ahead log for writing, and make it (mode 600) where there is none.

    Args:
        path: the database.
        pragmas: what is set beside a write-ahead log and durable commits, such as ``cache_size=-1024``.
        before_log: what has to be set before the log is opened, such as ``page_size=1024``.
        cached_statements: so many statements stay prepared.
        check_same_thread: only this thread uses it.

    Raises:
        sqlite3.Error: it cannot be opened, or is no database.
        OSError: it cannot be made.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = sqlite3.connect(
        path,
        timeout=5.0,
        isolation_level=None,
        cached_statements=cached_statements,
        check_same_thread=check_same_thread,
    )
    durable = ("journal_mode=WAL", "synchronous=FULL", "trusted_schema=OFF", "temp_store=MEMORY")
    try:
        for pragma in (*before_log, *durable, *pragmas):
            connection.execute(f"PRAGMA {pragma}").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection
