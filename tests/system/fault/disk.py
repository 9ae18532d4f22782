"""A state directory as a power cut may leave it: what was synced, and any part of what was not.

The model is that of ALICE and CrashMonkey (Pillai et al., OSDI 2014; Mohan et al., OSDI 2018), for one directory:

- ``fsync`` and ``fdatasync`` of a file make its content and size durable; until then each sector of 512 bytes of a
  write is on the disk or not, in any order, and so is a change of the file's size;
- making, renaming and deleting a file are durable once the directory is synced; until then a beginning of them is;
- a sync of one file says nothing about another.

It is harsher than ext4, which writes a new file's name with the file.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

SECTOR_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes into a file."""

    path: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resize:
    """``ftruncate``, or an open that empties."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    """``fsync`` or ``fdatasync`` of a file has returned."""

    path: str


@dataclass(frozen=True, slots=True)
class Make:
    """A file's name appears."""

    path: str


@dataclass(frozen=True, slots=True)
class Rename:
    """A file gets another name, which may replace one."""

    path: str
    to: str


@dataclass(frozen=True, slots=True)
class Delete:
    """A file's name goes."""

    path: str


@dataclass(frozen=True, slots=True)
class SyncFolder:
    """``fsync`` of the directory has returned."""


Operation = Write | Resize | Sync | Make | Rename | Delete | SyncFolder


class Loss(StrEnum):
    """What a power cut takes of what was not synced."""

    ALL = "nothing unsynced is left"
    NONE = "everything is left"
    SECTORS = "random sectors are left"
    TORN = "the last write is torn"
    SIZES = "new sizes are left and their data is not"
    NAMES = "data is left and new names are not"


@dataclass(slots=True, eq=False)
class _File:
    durable: bytes = b""
    pending: list[Write | Resize] = field(default_factory=list)

    def content(self, keep: Callable[[Write], Iterator[Write]], *, resize: bool = True) -> bytes:
        """The durable content with those parts of what is pending that ``keep`` gives."""
        found = bytearray(self.durable)
        for change in self.pending:
            if isinstance(change, Resize):
                if resize:
                    _set_size(found, change.size)
            else:
                for part in keep(change):
                    if len(found) < part.offset + len(part.data):
                        _set_size(found, part.offset + len(part.data))
                    found[part.offset : part.offset + len(part.data)] = part.data
        return bytes(found)


class Disk:
    """One directory; feed it the operations in their order."""

    def __init__(self) -> None:
        self._names: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self._pending_names: list[Make | Rename | Delete] = []
        self._file_of: list[_File] = []

    def do(self, operation: Operation) -> None:
        """The next one."""
        if isinstance(operation, Write | Resize):
            self._names[operation.path].pending.append(operation)
        elif isinstance(operation, Sync):
            if operation.path in self._names:
                file = self._names[operation.path]
                file.durable = file.content(_whole)
                file.pending.clear()
        elif isinstance(operation, SyncFolder):
            self._durable_names = dict(self._names)
            self._pending_names.clear()
            self._file_of.clear()
        else:
            if isinstance(operation, Make):
                self._file_of.append(_File())
                _rename(self._names, operation, self._file_of[-1])
            else:
                self._file_of.append(self._names[operation.path])
                _rename(self._names, operation, self._file_of[-1])
            self._pending_names.append(operation)

    @property
    def unsynced(self) -> int:
        """How many operations a power cut may take."""
        return len(self._pending_names) + sum(len(file.pending) for file in self._names.values())

    def after_power_cut(self, loss: Loss, chance: random.Random) -> dict[str, bytes]:
        """Name -> content."""
        names = dict(self._durable_names)
        kept_names = {
            Loss.ALL: 0,
            Loss.NAMES: 0,
            Loss.SECTORS: chance.randint(0, len(self._pending_names)),
        }.get(loss, len(self._pending_names))
        for operation, file in zip(self._pending_names[:kept_names], self._file_of, strict=False):
            _rename(names, operation, file)
        last = [change for file in names.values() for change in file.pending if isinstance(change, Write)][-1:]
        resize = loss is not Loss.ALL and (loss is not Loss.SECTORS or chance.random() < 1 / 2)
        return {name: file.content(_keeper(loss, last, chance), resize=resize) for name, file in names.items()}


def _keeper(loss: Loss, last: list[Write], chance: random.Random) -> Callable[[Write], Iterator[Write]]:
    share = chance.choice([0.1, 0.5, 0.9])

    def sectors(write: Write) -> Iterator[Write]:
        for part in _sectors(write):
            if chance.random() < share:
                yield part

    def torn(write: Write) -> Iterator[Write]:
        cut = chance.randrange(len(write.data)) if last and write is last[0] else len(write.data)
        yield Write(write.path, write.offset, write.data[:cut])

    def zeros(write: Write) -> Iterator[Write]:
        # Only the size of what grew; what was there keeps its old bytes.
        yield Write(write.path, write.offset + len(write.data), b"")

    keepers = {Loss.ALL: _nothing, Loss.SECTORS: sectors, Loss.TORN: torn, Loss.SIZES: zeros}
    return keepers.get(loss, _whole)


def _nothing(_write: Write) -> Iterator[Write]:
    return iter(())


def _whole(write: Write) -> Iterator[Write]:
    yield write


def _sectors(write: Write) -> Iterator[Write]:
    begin = write.offset
    end = write.offset + len(write.data)
    while begin < end:
        stop = min(end, (begin // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield Write(write.path, begin, write.data[begin - write.offset : stop - write.offset])
        begin = stop


def _set_size(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _rename(names: dict[str, _File], operation: Make | Rename | Delete, file: _File) -> None:
    if isinstance(operation, Rename):
        names.pop(operation.path, None)
        names[operation.to] = file
    elif isinstance(operation, Make):
        names[operation.path] = file
    else:
        names.pop(operation.path, None)


def lay_out(image: dict[str, bytes], folder: Path) -> None:
    """The image as files in a new folder."""
    folder.mkdir(mode=0o700, parents=True)
    for name, content in image.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
