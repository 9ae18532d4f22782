"""The serial ledger: which serials are taken, in a file that is only ever appended to.

Each line is a JSON object: ``reserved`` hands out a run of serials of one product and template, ``made`` says that the
batch with them is finished. Whoever appends holds a lock on the file and has the line on the disk before any serial
of it is used, so two batches, two processes or two people with one ledger never overlap. A reservation of a batch that
was interrupted is found again by its folder.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

from simulator.file_lock import lock_file
from simulator.labels.errors import LabelError
from simulator.whole_files import cannot_write

_SERIAL_MAX: Final = 10**18


@dataclass(frozen=True, slots=True)
class Reservation:
    """A run of serials that belongs to one batch.

    Attributes:
        number: counted through the ledger from 1.
        product_id: the product; serials are counted for each product and template.
        template: the pattern of identifiers.
        first_serial: the first one.
        count: how many.
        folder: where the batch goes, an absolute path.
        made: whether the batch is finished.
    """

    number: int
    product_id: str
    template: str
    first_serial: int
    count: int
    folder: str
    made: bool = False

    @property
    def next_serial(self) -> int:
        """The first serial behind it."""
        return self.first_serial + self.count


@dataclass(slots=True)
class _Read:
    """What the file says.

    Attributes:
        reservations: by number.
        torn_bytes: length of a last line that was not written to its end; it was never handed out.
        offset: how far the file was read; nothing before it ever changes.
        line: the number of the last line read.
    """

    reservations: dict[int, Reservation] = field(default_factory=dict)
    torn_bytes: int = 0
    offset: int = 0
    line: int = 0


@dataclass(frozen=True, slots=True)
class TakenSerials:
    """The serial numbers that :meth:`Ledger.take` reserved.

    Attributes:
        reservation: the serials.
        again: whether an interrupted batch got its own reservation back.
        note: what has to be said about the ledger's state; empty when there is nothing.
    """

    reservation: Reservation
    again: bool
    note: str = ""


class Ledger:
    """The ledger in one file, which is made when missing.

    Args:
        path: the file. On a network share its locks must work (NFS 4, SMB; not NFS 2 and 3 without lockd).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = _Read()
        self._inode = 0

    def take(
        self, *, product_id: str, template: str, count: int, folder: Path, first_serial: int | None = None
    ) -> TakenSerials:
        """Reserve serials; when this returns they are on the disk and nobody else's.

        A batch of the same product, template and count whose folder this is gets its own reservation back, so that
        it can be completed or checked; ``folder`` decides that, so it must not be a folder of labels that moved away.

        Args:
            product_id: the product.
            template: the pattern of identifiers.
            count: how many, at least 1.
            folder: where the batch goes.
            first_serial: exactly from here; by default behind the highest that was ever taken, beginning at 1.

        Raises:
            LabelError: the ledger cannot be written or is damaged, or the serials asked for are taken.
        """
        where = str(folder.resolve())
        with self._locked() as file:
            read = self._read(file)
            same_scope = [r for r in read.reservations.values() if (r.product_id, r.template) == (product_id, template)]
            own = next((r for r in reversed(same_scope) if (r.folder, r.count) == (where, count)), None)
            if own and first_serial in (None, own.first_serial) and (not own.made or any(folder.glob("manifest.json"))):
                return TakenSerials(own, again=True, note=self._mend(file, read))
            first = self._first(same_scope, first_serial, count)
            number = max(read.reservations, default=0) + 1
            taken = Reservation(number, product_id, template, first, count, where)
            note = self._mend(file, read)
            self._append(file, {"event": "reserved", **_members(taken), **_owner_note()})
            return TakenSerials(taken, again=False, note=note)

    def made(self, reservation: Reservation) -> None:
        """Note that the batch with these serials is finished."""
        with self._locked() as file:
            read = self._read(file)
            self._mend(file, read)
            if not read.reservations[reservation.number].made:
                self._append(file, {"event": "made", "number": reservation.number, **_owner_note()})

    def reservations(self) -> tuple[Reservation, ...]:
        """Everything that was handed out, in order."""
        with self._locked() as file:
            return tuple(self._read(file).reservations.values())

    def _first(self, same_scope: Iterable[Reservation], wanted: int | None, count: int) -> int:
        taken = list(same_scope)
        if wanted is None:
            first = max((r.next_serial for r in taken), default=1)
        else:
            first = wanted
            for other in taken:
                if first < other.next_serial and other.first_serial < first + count:
                    free = max(r.next_serial for r in taken)
                    raise LabelError(
                        f"{self._path}: serials {other.first_serial} to {other.next_serial - 1} are taken (reservation "
                        f"{other.number}, {other.folder}): leave out --first-serial, or give {free} or more"
                    )
        if first + count > _SERIAL_MAX:
            raise LabelError(f"{self._path}: no serial below 10^18 is left; begin another template")
        return first

    @contextlib.contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666), "r+b") as file:
                lock_file(file.fileno(), wait=True)
                yield file
        except OSError as problem:
            raise LabelError(cannot_write(self._path, problem, "another --ledger")) from None

    def _read(self, file: BinaryIO) -> _Read:
        """What the file says; only what was appended since the last time is read."""
        inode = os.fstat(file.fileno()).st_ino
        if inode != self._inode or os.fstat(file.fileno()).st_size < self._known.offset:
            self._known, self._inode = _Read(), inode
        known = self._known
        known.torn_bytes = 0
        file.seek(known.offset)
        unread = b""  # a line that is no entry: forgiven when the next one says that it was torn
        for line in file:
            if not line.endswith(b"\n"):
                known.torn_bytes = len(line)
                break
            entry = _parsed(line)
            if unread and entry.get("event") != "torn":
                break
            if entry.get("event") == "torn" or _apply(known.reservations, entry):
                known.offset += len(unread) + len(line)
                known.line += 2 if unread else 1
                unread = b""
            else:
                unread = line
        if unread:
            raise LabelError(
                f"{self._path}, line {known.line + 1}: no entry of a serial ledger; nothing was handed out. Restore "
                "the file from a backup, or begin another with --ledger and a --first-serial that is free"
            )
        return known

    def _mend(self, file: BinaryIO, read: _Read) -> str:
        """End a torn last line, with a line behind it that says so; append-only holds even here."""
        if not read.torn_bytes:
            return ""
        file.seek(0, os.SEEK_END)
        self._append(file, {"event": "torn", "bytes": read.torn_bytes}, before=b"\n")
        return (
            f"{self._path} ended in a line of {read.torn_bytes} bytes that was cut short (power cut?); it is marked as "
            "torn, and its serials were never handed out"
        )

    def _append(self, file: BinaryIO, entry: dict[str, Any], before: bytes = b"") -> None:
        new = not before and file.seek(0, os.SEEK_END) == 0
        file.write(before + json.dumps(entry, ensure_ascii=False).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
        if not new:
            return
        directory = os.open(self._path.parent, os.O_RDONLY)  # a new file's name must be on the disk, too
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}


def _apply(reservations: dict[int, Reservation], entry: dict[str, Any]) -> bool:
    """Take an entry in; false when it is none."""
    try:
        number = int(entry["number"])
        if entry["event"] == "made":
            reservations[number] = replace(reservations[number], made=True)
            return True
        if entry["event"] != "reserved":
            return False
        reservations[number] = Reservation(
            number,
            str(entry["product_id"]),
            str(entry["template"]),
            int(entry["first_serial"]),
            int(entry["count"]),
            str(entry["folder"]),
        )
    except (ValueError, KeyError, TypeError):
        return False
    return True


def _members(taken: Reservation) -> dict[str, Any]:
    return {
        "number": taken.number,
        "product_id": taken.product_id,
        "template": taken.template,
        "first_serial": taken.first_serial,
        "count": taken.count,
        "folder": taken.folder,
    }


def _owner_note() -> dict[str, str]:
    """For the person who asks later; nothing reads it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = str(os.getuid())
    return {"at": datetime.now(UTC).isoformat(timespec="seconds"), "by": f"{user}@{socket.gethostname()}"}
