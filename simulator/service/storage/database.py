"""The database: a SQLite file in a folder that was given, or in a temporary one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from agent.errors import ConfigurationError
from simulator.service.storage import sqlite
from simulator.service.storage.migrate import migrate
from simulator.service.storage.temporary import TemporaryFolder

READERS: Final = 4
"""Reads of one kind at once, at most: look-ups, pages, summaries."""
_CONNECTIONS: Final = 3 * READERS
"""Reading connections that stay open."""


class Database:
    """Connections to one database whose schema is up to date.

    Attributes:
        kind: ``temporary`` or ``file``.
    """

    def __init__(self, data_dir: Path | None = None) -> None:
        """Open it, make what is not there, and bring its schema up to date.

        Args:
            data_dir: the folder of the SQLite file; None takes a temporary one, removed at the end.

        Raises:
            ConfigurationError: it cannot be used, another service uses it, or another release wrote it.
        """
        self._lock_file: IO[bytes] | None = None
        self._temporary: TemporaryFolder | None = None
        if data_dir is not None:
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
            connection = self._write_engine.connect()
            try:
                migrate(connection)
            except BaseException:
                connection.close()
                raise
        except DBAPIError as exc:
            where = self._write_engine.url.database
            raise ConfigurationError([f"{where} cannot be used: {exc.orig}; give another folder"]) from None
        return connection

    @property
    def where(self) -> str:
        """Where everything is kept, for a person: a folder, or a URL without its password."""
        if self._temporary is not None:
            return "in a temporary folder, gone when the service ends"
        return str(self.folder)

    @property
    def folder(self) -> Path:
        """The folder of the SQLite file."""
        return Path(f"{self._write_engine.url.database}").parent

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection for a short read, seeing all that was committed before."""
        with self._read_engine.connect() as connection:
            yield connection

    def open_writer(self) -> Connection:
        """The writing connection. One thread has it, and there is only one."""
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
