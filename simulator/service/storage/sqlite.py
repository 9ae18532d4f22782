"""SQLite: engines whose connections begin transactions where they are asked to.

One writing connection and a pool of reading ones; WAL, so that neither waits for the other. In a folder that was given,
``synchronous=FULL``: a committed row survives a power cut. In a temporary one nothing is flushed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any, Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool, QueuePool

from agent.errors import ConfigurationError
from simulator.file_lock import lock_file

FILE_NAME: Final = "service.db"
_LOCK_NAME: Final = "service.lock"
_FILE_MODE: Final = 0o600

_LASTING: Final = (
    "synchronous=FULL",
    "fullfsync=ON",  # macOS: without it a flush ends in the drive's cache
)
_PASSING: Final = ("synchronous=OFF",)
_PRAGMAS: Final = (
    "journal_mode=WAL",
    "temp_store=MEMORY",  # what savepoints need for their undoing would otherwise go through temporary files
    "wal_autocheckpoint=4000",
)
# Pages that a connection keeps by itself, KiB. They fill with the database for hours, and the system keeps the file
# anyway: the writer has as many as a group of writes changes, and readers few, since each write makes them forget all.
_WRITER_CACHE: Final = "cache_size=-4000"
_READER_CACHE: Final = "cache_size=-500"


def lock_folder(data_dir: Path) -> IO[bytes]:
    """Make the folder and keep others out: two services on one file would each believe their own memory of it.

    Raises:
        ConfigurationError: the folder cannot be written, or another service uses it.
    """
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in data_dir.glob(f"{FILE_NAME}*"):
            path.chmod(_FILE_MODE)
        # SQLite gives the files beside the database the mode that the database has.
        for name in (FILE_NAME, _LOCK_NAME):
            os.close(os.open(data_dir / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE))
        file = (data_dir / _LOCK_NAME).open("wb")
    except OSError as exc:
        raise ConfigurationError(
            [f"data folder {data_dir}: {exc.strerror}; give a folder that can be written"]
        ) from None
    try:
        lock_file(file.fileno())
    except OSError:
        file.close()
        raise ConfigurationError(
            [f"data folder {data_dir} is used by another running service: stop that one, or give another folder"]
        ) from None
    return file


def engines(data_dir: Path, readers: int, *, lasting: bool = True) -> tuple[Engine, Engine]:
    """The writer's engine and the readers'.

    Args:
        data_dir: the folder of the file.
        readers: reading connections that stay open.
        lasting: what is committed survives a power cut.
    """
    url = f"sqlite:///{data_dir / FILE_NAME}"
    pragmas = (*_PRAGMAS, *(_LASTING if lasting else _PASSING))
    return (
        _file_engine(url, "BEGIN IMMEDIATE", (*pragmas, _WRITER_CACHE), NullPool),
        _file_engine(url, "BEGIN", (*pragmas, _READER_CACHE), QueuePool, pool_size=readers, max_overflow=readers),
    )


def _file_engine(url: str, begin: str, pragmas: tuple[str, ...], poolclass: Any, **options: int) -> Engine:
    engine = create_engine(
        url, poolclass=poolclass, connect_args={"check_same_thread": False, "timeout": 10}, **options
    )
    _set_up(engine, begin, pragmas)
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
