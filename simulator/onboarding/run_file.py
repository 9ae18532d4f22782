"""What a run makes on a service, in one SQLite file: a campaign resumes by it, and a cleanup takes it all back.

A device that is about to be made is on the disk before its request leaves, so none is left that the file does not name.
Products are known by their names, which begin with :attr:`RunFile.mark`.
"""

from __future__ import annotations

import sqlite3
import threading
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from agent.errors import ConfigurationError

MARK: Final = "onboard:"
"""What the names of all devices and products begin with that a run makes."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS run (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS device (
    number INTEGER PRIMARY KEY, user_id TEXT NOT NULL, product_id TEXT NOT NULL, device_identifier TEXT NOT NULL,
    text TEXT NOT NULL DEFAULT '', outcome TEXT NOT NULL, device_id TEXT NOT NULL DEFAULT '',
    detail TEXT NOT NULL DEFAULT '', late_s REAL, took_s REAL,
    UNIQUE (user_id, product_id, device_identifier)
);
PRAGMA user_version = 1;
"""


class Outcome(StrEnum):
    """What became of a device."""

    WAITING = "waiting"
    """Nothing was sent for it yet, or nothing that makes it."""
    BEGUN = "begun"
    """Its registration left, and no clear answer came yet."""
    REGISTERED = "registered"
    REMOVED = "removed"
    FOUND = "registered before"
    """By our user, before this run began."""
    TAKEN = "another user's"
    CONTRADICTED = "contradicted"
    """An answer said another label, user or id than was sent."""
    REFUSED = "refused"
    GONE = "taken back"
    """By a cleanup."""


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device of a run: whose it is, what it is, and what became of it."""

    user_id: str
    product_id: str
    device_identifier: str
    text: str = ""
    outcome: Outcome = Outcome.WAITING
    device_id: str = ""
    detail: str = ""
    late_s: float | None = None
    took_s: float | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What names it in the file."""
        return self.user_id, self.product_id, self.device_identifier


_COLUMNS: Final = ", ".join(DeviceRow.__dataclass_fields__)
_KEY: Final = "user_id = ? AND product_id = ? AND device_identifier = ?"


class RunFile:
    """The file of a run; thread-safe. One program at a time works with it.

    Args:
        path: the file, made when missing; None keeps everything in memory.
        about: what the run is about; of a file that is there it must be the same.

    Raises:
        ConfigurationError: it cannot be used, is of another run, or another program works with it.
    """

    def __init__(self, path: Path | None, about: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        name = ":memory:" if path is None else str(path)
        try:
            self._db = sqlite3.connect(name, timeout=1, isolation_level=None, check_same_thread=False)
            self._db.executescript("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL;")
            self._db.executescript(_SCHEMA)
            found = dict(self._db.execute("SELECT key, value FROM run"))
            for key, value in about.items():
                if key in found and found[key] != value:
                    self._db.close()
                    fault = f"{path} is of a run with {key} {found[key]!r}, not {value!r}: give another --run"
                    raise ConfigurationError([fault], "--run")
            new = {"run": uuid.uuid4().hex[:12], **about}
            self._db.executemany("INSERT OR IGNORE INTO run VALUES (?, ?)", new.items())
            self.about: dict[str, str] = {**new, **found}
        except sqlite3.Error as problem:
            fault = f"{name} cannot be used: {problem}; give another --run, or wait for who works with it"
            raise ConfigurationError([fault], "--run") from None

    @property
    def mark(self) -> str:
        """What the names of all begin with that this run makes."""
        return f"{MARK}{self.about['run']}:"

    def add(self, rows: Iterable[DeviceRow]) -> None:
        """Add devices; those that are there stay as they are."""
        marks = ", ".join("?" * len(DeviceRow.__dataclass_fields__))
        values = [tuple(getattr(row, name) for name in DeviceRow.__dataclass_fields__) for row in rows]
        with self._lock:
            self._db.execute("BEGIN")
            self._db.executemany(f"INSERT OR IGNORE INTO device ({_COLUMNS}) VALUES ({marks})", values)  # noqa: S608
            self._db.execute("COMMIT")

    def note(self, row: DeviceRow, *, only_if: Outcome | None = None, **changed: Any) -> None:
        """Store members of a device, with ``only_if`` of one with that outcome; it is on the disk on return."""
        names = ", ".join(f"{name} = ?" for name in changed)
        condition = "" if only_if is None else f" AND outcome = '{only_if}'"
        with self._lock:
            command = f"UPDATE device SET {names} WHERE {_KEY}{condition}"  # noqa: S608 - names are our own
            self._db.execute(command, (*changed.values(), *row.key))

    def begin(self, row: DeviceRow) -> bool:
        """Before a registration leaves: the device is added and marked; false when it was registered before."""
        self.add([row])
        with self._lock:
            [outcome] = self._db.execute(f"SELECT outcome FROM device WHERE {_KEY}", row.key).fetchone()  # noqa: S608
        if outcome in {Outcome.REGISTERED, Outcome.FOUND}:
            return False
        self.note(row, outcome=Outcome.BEGUN)
        return True

    def devices(self) -> list[DeviceRow]:
        """All devices, in the order in which they were added."""
        with self._lock:
            rows = self._db.execute(f"SELECT {_COLUMNS} FROM device ORDER BY number").fetchall()  # noqa: S608
        names = DeviceRow.__dataclass_fields__
        made = (dict(zip(names, row, strict=True)) for row in rows)
        return [DeviceRow(**{**row, "outcome": Outcome(row["outcome"])}) for row in made]

    def close(self) -> None:
        """Give the file back."""
        self._db.close()
