"""The ledger of serials: which are taken, in one SQLite file, so that two batches never share one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from simulator.labels.errors import LabelError

SERIAL_MAX: Final = 10**18
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS batch (
    number INTEGER PRIMARY KEY, product_id TEXT NOT NULL, template TEXT NOT NULL, first_serial INTEGER NOT NULL,
    count INTEGER NOT NULL, folder TEXT NOT NULL, taken_at TEXT NOT NULL, made_at TEXT
)
"""
_LOCK_TIMEOUT_S: Final = 30


class Ledger:
    """The ledger in a file, which is made when missing. Serials are counted for each product and template.

    Args:
        path: the file; not on a network share without locks.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def take(
        self, *, product_id: str, template: str, count: int, folder: Path, first_serial: int | None = None
    ) -> tuple[int, bool]:
        """Reserve serials: the first one, and whether this folder had them before. They are on the disk by then.

        A batch of the same product, template and count gets its own serials again as long as its folder is unfinished,
        or still holds it.

        Args:
            product_id: the product.
            template: the pattern of identifiers.
            count: how many, at least 1.
            folder: where the batch goes.
            first_serial: exactly from here; None for the next after the highest that was ever taken, at first 1.

        Raises:
            LabelError: the ledger cannot be written or is none, or the serials asked for are taken.
        """
        scope, where = (product_id, template), str(folder.resolve())
        with self._open() as db:
            own = db.execute(
                "SELECT first_serial, made_at FROM batch WHERE product_id = ? AND template = ? AND folder = ? "
                "AND count = ? ORDER BY number DESC",
                (*scope, where, count),
            ).fetchone()
            if own and first_serial in (None, own[0]) and (own[1] is None or (folder / "manifest.json").exists()):
                return int(own[0]), True
            [free] = db.execute(
                "SELECT COALESCE(MAX(first_serial + count), 1) FROM batch WHERE product_id = ? AND template = ?", scope
            ).fetchone()
            first = free if first_serial is None else first_serial
            taken = db.execute(
                "SELECT first_serial, count, folder FROM batch WHERE product_id = ? AND template = ? "
                "AND first_serial < ? AND first_serial + count > ?",
                (*scope, first + count, first),
            ).fetchone()
            if taken:
                raise LabelError(
                    f"{self._path}: serials {taken[0]} to {taken[0] + taken[1] - 1} are taken ({taken[2]}): leave out "
                    f"--first-serial, or give {free} or more"
                )
            if first + count > SERIAL_MAX:
                raise LabelError(f"{self._path}: no serial below 10^18 is left; begin another template")
            db.execute(
                "INSERT INTO batch (product_id, template, first_serial, count, folder, taken_at) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (*scope, first, count, where, _now()),
            )
            return int(first), False

    def finish(self, *, product_id: str, template: str, first_serial: int) -> None:
        """Note that the batch which begins with this serial is made."""
        with self._open() as db:
            db.execute(
                "UPDATE batch SET made_at = COALESCE(made_at, ?) WHERE product_id = ? AND template = ? "
                "AND first_serial = ?",
                (_now(), product_id, template, first_serial),
            )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The ledger, locked for this process; committed at the end, unless the block raises."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._path, timeout=_LOCK_TIMEOUT_S, isolation_level=None)) as db:
                db.execute("PRAGMA synchronous = FULL")
                db.execute("BEGIN IMMEDIATE")
                db.execute(_SCHEMA)
                yield db
                db.execute("COMMIT")
        except (sqlite3.Error, OSError) as problem:
            raise LabelError(
                f"cannot use the ledger {self._path}: {problem}; give another --ledger, or restore it from a backup"
            ) from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
