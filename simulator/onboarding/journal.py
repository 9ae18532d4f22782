"""What a run has done, line by line, on the disk before anything depends on it: the base of resume and cleanup.

JSON lines, appended and never changed. The first says which run it is. An intent (``registering``, ``creating``) is on
the disk before its request leaves, so that whatever may exist at the service stands here, whenever the run is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from agent.errors import ConfigurationError
from agent.wire.secret import redact
from simulator.file_lock import lock_file
from simulator.whole_files import cannot_write

FORMAT: Final = "device-agent/onboarding-journal/1"
NAME: Final = "journal.jsonl"
CLEANED: Final = "cleaned"
"""The entry that ends a run: all that it had made was taken back."""
Entry = dict[str, Any]


class Journal:
    """Entries in memory and, with a path, in a file that only one process writes at a time. Thread-safe.

    Args:
        path: the file; None keeps them in memory only.
        header: what the run is; a file that is there must be of the same run.

    Raises:
        ConfigurationError: the file is another run's, is in use, is damaged or cannot be written.
    """

    def __init__(self, path: Path | None, header: Entry) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._written = self._synced = 0
        self.header: Entry = {"event": "run", "format": FORMAT, **header}
        self.entries: list[Entry] = []
        try:
            if path is not None:
                self._open(path)
            if not self._written:
                self._append(self.header)
        except ConfigurationError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(self, event: str, **members: object) -> None:
        """Append an entry; on return it survives a power cut.

        Raises:
            ConfigurationError: the disk does not take it.
        """
        entry = {"event": event, **members}
        mine = self._append(entry)
        with self._lock:
            self.entries.append(entry)
        if self._file is None:
            return
        with self._sync_lock:  # whoever waits here finds that the one before has synced for all
            if self._synced < mine:
                with self._lock:
                    goal = self._written
                with self._disk_faults_in_one_line():
                    os.fsync(self._file.fileno())
                self._synced = goal

    def close(self) -> None:
        """Let another process have the file."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # what it still holds has been refused and reported
                self._file.close()

    def _append(self, entry: Entry) -> int:
        line = redact(json.dumps(entry, ensure_ascii=False)).encode() + b"\n"
        with self._lock:
            self._written += 1
            if self._file is not None:
                with self._disk_faults_in_one_line():
                    self._file.write(line)
                    self._file.flush()
            return self._written

    def _open(self, path: Path) -> None:
        with self._disk_faults_in_one_line():
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("ab+")
            try:
                lock_file(file.fileno())
            except BlockingIOError:
                file.close()
                raise ConfigurationError(
                    [f"{path} is in use by another run: wait for it, or end it"], "--out"
                ) from None
            file.seek(0)
            raw = file.read()
            whole = raw[: raw.rfind(b"\n") + 1]  # what a kill tore off was never acted upon
            file.truncate(len(whole))
            self._file = file
        if not whole:
            return
        header, entries = parse_journal(whole, path)
        found = {name: header.get(name) for name in self.header if name != "run"}
        differing = sorted(name for name, value in found.items() if value != self.header[name])
        if differing:
            raise ConfigurationError(
                [f"{path} is another run's ({', '.join(differing)} differ): give another --out, or the same options"],
                "--out",
            )
        self.header, self.entries = header, entries
        self._written = self._synced = 1 + len(entries)

    @contextlib.contextmanager
    def _disk_faults_in_one_line(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            path = self._path or Path(NAME)
            raise ConfigurationError([cannot_write(path, problem, "another --out")], "--out") from None


def parse_journal(raw: bytes, path: Path) -> tuple[Entry, list[Entry]]:
    """Header and entries of a journal's bytes; a last line without its end is left out.

    Raises:
        ConfigurationError: it is no journal; the line is named.
    """
    lines = raw[: raw.rfind(b"\n") + 1].splitlines()
    entries: list[Entry] = []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict) or not isinstance(entry.get("event"), str):
            raise ConfigurationError([f"{path}, line {number} is no entry of a journal: was it edited?"], "journal")
        entries.append(entry)
    if not entries or entries[0].get("format") != FORMAT:
        raise ConfigurationError(
            [f"{path} is no journal of `fleet-simulator onboard`: its first line says so"], "journal"
        )
    return entries[0], entries[1:]


def read_journal(path: Path) -> tuple[Entry, list[Entry]]:
    """Header and entries of a journal, or of the one in a folder.

    Raises:
        ConfigurationError: it cannot be read, or is no journal.
    """
    file = path / NAME if path.is_dir() else path
    try:
        return parse_journal(file.read_bytes(), file)
    except OSError as problem:
        raise ConfigurationError([f"{file} cannot be read: {problem.strerror}"], "journal") from None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a device would be found: one account's user, product and identifier."""

    account: str
    user_id: str
    product_id: str
    device_identifier: str


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What a run made at the service and has not taken back.

    Attributes:
        devices: id -> place.
        in_doubt: registrations without a known outcome: the service has to be asked.
        products: (account, id).
        products_in_doubt: (account, name).
    """

    devices: dict[str, Place]
    in_doubt: tuple[Place, ...]
    products: tuple[tuple[str, str], ...]
    products_in_doubt: tuple[tuple[str, str], ...]

    @property
    def count(self) -> int:
        """How many things there are or may be."""
        return len(self.devices) + len(self.in_doubt) + len(self.products) + len(self.products_in_doubt)


def place_of(entry: Entry) -> Place:
    """The place that an entry is about."""
    return Place(
        *(str(entry.get(name, "")) for name in ("account", "user_id", "product_id", "device_identifier")),
    )


def leftovers(entries: Sequence[Entry]) -> Leftovers:
    """What is left by these entries, in the order in which it was made."""
    devices: dict[str, Place] = {}
    doubtful: dict[Place, None] = {}
    products: dict[tuple[str, str], None] = {}
    doubtful_products: dict[tuple[str, str], None] = {}
    for entry in entries:
        account = str(entry.get("account", ""))
        match entry["event"]:
            case "registering":
                doubtful[place_of(entry)] = None
            case "registered":
                doubtful.pop(place_of(entry), None)
                devices[str(entry["device_id"])] = place_of(entry)
            case "unregistered":
                doubtful.pop(place_of(entry), None)
            case "removed":
                devices.pop(str(entry["device_id"]), None)
            case "creating":
                doubtful_products[account, str(entry["name"])] = None
            case "created":
                doubtful_products.pop((account, str(entry["name"])), None)
                products[account, str(entry["product_id"])] = None
            case "deleted":
                products.pop((account, str(entry["product_id"])), None)
            case "not_created":
                doubtful_products.pop((account, str(entry["name"])), None)
    return Leftovers(devices, tuple(doubtful), tuple(products), tuple(doubtful_products))
