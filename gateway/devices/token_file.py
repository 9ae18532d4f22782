"""The file of the device tokens: written by ``gateway devices``, read by the gateway while it runs.

A SQLite database of its own beside the gateway's store. Several processes write it (the commands, and the gateway,
which notes when tokens were used), so it keeps the rollback journal: with a write-ahead log, SQLite before 3.51.3 can
lose data when two connections write. Nothing is ever deleted: a revoked token stays in the list as revoked.

Each change gives its rows the next revision, so that a reader that knows one takes over only what came after it.

SQLite keeps any value in any column. A row that another program or a damaged disk left with a value that cannot be is
read as a token with a ``fault``, which is refused; all other rows are read as they are.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from agent.errors import ConfigurationError
from gateway.devices.owned_file import create_owned
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
) WITHOUT ROWID;
CREATE INDEX token_revision ON token (revision);
"""
_COLUMNS: Final = "digest, device_id, number, password, created_at, ends_at, revoked_at, last_used_at, revision"
# Larger than any that was ever given; a row with another one is damaged and must not decide which is next.
_COUNT_MAX: Final = 2**62
_NEXT_REVISION: Final = (
    f"(SELECT CAST(COALESCE(MAX(revision), 0) AS INTEGER) + 1 FROM token WHERE revision BETWEEN 0 AND {_COUNT_MAX})"  # noqa: S608 - constants
)
_DIGEST_BYTES: Final = 32
_TIME_MAX_S: Final = 253_402_300_800.0  # the year 10000
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
        fault: why it is refused: which columns hold what cannot be there, one clause; empty when all is well. What
            stands in their places here means nothing.
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
    fault: str = ""

    def is_valid(self, now_s: float) -> bool:
        """Whether a device may still use it."""
        return not self.fault and self.revoked_at is None and (self.ends_at is None or self.ends_at > now_s)

    def state(self, now_s: float) -> str:
        """One word: ``valid``, ``ending`` (a newer one was issued), ``ended``, ``revoked`` or ``damaged``."""
        if self.revoked_at is not None:
            return "revoked"
        if self.fault:
            return "damaged"
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
            create_owned(path)
            self._connection = _connect(path)
        except OSError as error:
            raise ConfigurationError([f"{path} cannot be opened: {_reason(error)}"], "device tokens") from None
        except sqlite3.Error as error:
            fix = "run it as the gateway's user or as root, or restore the file from a backup"
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
                    f"SELECT ?, ?, CAST(COALESCE(MAX(number), 0) AS INTEGER) + 1, ?, ?, {_NEXT_REVISION} FROM token "
                    f"WHERE device_id = ? AND number BETWEEN 0 AND {_COUNT_MAX}",
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
        return map(_token, rows)

    def changed_since(self, revision: int) -> Iterator[StoredToken]:
        """What changed after this revision, in the order of the changes."""
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM token WHERE revision > ? ORDER BY revision, number",  # noqa: S608 - constants
            (revision,),
        )
        return map(_token, rows)

    def data_version(self) -> int:
        """Another number as soon as another connection has committed (``PRAGMA data_version``)."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def _end(self, device_id: str, now_s: float, at_s: float, *, but: bytes = b"") -> None:
        self._connection.execute(
            f"UPDATE token SET ends_at = MIN(COALESCE(ends_at, :at), :at), revision = {_NEXT_REVISION} "  # noqa: S608 - constants
            # One that was issued after the used one is newer still, and stays.
            f"WHERE device_id = :device AND {_STILL_VALID} "
            f"AND number < COALESCE((SELECT number FROM token WHERE digest = :but), {_COUNT_MAX} + 1)",
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


def _token(row: tuple[Any, ...]) -> StoredToken:
    """A row as it is, or with its fault."""
    digest, device_id, number, password, created_at, ends_at, revoked_at, last_used_at, revision = row
    odd = [
        f"{name} is {_KINDS.get(type(value), 'of another kind')} {text}"
        for name, value, is_good, text in (
            ("digest", digest, type(digest) is bytes and len(digest) == _DIGEST_BYTES, "and no SHA-256"),
            ("device_id", device_id, type(device_id) is str and device_id.isprintable(), "and no device id"),
            ("number", number, _is_count(number), "and no count"),
            ("password", password, type(password) is str, "and no password entry"),
            ("created_at", created_at, _is_time(created_at), "and no time"),
            ("ends_at", ends_at, ends_at is None or _is_end(ends_at), "and no time"),
            ("last_used_at", last_used_at, last_used_at is None or _is_time(last_used_at), "and no time"),
            ("revision", revision, _is_count(revision), "and no count"),
        )
        if not is_good
    ]
    if not odd:
        return StoredToken(*row)
    if type(device_id) is str:
        device_id = device_id.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return StoredToken(
        digest,
        str(device_id),
        number if _is_count(number) else 0,
        "",
        created_at if _is_time(created_at) else 0.0,
        ends_at if _is_end(ends_at) else None,
        revoked_at,
        last_used_at if _is_time(last_used_at) else None,
        revision if _is_count(revision) else 0,
        fault=", ".join(odd),
    )


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= _COUNT_MAX


def _is_time(value: object) -> bool:
    return type(value) in {float, int} and 0 <= value < _TIME_MAX_S  # type: ignore[operator]  # a number, by its type


def _is_end(value: object) -> bool:
    return type(value) in {float, int} and value < _TIME_MAX_S  # type: ignore[operator]  # a number, by its type


_KINDS: Final = {str: "text", bytes: "a blob", int: "a number", float: "a number", type(None): "empty"}


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    # Text that is no UTF-8 is one row's fault, and must not make the others unreadable.
    connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
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
    return f"{error.strerror}; run it as the gateway's user or as root"
