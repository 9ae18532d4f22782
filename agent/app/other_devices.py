"""Stores of devices that this installation was before: what they hold is never sent as this device's.

A store belongs to the ``device.device_id`` that it was begun for. When the configuration names another one, the store
is moved to ``other-devices/`` in the state directory and a new one is begun; the id that comes back gets its own again.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.adapters.sqlite_store import FILE_NAME, SqliteStore
from agent.core.outbox import Bounds
from agent.core.values import SendOutcome, StoredReading
from agent.errors import ConfigurationError

if TYPE_CHECKING:
    from agent.ports import Clock

OWNER: Final = "device_id"
"""The setting of a store that says whose it is."""
OTHER_DEVICES: Final = "other-devices"
"""The folder in the state directory that holds the stores of others."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class OtherStore:
    """The store of another device that is kept.

    Attributes:
        readings: that wait.
        results: of commands, that wait.
    """

    device_id: str
    path: Path
    readings: int
    results: int


def swap_stores(state_dir: Path, owner: str, device_id: str) -> Path:
    """Put the store of ``owner`` aside and bring back the one of ``device_id`` if there is one; no store is open.

    Returns:
        Where the store of ``owner`` lies now.

    Raises:
        ConfigurationError: a file cannot be moved; nothing is lost, and the next start goes on.
    """
    try:
        return _exchange(state_dir, owner, device_id)
    except (OSError, sqlite3.Error) as error:
        fault = (
            f"device.device_id was changed from {owner} to {device_id}, and what waits cannot be put aside: {error}; "
            f"mend {state_dir}, or take the former id again"
        )
        raise ConfigurationError([fault], "state") from None


def _exchange(state_dir: Path, owner: str, device_id: str) -> Path:
    path = state_dir / FILE_NAME
    aside = _folder_of(state_dir, owner)
    aside.parent.mkdir(mode=0o700, exist_ok=True)
    aside.mkdir(mode=0o700, exist_ok=True)
    if path.exists():
        with closing(sqlite3.connect(path)) as connection:
            # The log goes into the file, which is then whole by itself: it alone is moved.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            connection.execute("PRAGMA journal_mode=DELETE").fetchall()
        path.replace(aside / FILE_NAME)
    own = _folder_of(state_dir, device_id) / FILE_NAME
    if own.exists():
        own.replace(path)
    return aside


def find_others(state_dir: Path) -> list[OtherStore]:
    """The stores that are kept aside."""
    return [
        store
        for path in sorted((state_dir / OTHER_DEVICES).glob(f"*/{FILE_NAME}"))
        if (store := _look(path)) is not None
    ]


def release(state_dir: Path, other: OtherStore, clock: Clock, bounds: Bounds) -> int:
    """Make the other device's readings this one's; how many. The agent must not run.

    They keep their times. After a power cut in the middle, up to 500 of them may be there twice. Its commands and their
    results stay with the other device's store.

    Raises:
        StorageError: a store cannot be used, or is full; what was moved so far stays moved.
    """
    moved = 0
    with (
        closing(SqliteStore(other.path, clock=clock, bounds=bounds, trusts_wall=False)) as source,
        closing(SqliteStore(state_dir / FILE_NAME, clock=clock, bounds=bounds, trusts_wall=False)) as target,
    ):
        for boot_id, time in source.boots.known().items():
            target.boots.learn(boot_id, time)
        while batch := _next_batch(source):
            for stored in batch:
                target.outbox.put(stored.reading)
            source.outbox.settle(SendOutcome(tuple(stored.key for stored in batch), {}))
            moved += len(batch)
    return moved


def _next_batch(source: SqliteStore) -> list[StoredReading]:
    with source.looking():
        return source.outbox.next_batch(_BATCH)


def drop(other: OtherStore) -> None:
    """Delete the other device's store.

    Raises:
        OSError: a file cannot be deleted.
    """
    for path in other.path.parent.iterdir():
        path.unlink()
    other.path.parent.rmdir()


def choose(state_dir: Path, device_id: str) -> OtherStore:
    """The kept store of this device.

    Raises:
        ConfigurationError: there is none.
    """
    for store in find_others(state_dir):
        if store.device_id == device_id:
            return store
    where = state_dir / OTHER_DEVICES
    fault = f"nothing of {device_id!r} is kept aside in {where}: device-agent other-devices list shows what is"
    raise ConfigurationError([fault], "state")


def describe(others: list[OtherStore]) -> str:
    """In a sentence what is kept aside of whom; empty when nothing waits."""
    waiting = [store for store in others if store.readings or store.results]
    if not waiting:
        return ""
    of_whom = ", ".join(f"{each.device_id[:80]} ({each.readings} readings, {each.results} results)" for each in waiting)
    return (
        f"kept aside, since device.device_id was changed: {of_whom}; device-agent other-devices releases or drops them"
    )


def _look(path: Path) -> OtherStore | None:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            (owner,) = connection.execute("SELECT value FROM setting WHERE name = ?", (OWNER,)).fetchone() or ("",)
            (readings,) = connection.execute("SELECT count(body) FROM reading").fetchone()
            (results,) = connection.execute("SELECT count(*) FROM command WHERE state = 'finished'").fetchone()
    except sqlite3.Error:
        return None
    return OtherStore(owner or path.parent.name, path, readings, results)


def _folder_of(state_dir: Path, device_id: str) -> Path:
    name = device_id
    if _PLAIN.fullmatch(name) is None:
        name = f"id-{hashlib.sha256(device_id.encode()).hexdigest()[:32]}"
    return state_dir / OTHER_DEVICES / name
