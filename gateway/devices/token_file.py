"""The file of the device tokens: written by ``gateway devices``, read by the gateway while it runs.

A SQLite database of its own beside the gateway's store. Several processes write it (the commands, and the gateway,
which notes when tokens were used), so it keeps the rollback journal: with a write-ahead log, SQLite before 3.51.3 can
lose data when two connections write. Nothing is ever deleted: a revoked token stays in the list as revoked.

Each change gives its rows the next revision, so that a reader that knows one takes over only what came after it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from agent.errors import ConfigurationError
from gateway.devices.new_file import create_empty
from gateway.devices.tokens import NewToken

FILE_NAME: Final = "tokens.db"

_VERSION: Final = 1
_BUSY_S: Final = 10.0
_TABLES: Final = """
CREATE TABLE token (
    digest BLOB PRIMARY KEY,
    device_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    password TEXT NOT NULL,
    created_at REAL NOT NULL,
    ends_at REAL,
    revoked_at REAL,
    last_used_at REAL,
    revision INTEGER NOT NULL,
    UNIQUE (device_id, number)
) WITHOUT ROWID, STRICT;
CREATE INDEX token_revision ON token (revision);
"""
_COLUMNS: Final = "digest, device_id, number, password, created_at, ends_at, revoked_at, last_used_at, revision"
_NEXT_REVISION: Final = "(SELECT COALESCE(MAX(revision), 0) + 1 FROM token)"
_STILL_VALID: Final = "revoked_at IS NULL AND (ends_at IS NULL OR ends_at > :now)"


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token as the file keeps it.

    Attributes:
        number: 1 for the device's first token; the highest one is the newest.
        password: for mosquitto's password file.
        created_at: epoch seconds, as all times here.
        ends_at: a newer token was issued, and this one is good until then; None without a newer one.
        revoked_at: when it was taken back.
        last_used_at: the gateway notes it within a minute; the broker notes nothing.
        revision: of its last change.
    """

    digest: bytes
    device_id: str
    number: int
    password: str
    created_at: float
    ends_at: float | None
    revoked_at: float | None
    last_used_at: float | None
    revision: int

    def is_valid(self, now_s: float) -> bool:
        """Whether a device may still use it."""
        return self.revoked_at is None and (self.ends_at is None or self.ends_at > now_s)

    def state(self, now_s: float) -> str:
        """One word: ``valid``, ``ending`` (a newer one was issued), ``ended`` or ``revoked``."""
        if self.revoked_at is not None:
            return "revoked"
        if self.ends_at is None:
            return "valid"
        return "ending" if self.ends_at > now_s else "ended"


class DeviceTokenFile:
    """One connection to the file; used by one thread at a time. Made, mode 600, where there is none.

    Every method may raise :class:`sqlite3.Error`.

    Raises:
        ConfigurationError: it cannot be opened, or is none of ours.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            create_empty(path)
            self._connection = _connect(path)
        except OSError as error:
            raise ConfigurationError([f"{path} cannot be opened: {_reason(error)}"], "device tokens") from None
        except sqlite3.Error as error:
            fix = "run it as the gateway's user, or as root, or restore the file from a backup"
            raise ConfigurationError([f"{path} cannot be used: {error}; {fix}"], "device tokens") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back."""
        self._connection.close()

    def issue(self, tokens: Mapping[str, NewToken], now_s: float, overlap_s: float = 0.0) -> None:
        """Give each device a new token, all in one transaction.

        Args:
            tokens: device id -> its new token.
            now_s: epoch seconds.
            overlap_s: how long the tokens from before are good beside it.
        """
        with self._transaction():
            for device_id, new in tokens.items():
                self._end(device_id, now_s, now_s + overlap_s)
                self._connection.execute(
                    f"INSERT INTO token (digest, device_id, number, password, created_at, revision) "  # noqa: S608 - constants
                    f"SELECT ?, ?, COALESCE(MAX(number), 0) + 1, ?, ?, {_NEXT_REVISION} FROM token WHERE device_id = ?",
                    (new.digest, device_id, new.password, now_s, device_id),
                )

    def revoke(self, device_id: str, now_s: float) -> int:
        """Take back every valid token of a device; how many there were."""
        with self._transaction():
            return self._connection.execute(
                f"UPDATE token SET revoked_at = :now, revision = {_NEXT_REVISION} "  # noqa: S608 - constants
                f"WHERE device_id = :device AND {_STILL_VALID}",
                {"now": now_s, "device": device_id},
            ).rowcount

    def note_use(self, used: Mapping[bytes, float], ended: Iterable[tuple[str, bytes, float]] = ()) -> None:
        """Keep when tokens were used last, and end what was only good until a newer one was used.

        Args:
            used: digest -> epoch seconds.
            ended: device, its newest token's digest, and the moment from which that is the only one.
        """
        with self._transaction():
            self._connection.executemany(
                "UPDATE token SET last_used_at = ? WHERE digest = ?", [(at_s, digest) for digest, at_s in used.items()]
            )
            for device_id, newest, at_s in ended:
                self._end(device_id, at_s, at_s, but=newest)

    def tokens(self, device_id: str | None = None) -> Iterator[StoredToken]:
        """Every token, or those of one device; by device, oldest first."""
        where = "" if device_id is None else "WHERE device_id = ?"
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM token {where} ORDER BY device_id, number",  # noqa: S608 - constants
            () if device_id is None else (device_id,),
        )
        return (StoredToken(*row) for row in rows)

    def changed_since(self, revision: int) -> Iterator[StoredToken]:
        """What changed after this revision, in the order of the changes."""
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM token WHERE revision > ? ORDER BY revision, number",  # noqa: S608 - constants
            (revision,),
        )
        return (StoredToken(*row) for row in rows)

    def data_version(self) -> int:
        """Another number as soon as another connection has committed (``PRAGMA data_version``)."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def _end(self, device_id: str, now_s: float, at_s: float, *, but: bytes = b"") -> None:
        self._connection.execute(
            f"UPDATE token SET ends_at = MIN(COALESCE(ends_at, :at), :at), revision = {_NEXT_REVISION} "  # noqa: S608 - constants
            # One that was issued after the used one is newer still, and stays.
            f"WHERE device_id = :device AND {_STILL_VALID} "
            f"AND number < COALESCE((SELECT number FROM token WHERE digest = :but), number + 1)",
            {"at": at_s, "now": now_s, "device": device_id, "but": but},
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        # The connection is in autocommit mode, so this is all there is; immediate, so that it waits here if anywhere.
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA synchronous=FULL")
        # Readers are shut out only for the moment of the commit, also when thousands of tokens are issued at once.
        connection.execute("PRAGMA cache_spill=OFF")
        _make_tables(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _make_tables(connection: sqlite3.Connection) -> None:
    version = _version(connection)
    if version == 0:
        connection.execute("BEGIN IMMEDIATE")
        if _version(connection) == 0:  # another process may have been first
            for statement in filter(str.strip, _TABLES.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={_VERSION}")
        connection.execute("COMMIT")
    elif version != _VERSION:
        raise sqlite3.DatabaseError(f"its version is {version}, and this program knows {_VERSION}")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _reason(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "its directory is missing; create it, or mend state_dir in the gateway's configuration"
    return f"{error.strerror}; run it as the gateway's user, or as root"
