"""The database: one place for everything that depends on which one it is.

SQLite as a file: one writing connection and a pool of reading ones; WAL, so that neither waits for the other, and
``synchronous=FULL``, so that a committed row survives a power cut. SQLite in memory: one connection, and a lock that
lets readers see whole groups of writes only.
"""

from __future__ import annotations

import contextlib
import fcntl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool, QueuePool, StaticPool

from agent.errors import ConfigurationError
from simulator.service.storage.migrate import migrate

FILE_NAME: Final = "service.db"
READERS: Final = 4
"""Reading connections that stay open."""

_PRAGMAS: Final = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "fullfsync=ON",  # macOS: without it a flush ends in the drive's cache
    "temp_store=MEMORY",  # what savepoints need for their undoing would otherwise go through temporary files
    "cache_size=-16000",
    "wal_autocheckpoint=4000",
)


class Database:
    """Connections to one database whose schema is up to date."""

    def __init__(self, data_dir: Path | None) -> None:
        """Open it, make it when it is not there, and bring its schema up to date.

        Raises:
            ConfigurationError: the folder cannot be used, another service uses it, or a newer release wrote it.
        """
        self._lock_file: IO[bytes] | None = None
        self._memory_lock = threading.RLock()
        self.in_memory = data_dir is None
        if data_dir is None:
            self._write_engine = self._read_engine = _memory_engine()
        else:
            self._lock_file = _lock(data_dir)
            url = f"sqlite:///{data_dir / FILE_NAME}"
            self._write_engine = _file_engine(url, "BEGIN IMMEDIATE", NullPool)
            self._read_engine = _file_engine(url, "BEGIN", QueuePool, pool_size=READERS, max_overflow=READERS)
        try:
            migrate(self._write_engine)
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection for a short read, seeing all that was committed before."""
        if self.in_memory:
            with self._memory_lock, self._read_engine.connect() as connection:
                yield connection
        else:
            with self._read_engine.connect() as connection:
                yield connection

    def open_writer(self) -> Connection:
        """The writing connection. One thread has it, and there is only one."""
        return self._write_engine.connect()

    @contextlib.contextmanager
    def writing(self, connection: Connection) -> Iterator[None]:
        """One transaction on the writing connection: committed at the end, rolled back by an exception."""
        guard = self._memory_lock if self.in_memory else contextlib.nullcontext()
        with guard, connection.begin():
            yield

    def close(self) -> None:
        """Close all connections and let go of the folder."""
        self._read_engine.dispose()
        self._write_engine.dispose()
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None


def _lock(data_dir: Path) -> IO[bytes]:
    """Two services on one file would each believe their own memory of it."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        lock_file = (data_dir / "service.lock").open("wb")
    except OSError as exc:
        raise ConfigurationError(
            [f"data folder {data_dir}: {exc.strerror}; give a folder that can be written"]
        ) from None
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock_file.close()
        raise ConfigurationError(
            [f"data folder {data_dir} is used by another running service: stop that one, or give another folder"]
        ) from None
    return lock_file


def _memory_engine() -> Engine:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    _set_up(engine, "BEGIN", ())
    return engine


def _file_engine(url: str, begin: str, poolclass: Any, **options: int) -> Engine:
    engine = create_engine(
        url, poolclass=poolclass, connect_args={"check_same_thread": False, "timeout": 10}, **options
    )
    _set_up(
        engine,
        begin,
        _PRAGMAS,
    )
    return engine


def _set_up(engine: Engine, begin: str, pragmas: tuple[str, ...]) -> None:
    # The driver would begin transactions by itself, late and not before SELECT: here each begins where it is asked to.
    @event.listens_for(engine, "connect")
    def _connected(driver_connection: Any, _record: object) -> None:
        driver_connection.isolation_level = None
        for pragma in pragmas:
            driver_connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        connection.exec_driver_sql(begin)
