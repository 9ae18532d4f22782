"""The service's storage: one SQLite connection, used by the event loop's thread only.

All requests of one turn of the loop share a transaction. It is committed before any of them is answered, so what was
acknowledged is in the file when the process is killed. (A power cut may take the last moments: this is no database
server, and fsync at each commit would make it ten times slower.)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import IO, Final, TypeVar

from agent.errors import ConfigurationError
from simulator.file_lock import lock_file
from simulator.service.errors import unavailable
from simulator.service.temporary import TemporaryFolder

log = logging.getLogger(__name__)

T = TypeVar("T")

VERSION: Final = 2
"""Of schema.sql, in ``PRAGMA user_version``. A file of another version is refused: there is nothing to convert yet."""
FILE: Final = "service.db"
CACHE_KIB: Final = 16 * 1024
CHECKPOINT_PAGES: Final = 10_000
"""Of 4 KiB. Each checkpoint flushes the file, which holds everybody up for some ten milliseconds."""


class Database:
    """One database file.

    Args:
        folder: where the file lives; None takes a temporary folder that is removed at the end.

    Raises:
        ConfigurationError: the folder cannot be used, or the file is of another version or another program.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._temporary = TemporaryFolder() if folder is None else None
        self.folder = Path(folder or "").absolute() if self._temporary is None else self._temporary.path
        self.path = self.folder / FILE
        self._lock: IO[bytes] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        """Whose turns share a transaction: the one that serves. A program's own loop may build the service."""
        self._turn: list[asyncio.Future[None]] | None = None
        """Who waits for the commit of this turn; None when nothing is to be committed."""
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="service-aggregates")
        self._reading: sqlite3.Connection | None = None
        try:
            if folder is not None:
                self._lock = _lock_folder(folder)
            self.sql = self._open()
        except (sqlite3.Error, OSError) as exc:
            self._clean_up()
            raise ConfigurationError([f"{self.path} cannot be used: {exc}; give another folder"]) from None
        except BaseException:
            self._clean_up()
            raise

    def _open(self) -> sqlite3.Connection:
        # The thread that builds the service is not always the one whose loop serves; they never use it at once.
        sql = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            self.path.chmod(0o600)
            sql.row_factory = sqlite3.Row
            sql.execute("PRAGMA journal_mode = WAL")
            sql.execute(f"PRAGMA synchronous = {'NORMAL' if self._temporary is None else 'OFF'}")
            sql.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            sql.execute("PRAGMA temp_store = MEMORY")  # what savepoints need for their undoing
            sql.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            version = sql.execute("PRAGMA user_version").fetchone()[0]
            if version == 0 and not sql.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                schema = resources.files("simulator.service").joinpath("schema.sql").read_text()
                sql.executescript(f"BEGIN; {schema} PRAGMA user_version = {VERSION}; COMMIT;")
            elif version != VERSION:
                fix = "give another folder, or delete it to begin anew"
                raise ConfigurationError([f"{self.path} is of another version ({version}): {fix}"])
        except BaseException:
            sql.close()
            raise
        return sql

    @property
    def where(self) -> str:
        """Where everything is kept, for a person."""
        return str(self.folder) if self._temporary is None else "in a temporary folder, gone when the service ends"

    @contextlib.contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Write within the transaction of this turn; an exception takes back what this block has written.

        No ``await`` may stand inside. Before and after the service serves, the block is a transaction of its own.
        """
        loop = self.loop
        begins = not self.sql.in_transaction
        try:
            if begins:
                if self._turn is not None:  # a full disk has ended the transaction that others wait for
                    self._end_turn()
                self.sql.execute("BEGIN IMMEDIATE")
                if loop is not None:
                    self._turn = []
                    loop.call_soon(self._end_turn)
            self.sql.execute("SAVEPOINT request")
        except sqlite3.Error as exc:
            raise _failed(exc) from exc
        try:
            yield self.sql
        except BaseException as exc:
            with contextlib.suppress(sqlite3.Error):  # a full disk has ended the whole transaction already
                self.sql.execute("ROLLBACK TO request")
                self.sql.execute("RELEASE request")
                if begins and loop is None:
                    self.sql.execute("ROLLBACK")
            if isinstance(exc, sqlite3.Error) and not isinstance(exc, sqlite3.IntegrityError):
                raise _failed(exc) from exc
            raise
        self.sql.execute("RELEASE request")
        if begins and loop is None:
            self.sql.execute("COMMIT")

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            return
        failure: Exception | None = None
        try:
            if not self.sql.in_transaction:
                raise sqlite3.OperationalError("the transaction was rolled back")
            self.sql.execute("COMMIT")
        except sqlite3.Error as exc:
            with contextlib.suppress(sqlite3.Error):
                self.sql.execute("ROLLBACK")
            failure = _failed(exc)
        for waiter in turn:
            if waiter.done():  # whoever waited has been canceled
                continue
            if failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(failure)

    async def committed(self) -> None:
        """Return when all that was written so far is committed; at once where nothing waits.

        Raises:
            ApiError: 503 ``storage_unavailable``: nothing of this turn is stored.
        """
        if self._turn is not None:
            waiter = asyncio.get_running_loop().create_future()
            self._turn.append(waiter)
            await waiter

    async def aggregate(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """A read that may look at very many rows, in a thread and on a connection of its own."""
        await self.committed()
        return await asyncio.get_running_loop().run_in_executor(self._reader, self._aggregate, query)

    def _aggregate(self, query: Callable[[sqlite3.Connection], T]) -> T:
        if self._reading is None:
            self._reading = sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True, check_same_thread=False)
            self._reading.row_factory = sqlite3.Row
        return query(self._reading)

    def restore(self, source: Path) -> None:
        """Replace everything by what such a file holds, in one transaction.

        Raises:
            sqlite3.Error: it cannot be read.
        """
        self._commit_now()
        with contextlib.closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as saved:
            saved.backup(self.sql)

    def _commit_now(self) -> None:
        if self.sql.in_transaction:
            self._end_turn()

    def close(self) -> None:
        """Close it; a temporary folder is removed."""
        self._commit_now()
        self._reader.shutdown()
        if self._reading is not None:
            self._reading.close()
        self.sql.close()
        self._clean_up()

    def _clean_up(self) -> None:
        self._reader.shutdown()
        if self._lock is not None:
            self._lock.close()
        if self._temporary is not None:
            self._temporary.close()


def insert(sql: sqlite3.Connection, table: str, **values: object) -> int:
    """Insert a row; its number. Table and column names come from this package, never from a request."""
    names = ", ".join(values)
    marks = ", ".join("?" * len(values))
    statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"
    return int(sql.execute(statement, tuple(values.values())).lastrowid or 0)


def update(sql: sqlite3.Connection, table: str, row: int, **values: object) -> None:
    """Change columns of the row with this number."""
    sets = ", ".join(f"{name} = ?" for name in values)
    sql.execute(f"UPDATE {table} SET {sets} WHERE row = ?", (*values.values(), row))


def one(sql: sqlite3.Connection, statement: str, values: Sequence[object] = ()) -> sqlite3.Row | None:
    """The only row of a query, or None."""
    row: sqlite3.Row | None = sql.execute(statement, values).fetchone()
    return row


def _lock_folder(folder: Path) -> IO[bytes]:
    """Make the folder and keep others out: two services on one file would not see each other's held polls."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (folder / "service.lock").open("wb")
        (folder / "service.lock").chmod(0o600)
    except OSError as exc:
        raise ConfigurationError([f"data folder {folder}: {exc.strerror}; give a folder that can be written"]) from None
    try:
        lock_file(file.fileno())
    except OSError:
        file.close()
        fix = "stop that one, or give another folder"
        raise ConfigurationError([f"data folder {folder} is used by another running service: {fix}"]) from None
    return file


def _failed(exc: sqlite3.Error) -> Exception:
    log.error("the storage could not be written: %s", exc)
    return unavailable("storage_unavailable", "The service could not write its storage; its log says why.", 1)
