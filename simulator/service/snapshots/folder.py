"""Snapshots by name: the files of one folder."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from simulator.service.errors import Conflict, Invalid, NotFound, Unavailable, invalid, not_found
from simulator.service.snapshots.copies import Header, look, part_of
from simulator.service.storage.temporary import TemporaryFolder

T = TypeVar("T")

SNAPSHOTS_MAX: Final = 100
"""Snapshots in the folder."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_ENDING: Final = ".db"


@dataclass(frozen=True, slots=True)
class Named:
    """A snapshot in the folder.

    Attributes:
        header: None for a file that is none.
        fault: why it cannot be loaded; None for nothing.
    """

    name: str
    path: Path
    size_bytes: int
    header: Header | None = None
    fault: str | None = None


class Snapshots:
    """The folder, which is made with the first snapshot, and the thread that reads and writes what is in it.

    Attributes:
        turn: held by what saves, replaces or deletes everything that is stored.

    Args:
        given: the folder; None takes the service's own one.
        data: where the service keeps its data; None for a temporary folder that ends with the service.
    """

    def __init__(self, given: Path | None, data: Path | None) -> None:
        self._temporary = TemporaryFolder() if given is None and data is None else None
        own = self._temporary.path if self._temporary is not None else data
        self.path = given or (own or Path()) / "snapshots"
        self.turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="service-snapshot")
        if given is None:
            self._clean()

    async def run(self, work: Callable[[], T]) -> T:
        """What takes as long as everything that is stored: one at a time, in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """End what is under way; a temporary folder is removed."""
        self._thread.shutdown()
        if self._temporary is not None:
            self._temporary.close()
            self._temporary = None

    def names(self) -> list[str]:
        """The names of all snapshots, sorted."""
        with contextlib.suppress(FileNotFoundError):
            files = (one for one in self.path.iterdir() if one.suffix == _ENDING and one.is_file())
            return sorted(one.stem for one in files if _NAME.fullmatch(one.stem))
        return []

    def place_for(self, name: str) -> Path:
        """Where a new snapshot of this name goes.

        Raises:
            Invalid: it cannot be a name.
            Conflict: ``snapshot_exists``; ``snapshot_limit_reached``.
            Unavailable: ``snapshot_not_saved``: the folder cannot be made.
        """
        if not _NAME.fullmatch(name):
            raise invalid("name", "must have 1 to 100 letters, digits, dots, hyphens and underscores; no dot at first")
        path = self._path(name)
        if path.exists():
            issue = f"there is a snapshot {name!r} already"
            text = f"name: {issue}: delete it, or take another name."
            raise Conflict("snapshot_exists", text, details=[("name", issue)])
        if len(self.names()) >= SNAPSHOTS_MAX:
            raise Conflict("snapshot_limit_reached", f"There are {SNAPSHOTS_MAX} snapshots: delete one first.")
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise not_saved(self.path, exc) from None
        return path

    def find(self, name: str) -> Path:
        """The file of a snapshot.

        Raises:
            NotFound: ``snapshot_not_found``.
        """
        path = self._path(name)
        if not _NAME.fullmatch(name) or not path.is_file():
            raise _no_snapshot(name)
        return path

    def show(self, name: str) -> Named:
        """A snapshot, as it says itself.

        Raises:
            NotFound: ``snapshot_not_found``.
        """
        path = self.find(name)
        try:
            try:
                return Named(name, path, path.stat().st_size, look(path))
            except Invalid as exc:
                return Named(name, path, path.stat().st_size, fault=exc.message)
        except FileNotFoundError:
            raise _no_snapshot(name) from None

    def delete(self, name: str) -> None:
        """Delete a snapshot.

        Raises:
            NotFound: ``snapshot_not_found``.
        """
        try:
            self.find(name).unlink()
        except FileNotFoundError:
            raise _no_snapshot(name) from None

    def _clean(self) -> None:
        """Delete what a save that was killed has left behind: no other service uses this folder."""
        with contextlib.suppress(OSError):
            for path in self.path.glob(f"{part_of(Path('*' + _ENDING)).name}"):
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self.path / f"{name}{_ENDING}"


def _no_snapshot(name: str) -> NotFound:
    return not_found("snapshot", name, "on this service")


def not_saved(path: Path, error: OSError) -> Unavailable:
    """The error for a snapshot that cannot be written."""
    issue = cannot_be_written(path, error)
    return Unavailable("snapshot_not_saved", f"name: {issue}. Nothing was changed.", details=[("name", issue)])


def cannot_be_written(path: Path, error: OSError) -> str:
    """Which file, and why."""
    return f"{path} cannot be written: {error.strerror or error}"
