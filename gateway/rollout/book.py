"""The state file of one rollout: what was decided at its begin, and what has become of each device's command.

A SQLite database with the rollback journal, synced at each commit, and locked for as long as a process works on it.
A device is noted as ``sending`` before its command goes out and as ``sent`` after the answer, so that a process which
is killed at any moment leaves one device at most of which it is not certain.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from agent.errors import ConfigurationError
from agent.wire.base import JsonObject
from gateway.rollout.plan import Counts, DeviceState, Limits

_VERSION: Final = 1
_TABLES: Final = """
CREATE TABLE terms (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE device (
    position INTEGER PRIMARY KEY,
    wave INTEGER NOT NULL,
    device_id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    command_id TEXT,
    sending_at REAL,
    sent_at REAL,
    reason TEXT
);
CREATE INDEX device_by_wave ON device (wave, state);
"""
_COLUMNS: Final = "position, wave, device_id, state, command_id, sending_at, sent_at, reason"
_LIMITS: Final = "limits"
_BEGUN: Final = "begun"


@dataclass(frozen=True, slots=True)
class Begun:
    """What is decided when a rollout begins, and stays.

    Attributes:
        rollout_id: random; the commands' idempotency keys are made of it.
        name: as the operator calls it.
        base_url: of the service.
        command_payload: what every device gets.
        ttl_s: how long a command waits for its device, seconds; None leaves it to the service.
        created_at: epoch seconds.
    """

    rollout_id: str
    name: str
    base_url: str
    command_payload: JsonObject
    ttl_s: int | None
    created_at: float


@dataclass(frozen=True, slots=True)
class Row:
    """One device of the rollout.

    Attributes:
        position: in the order of sending, from 0.
        wave: from 1.
        command_id: the service's; None before it has answered, or when it gave none.
        sending_at: when the command was first about to be sent, epoch seconds.
        sent_at: when the service had taken it, epoch seconds.
        reason: why it failed or is silent.
    """

    position: int
    wave: int
    device_id: str
    state: DeviceState
    command_id: str | None = None
    sending_at: float | None = None
    sent_at: float | None = None
    reason: str | None = None


class RolloutBook:
    """One connection to the file; used by one thread.

    Use :meth:`begin` or :meth:`open`. Every method may raise :class:`sqlite3.Error`.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def begin(cls, path: Path, begun: Begun, limits: Limits, waves: Sequence[Sequence[str]]) -> Self:
        """A new file, mode 600.

        Args:
            path: of the file; its folder is made where there is none.
            begun: what is decided now.
            limits: when it stops.
            waves: device ids, in the order of sending.

        Raises:
            ConfigurationError: there is such a file already, or it cannot be made.
        """
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        except OSError as error:
            fix = "run it as the gateway's user, or as root, or give --folder"
            raise ConfigurationError([f"{path} cannot be made: {error.strerror}; {fix}"], "rollout") from None
        book = cls(_connect(path))
        try:
            with book._transaction() as connection:
                _check_unused(connection, path)
                for statement in filter(str.strip, _TABLES.split(";")):
                    connection.execute(statement)
                members = {name: getattr(begun, name) for name in type(begun).__dataclass_fields__}
                connection.execute("INSERT INTO terms VALUES (?, ?)", (_BEGUN, json.dumps(members)))
                book._put_limits(limits)
                numbered = ((wave, each) for wave, devices in enumerate(waves, 1) for each in devices)
                rows = ((at, wave, each, DeviceState.PLANNED) for at, (wave, each) in enumerate(numbered))
                connection.executemany("INSERT INTO device VALUES (?, ?, ?, ?, NULL, NULL, NULL, NULL)", rows)
                connection.execute(f"PRAGMA user_version={_VERSION}")
        except sqlite3.Error as error:
            book.close()
            raise ConfigurationError([_unusable(path, error)], "rollout") from None
        except BaseException:
            book.close()
            raise
        return book

    @classmethod
    def open(cls, path: Path) -> Self:
        """The file of a rollout that was begun.

        Raises:
            ConfigurationError: there is none, another process works on it, or it is none of ours.
        """
        if not path.is_file():
            fix = "compare --name and --folder; a rollout that was never begun is begun without --resume"
            raise ConfigurationError([f"there is no rollout to resume: {path} does not exist; {fix}"], "rollout")
        book = cls(_connect(path))
        try:
            with book._transaction() as connection:
                version = _version(connection)
        except sqlite3.Error as error:
            book.close()
            raise ConfigurationError([_unusable(path, error)], "rollout") from None
        if version != _VERSION:
            book.close()
            what = "its begin was cut off, so leave --resume out" if version == 0 else f"its version is {version}"
            raise ConfigurationError([f"{path} is no rollout that this program can resume: {what}"], "rollout")
        return book

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back."""
        self._connection.close()

    @property
    def begun(self) -> Begun:
        """What was decided at its begin."""
        return Begun(**self._term(_BEGUN))

    @property
    def limits(self) -> Limits:
        """The limits at which the rollout stops."""
        return Limits(**self._term(_LIMITS))

    def set_limits(self, limits: Limits) -> None:
        """Go on with other limits."""
        with self._transaction():
            self._put_limits(limits)

    def waves(self) -> dict[int, Counts]:
        """How many devices of each wave are in which state."""
        found: dict[int, dict[str, int]] = {}
        rows = self._connection.execute("SELECT wave, state, COUNT(*) FROM device GROUP BY wave, state ORDER BY wave")
        for wave, state, count in rows:
            found.setdefault(wave, {})[state] = count
        return {wave: Counts(**counts) for wave, counts in found.items()}

    def rows(self, wave: int | None = None, *states: DeviceState) -> list[Row]:
        """Devices in the order of sending.

        Args:
            wave: of this one; None for all.
            states: in one of these; all without any.
        """
        wanted = list(states or DeviceState)
        marks = ", ".join("?" for _ in wanted)
        found = self._connection.execute(
            f"SELECT {_COLUMNS} FROM device WHERE (? IS NULL OR wave = ?) AND state IN ({marks}) "  # noqa: S608 - marks alone
            "ORDER BY position",
            (wave, wave, *wanted),
        )
        return [_row(each) for each in found]

    def last_sent_at(self, wave: int) -> float:
        """When the last command of a wave was sent, epoch seconds; 0 when none was."""
        (found,) = self._connection.execute("SELECT MAX(sent_at) FROM device WHERE wave = ?", (wave,)).fetchone()
        return float(found or 0.0)

    def note_sending(self, position: int, now_s: float) -> None:
        """The command is about to be sent. The first such time stays."""
        self._note(position, "state = ?, sending_at = COALESCE(sending_at, ?)", DeviceState.SENDING, now_s)

    def note_unsent(self, position: int) -> None:
        """Note that the service certainly did not take a device's command."""
        self._note(position, "state = ?, sending_at = NULL", DeviceState.PLANNED)

    def note_sent(self, position: int, command_id: str, now_s: float) -> None:
        """The service has taken it, under this id."""
        self._note(position, "state = ?, command_id = ?, sent_at = ?", DeviceState.SENT, command_id, now_s)

    def note_over(self, position: int, state: DeviceState, reason: str | None) -> None:
        """Note how a device's command ended: a state of :data:`~gateway.rollout.plan.OVER`, and why."""
        self._note(position, "state = ?, reason = ?", state, reason)

    def _note(self, position: int, what: str, *values: object) -> None:
        with self._transaction() as connection:
            connection.execute(f"UPDATE device SET {what} WHERE position = ?", (*values, position))  # noqa: S608 - constants

    def _term(self, name: str) -> dict[str, Any]:
        (text,) = self._connection.execute("SELECT value FROM terms WHERE name = ?", (name,)).fetchone()
        found: dict[str, Any] = json.loads(text)
        return found

    def _put_limits(self, limits: Limits) -> None:
        members = {name: getattr(limits, name) for name in type(limits).__dataclass_fields__}
        self._connection.execute("INSERT OR REPLACE INTO terms VALUES (?, ?)", (_LIMITS, json.dumps(members)))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN EXCLUSIVE")
        try:
            yield self._connection
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


def _connect(path: Path) -> sqlite3.Connection:
    """A connection that keeps the file locked from its first use until it is closed, or its process ends."""
    try:
        connection = sqlite3.connect(path, timeout=0.0, isolation_level=None)
        for pragma in ("trusted_schema=OFF", "locking_mode=EXCLUSIVE", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}")
    except sqlite3.Error as error:
        raise ConfigurationError([_unusable(path, error)], "rollout") from None
    return connection


def _check_unused(connection: sqlite3.Connection, path: Path) -> None:
    # One whose begin was cut off has no version, and is begun anew.
    if _version(connection) != 0:
        fix = "--resume goes on with it; give another --name to begin a new one"
        raise ConfigurationError([f"the rollout {path.stem} was begun already ({path}): {fix}"], "rollout")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _unusable(path: Path, error: sqlite3.Error) -> str:
    if "locked" in str(error):
        return f"another process works on this rollout ({path}): wait for it, or end it"
    return f"{path} cannot be used: {error}; run it as the gateway's user, or as root, or restore the file"


def _row(values: Iterable[Any]) -> Row:
    position, wave, device_id, state, *rest = values
    return Row(position, wave, device_id, DeviceState(state), *rest)
