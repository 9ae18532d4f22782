"""The database: one place for what depends on which one it is, a SQLite file or PostgreSQL."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from agent.errors import ConfigurationError
from simulator.service.storage import postgresql, sqlite
from simulator.service.storage.migrate import migrate
from simulator.service.storage.temporary import TemporaryFolder

READERS: Final = 4
"""Reads of one kind at once, at most: look-ups, pages, summaries."""
_CONNECTIONS: Final = 3 * READERS
"""Reading connections that stay open."""


class Database:
    """Connections to one database whose schema is up to date.

    Attributes:
        kind: ``temporary``, ``file`` or ``postgresql``.
    """

    def __init__(self, data_dir: Path | None = None, url: str | None = None) -> None:
        """Open it, make what is not there, and bring its schema up to date.

        Args:
            data_dir: the folder of the SQLite file; None and no URL takes a temporary one, removed at the end.
            url: of a PostgreSQL database, instead of the folder.

        Raises:
            ConfigurationError: it cannot be reached or used, another service uses it, or a newer release wrote it.
        """
        self._lock_file: IO[bytes] | None = None
        self._temporary: TemporaryFolder | None = None
        if url is not None:
            self.kind = "postgresql"
            self._write_engine, self._read_engine = postgresql.engines(url, _CONNECTIONS)
        elif data_dir is not None:
            self.kind = "file"
            self._lock_file = sqlite.lock_folder(data_dir)
            self._write_engine, self._read_engine = sqlite.engines(data_dir, _CONNECTIONS)
        else:
            self.kind = "temporary"
            self._temporary = TemporaryFolder()
            self._write_engine, self._read_engine = sqlite.engines(self._temporary.path, _CONNECTIONS, lasting=False)
        self._writer: Connection | None = None
        try:
            self._writer = self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> Connection:
        try:
            # The writer's own connection migrates: on PostgreSQL it holds the lock that keeps other services out.
            connection = self._write_engine.connect()
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
        except DBAPIError as exc:
            if self.kind == "postgresql":
                raise postgresql.explain(exc, self._write_engine.url) from None
            where = self._write_engine.url.database
            raise ConfigurationError([f"{where} cannot be used: {exc.orig}; give another folder"]) from None
        return connection

    def _prepare(self, connection: Connection) -> None:
        if self.kind != "postgresql":
            migrate(connection)
            return
        with connection.begin():
            postgresql.check_server(connection)
        migrate(connection)
        with connection.begin():
            postgresql.compare_by_bytes(connection)

    @property
    def where(self) -> str:
        """Where everything is kept, for a person: a folder, or a URL without its password."""
        if self._temporary is not None:
            return "in a temporary folder, gone when the service ends"
        url = self._write_engine.url
        if self.kind == "postgresql":
            return url.set(drivername="postgresql").render_as_string(hide_password=True)
        return str(Path(f"{url.database}").parent)

    @property
    def folder(self) -> Path | None:
        """The folder of the SQLite file; None on PostgreSQL."""
        return None if self.kind == "postgresql" else Path(f"{self._write_engine.url.database}").parent

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection for a short read, seeing all that was committed before."""
        with self._read_engine.connect() as connection:
            yield connection

    def open_writer(self) -> Connection:
        """The writing connection. One thread has it, and there is only one.

        When its server goes away it becomes invalid; the next transaction on it connects anew.
        """
        if self._writer is None:
            raise RuntimeError("the writing connection is taken already")
        connection, self._writer = self._writer, None
        return connection

    @contextlib.contextmanager
    def writing(self, connection: Connection) -> Iterator[None]:
        """One transaction on the writing connection: committed at the end, rolled back by an exception."""
        with connection.begin():
            yield

    def close(self) -> None:
        """Close all connections and let go of the folder; a temporary one is removed."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._read_engine.dispose()
        self._write_engine.dispose()
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None
        if self._temporary is not None:
            self._temporary.close()
            self._temporary = None
