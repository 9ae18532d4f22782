"""Device tokens: how one is made, and the file that keeps them and the enrollment codes.

A token is shown once, when it is issued. What is kept cannot be turned back into it: its SHA-256 for the gateway, and
the form in which mosquitto keeps passwords for the broker. A slow hash would protect a password that a person thought
up; 190 random bits cannot be guessed, and the gateway checks one with every request.

The file is one SQLite database. Several processes write it (the commands, and the gateway, which notes when tokens were
used), so it keeps the rollback journal: with a write-ahead log, SQLite before 3.51.3 can lose data when two connections
write. A revoked token stays in the list as revoked.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import re
import secrets
import sqlite3
import stat
import string
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, Self, TypeVar

from agent.errors import ConfigurationError, InvalidMessage
from agent.identity import as_owner_of
from agent.wire import topics
from agent.wire.secret import Secret

FILE_NAME: Final = "tokens.db"
OVERLAP_S: Final = 86_400.0
"""How long the old token stays good beside a new one; it ends earlier, as soon as the new one is used."""
BROKER_MARK: Final = "broker-wanted"
"""While this file is there, the broker lacks the newest tokens; ``device-gateway-broker.path`` waits for it."""
PREFIX: Final = "dat_"
"""Lets people, and programs that search for leaked secrets, recognise a token."""

_ALPHABET: Final = string.ascii_letters + string.digits
_RANDOM_CHARACTERS: Final = 32  # of 62 different ones: 190 bits
_TOKEN: Final = re.compile(rf"{PREFIX}[A-Za-z0-9]{{{_RANDOM_CHARACTERS}}}")
# mosquitto's own defaults (mosquitto_passwd(1), $7$): PBKDF2 with SHA-512.
_ITERATIONS: Final = 101
_SALT_BYTES: Final = 12

_VERSION: Final = 4
_BUSY_S: Final = 10.0
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS token (
    digest BLOB PRIMARY KEY,
    device_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    password TEXT NOT NULL,
    created_at REAL NOT NULL,
    ends_at REAL,
    revoked_at REAL,
    last_used_at REAL,
    UNIQUE (device_id, number)
) WITHOUT ROWID, STRICT;
CREATE TABLE IF NOT EXISTS code (
    digest BLOB PRIMARY KEY,
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    count INTEGER NOT NULL,
    revoked_at REAL,
    terms TEXT NOT NULL
) WITHOUT ROWID, STRICT;
CREATE TABLE IF NOT EXISTS enrolled (
    digest BLOB NOT NULL REFERENCES code (digest),
    identifier TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (digest, identifier)
) WITHOUT ROWID, STRICT;
"""
_VALID: Final = "revoked_at IS NULL AND (ends_at IS NULL OR ends_at > :now)"

Value = TypeVar("Value")


def make_token() -> Secret:
    """A new token out of 190 random bits; :meth:`Tokens.issue` makes it valid."""
    return Secret(PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM_CHARACTERS)))


def digest_of(token: str) -> bytes:
    """SHA-256, 32 bytes: a token is stored and found by it."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def mosquitto_password(password: str, salt: bytes) -> str:
    """``$7$iterations$salt$hash`` as in mosquitto's password file (mosquitto 2.0, ``mosquitto_passwd``)."""
    key = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    return f"$7${_ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(key).decode()}"


def id_fault(device_id: str) -> str | None:
    """Why this device id must not have a token: one sentence, or None when it may."""
    try:
        topics.user_name(device_id)
    except InvalidMessage as error:
        return str(error)
    if not device_id.isprintable() or device_id != device_id.strip():
        return "a device id must not contain invisible characters, nor begin or end with a space"
    if device_id in {".", ".."}:
        return "a device id must not be a dot or two: a path would lose it"
    return None


def request_broker_update(state_dir: Path) -> None:
    """Set the mark that the broker lacks a token.

    Raises:
        OSError: it cannot be written.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(state_dir / BROKER_MARK, flags, 0o600))


def open_db(
    path: Path, prepare: Callable[[sqlite3.Connection], None], source: str, busy_s: float = _BUSY_S
) -> sqlite3.Connection:
    """A database of the gateway, in autocommit mode; made, mode 600, where there is none.

    Args:
        path: of the file.
        prepare: makes the tables, or looks whether they are ours.
        source: what it is, for an error.
        busy_s: how long another process that writes is waited for, seconds.

    Raises:
        ConfigurationError: it cannot be opened, or is none of ours.
    """
    try:
        # Refuse a link that somebody has put there, and a FIFO, on which we would wait for ever.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        is_file = stat.S_ISREG(os.fstat(fd).st_mode)
        os.close(fd)
        if not is_file:
            raise OSError(errno.EINVAL, "it is no regular file")
        connection = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA trusted_schema=OFF")
            connection.execute("PRAGMA synchronous=FULL")
            # Readers wait only during the commit, even when thousands of tokens are issued at once.
            connection.execute("PRAGMA cache_spill=OFF")
            prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection
    except ConfigurationError as error:
        fault = f"{path}: {error.faults[0]}"
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        fix = "run it as the gateway's user or as root, create its directory, or restore the file from a backup"
        fault = f"{path} cannot be used: {reason}; {fix}"
        if "locked" in str(error):
            fault = f"{path}: another process works on this {source}: wait for it, or end it"
    raise ConfigurationError([fault], source)


def _make_tables(connection: sqlite3.Connection) -> None:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version == 0:
        with transaction(connection):  # another process may have been first
            for statement in filter(str.strip, _TABLES.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={_VERSION}")
    elif version != _VERSION:
        raise sqlite3.DatabaseError(f"its version is {version}, and this program knows {_VERSION}")
    connection.execute("SELECT digest, device_id, number, password FROM token LIMIT 0")


def _identity(path: Path) -> tuple[int, int]:
    """Device and inode of the file; zeros for none."""
    try:
        status = path.stat()
    except OSError:
        return (0, 0)
    return (status.st_dev, status.st_ino)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All statements of the block, or none. Inside another transaction it is a part of that one."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.OperationalError):  # some errors have rolled it back already
            connection.execute("ROLLBACK")
        raise


class Tokens:
    """The tokens of one file, for one thread. A change of another process counts at once.

    Every method may raise :class:`sqlite3.Error`.

    Args:
        path: of the file.
        wall: epoch seconds.

    Raises:
        ConfigurationError: it cannot be opened, or is none of ours.
    """

    def __init__(self, path: Path, wall: Callable[[], float] = time.time) -> None:
        self.path = path
        self.wall = wall
        self.connection = open_db(path, _make_tables, "file of tokens")
        self._file = _identity(path)
        self._opened_s = wall()
        # Not yet in the file: digest -> last use; digests of first uses; devices that came through the broker.
        self._used: dict[bytes, float] = {}
        self._first_used: set[bytes] = set()
        self._came: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Write down when tokens were used, and give the file back."""
        with closing(self.connection):
            self.note_use()

    def follow(self) -> None:
        """Open the file again if another one is in its place, such as a backup that was put back.

        Raises:
            ConfigurationError: it cannot be used, or there is none; what is open stays in force, revoked tokens too.
        """
        if _identity(self.path) != self._file:
            fresh = open_db(self.path, _make_tables, "file of tokens")
            self.connection.close()
            self.connection, self._file = fresh, _identity(self.path)

    def issue(self, new: Mapping[str, Secret]) -> None:
        """Give each device a new token, all in one transaction; an old one stays good for :data:`OVERLAP_S` at most."""
        now_s = self.wall()
        kept = [
            (device_id, digest_of(token.reveal()), mosquitto_password(token.reveal(), os.urandom(_SALT_BYTES)))
            for device_id, token in new.items()
        ]
        with transaction(self.connection):
            for device_id, digest, password in kept:
                self.connection.execute(
                    "UPDATE token SET ends_at = MIN(COALESCE(ends_at, :at), :at) "  # noqa: S608 - constants
                    f"WHERE device_id = :device AND {_VALID}",
                    {"at": now_s + OVERLAP_S, "now": now_s, "device": device_id},
                )
                self.connection.execute(
                    "INSERT INTO token (digest, device_id, number, password, created_at) "
                    "SELECT ?, ?, COALESCE(MAX(number), 0) + 1, ?, ? FROM token WHERE device_id = ?",
                    (digest, device_id, password, now_s, device_id),
                )

    def revoke(self, device_id: str) -> int:
        """Take back every valid token of a device; how many there were."""
        with transaction(self.connection):
            return self.connection.execute(
                f"UPDATE token SET revoked_at = :now WHERE device_id = :device AND {_VALID}",  # noqa: S608 - constants
                {"now": self.wall(), "device": device_id},
            ).rowcount

    def device_of(self, token: str) -> str | None:
        """The device that a valid token belongs to; None for any other text.

        The time it takes gives nothing away of the tokens that exist: what is compared is the SHA-256 of what came,
        which a caller cannot steer towards another one.
        """
        if not _TOKEN.fullmatch(token):
            return None
        digest, now_s = digest_of(token), self.wall()
        row = self.connection.execute(
            f"SELECT device_id, ends_at, last_used_at FROM token WHERE digest = :digest AND {_VALID}",  # noqa: S608 - constants
            {"digest": digest, "now": now_s},
        ).fetchone()
        if row is None:
            return None
        device_id, ends_at, last_used_at = row
        if ends_at is None and last_used_at is None:
            self._first_used.add(digest)
        self._used[digest] = now_s
        return str(device_id)

    def serves(self, device_id: str) -> bool:
        return (
            self.connection.execute(
                f"SELECT 1 FROM token WHERE device_id = :device AND {_VALID} LIMIT 1",  # noqa: S608 - constants
                {"device": device_id, "now": self.wall()},
            ).fetchone()
            is not None
        )

    def note_device(self, device_id: str) -> None:
        """Note that the device has connected to the broker, which accepts only its newest token."""
        self._came.add(device_id)

    def is_new(self, device_id: str) -> bool:
        """Whether the device's newest token had never been used when the file was opened."""
        (at_s,) = self.connection.execute(
            "SELECT last_used_at FROM token WHERE device_id = ? ORDER BY number DESC LIMIT 1", (device_id,)
        ).fetchone() or (None,)
        return at_s is None or at_s >= self._opened_s

    def passwords(self) -> dict[str, str]:
        """Each device with a valid token -> the newest one as an entry of mosquitto's password file."""
        rows = self.connection.execute(
            f"SELECT device_id, password, MAX(number) FROM token WHERE {_VALID} GROUP BY device_id",  # noqa: S608 - constants
            {"now": self.wall()},
        )
        return {device_id: password for device_id, password, _ in rows}

    def listed(self) -> list[dict[str, str | None]]:
        """Each device with a token now or before, and its times in UTC.

        ``state`` is its newest token's: ``valid``, ``ended`` or ``revoked``. ``last_used_at`` is noted within a minute
        over HTTP, and once over the broker. ``old_token_until`` is there while one from before is good too.
        """
        cursor = self.connection.execute(
            """
            SELECT device_id, CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN ends_at <= :now THEN 'ended'
                ELSE 'valid' END AS state, strftime(:form, created_at, 'unixepoch') AS issued_at,
                (SELECT strftime(:form, MAX(last_used_at), 'unixepoch') FROM token
                    WHERE device_id = newest.device_id) AS last_used_at,
                (SELECT strftime(:form, MAX(ends_at), 'unixepoch') FROM token WHERE device_id = newest.device_id
                    AND number < newest.number AND revoked_at IS NULL AND ends_at > :now) AS old_token_until
            FROM token AS newest WHERE number = (SELECT MAX(number) FROM token WHERE device_id = newest.device_id)
            ORDER BY device_id
            """,
            {"now": self.wall(), "form": "%Y-%m-%dT%H:%M:%SZ"},
        )
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def changed(self) -> int:
        """A number that differs after another process has changed something (``PRAGMA data_version``)."""
        return int(self.connection.execute("PRAGMA data_version").fetchone()[0])

    def note_first_use(self) -> None:
        """Write down which tokens were used for the first time, which ends the older ones of their devices.

        All in one transaction: a commit for each of ten thousand devices would take minutes on a slow disk.
        """
        if not self._first_used and not self._came:
            return
        now_s = self.wall()
        # While the broker lacks the newest tokens, a device may have come with its old one.
        is_sure = not (self.path.parent / BROKER_MARK).exists()
        with transaction(self.connection):
            for digest in self._first_used:
                self._note(digest, now_s)
            for device_id in self._came:
                row = self.connection.execute(
                    f"SELECT digest FROM token WHERE device_id = :device AND {_VALID} ORDER BY number DESC LIMIT 1",  # noqa: S608 - constants
                    {"device": device_id, "now": now_s},
                ).fetchone()
                if row is not None:
                    self._note(row[0], now_s, ends_older=is_sure)
        self._first_used.clear()
        self._came.clear()

    def note_use(self) -> None:
        self.note_first_use()
        with transaction(self.connection):
            for digest, at_s in self._used.items():
                self._note(digest, at_s)
        self._used.clear()

    def _note(self, digest: bytes, at_s: float, *, ends_older: bool = True) -> None:
        """Write down the use of a token, which ends the older ones of its device."""
        self.connection.execute("UPDATE token SET last_used_at = ? WHERE digest = ?", (at_s, digest))
        row = self.connection.execute("SELECT device_id, number FROM token WHERE digest = ?", (digest,)).fetchone()
        if ends_older and row is not None:
            self.connection.execute(
                f"UPDATE token SET ends_at = :now WHERE device_id = :device AND number < :number AND {_VALID}",  # noqa: S608 - constants
                {"now": self.wall(), "device": row[0], "number": row[1]},
            )


def with_tokens(state_dir: Path, do: Callable[[Tokens], Value]) -> Value:
    """Call ``do`` with the tokens of a gateway; where root runs this, as the owner of their file.

    Raises:
        ConfigurationError: the file cannot be used.
    """
    path = state_dir / FILE_NAME

    def work() -> Value:
        with Tokens(path) as tokens:
            try:
                return do(tokens)
            except sqlite3.Error as error:
                fault = f"{path} cannot be used: {error}; is its disk full, or another command at work?"
                raise ConfigurationError([fault], "device tokens") from None

    return as_owner_of(path, work)
