"""The database: one place for what depends on which one it is, SQLite in memory or as a file, or PostgreSQL."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from agent.errors import ConfigurationError
from simulator.service.storage import postgresql, sqlite
from simulator.service.storage.migrate import migrate

READERS: Final = 4
"""Reading connections that stay open."""


class Database:
    """Connections to one database whose schema is up to date.

    Attributes:
        kind: ``memory``, ``file`` or ``postgresql``.
    """

    def __init__(self, data_dir: Path | None = None, url: str | None = None) -> None:
        """Open it, make what is not there, and bring its schema up to date.

        Args:
            data_dir: the folder of the SQLite file; None and no URL keeps everything in memory.
            url: of a PostgreSQL database, instead of the folder.

        Raises:
            ConfigurationError: it cannot be reached or used, another service uses it, or a newer release wrote it.
        """
        self._lock_file: IO[bytes] | None = None
        self._memory_lock = threading.RLock()
        if url is not None:
            self.kind = "postgresql"
            self._write_engine, self._read_engine = postgresql.engines(url, READERS)
        elif data_dir is not None:
            self.kind = "file"
            self._lock_file = sqlite.lock_folder(data_dir)
            self._write_engine, self._read_engine = sqlite.file_engines(data_dir, READERS)
        else:
            self.kind = "memory"
            self._write_engine = self._read_engine = sqlite.memory_engine()
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
    def in_memory(self) -> bool:
        """Whether all is gone when the service ends."""
        return self.kind == "memory"

    @property
    def where(self) -> str:
        """Where everything is kept, for a person: a folder, or a URL without its password."""
        if self.in_memory:
            return "in memory, gone when the service ends"
        url = self._write_engine.url
        if self.kind == "postgresql":
            return url.set(drivername="postgresql").render_as_string(hide_password=True)
        return str(Path(f"{url.database}").parent)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection for a short read, seeing all that was committed before."""
        if self.in_memory:
            # One connection for all: the lock lets readers see whole groups of writes only.
            with self._memory_lock, self._read_engine.connect() as connection:
                yield connection
        else:
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
        guard = self._memory_lock if self.in_memory else contextlib.nullcontext()
        with guard, connection.begin():
            yield

    def close(self) -> None:
        """Close all connections and let go of the folder."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._read_engine.dispose()
        self._write_engine.dispose()
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None
