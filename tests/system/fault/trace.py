"""What strace wrote about one process tree, as operations on one directory and lines of the files beside it.

``strace -f -y -xx -ttt -T``: strings and paths in hex, the path of each descriptor, when a call began, and how long it
took.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.system.fault.disk import Delete, Make, Operation, Rename, Resize, Sync, SyncFolder, Write

CALLS: Final = (
    "openat,open,creat,write,writev,pwrite64,pwritev,pwritev2,ftruncate,truncate,fallocate,fsync,fdatasync,"
    "sync_file_range,rename,renameat,renameat2,unlink,unlinkat,link,linkat"
)
_STRING_MAX_BYTES: Final = 1 << 20
# Calls whose meaning the reader does not know: a recording that has one is refused rather than misread.
_UNKNOWN: Final = frozenset({"writev", "pwritev", "pwritev2", "truncate", "sync_file_range", "link"})
_LINE: Final = re.compile(r"^(\d+) +(\d+\.\d+) (.*)$")
_CALL: Final = re.compile(r"^(\w+)\((.*)\) += (-?\d+)(?:<([^>]*)>)?.* <(\d+\.\d+)>$", re.DOTALL)
_UNFINISHED: Final = " <unfinished ...>"
_RESUMED: Final = re.compile(r"^<\.\.\. (\w+) resumed>(.*)$")
_HEX: Final = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_DESCRIPTOR: Final = re.compile(r"^(\d+)<([^>]*)>")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened, and when.

    Attributes:
        at_s: epoch seconds: a write when it began, a sync when it had returned.
        what: an operation on the directory, or a line of a file beside it: its path and the object in it.
    """

    at_s: float
    what: Operation | tuple[str, dict[str, Any]]


def strace(program: str, output: Path, argv: Sequence[str], env: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start ``argv`` under strace; when it ends, so does strace."""
    traced = [program, "-f", "--seccomp-bpf", "-y", "-xx", f"-s{_STRING_MAX_BYTES}", "-ttt", "-T", f"-etrace={CALLS}"]
    with log.open("ab") as words:
        return subprocess.Popen(
            [*traced, "-o", str(output), "--", *argv],
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            env=env,
            start_new_session=True,
        )


@dataclass(frozen=True, slots=True)
class _Call:
    """One system call: its arguments as strace prints them, what it returned, and the path of that."""

    name: str
    arguments: str
    result: int
    result_path: str
    began_s: float
    ended_s: float


@dataclass(slots=True)
class _Reader:
    folder: str
    beside: frozenset[str]
    names: set[str] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)

    def read(self, call: _Call) -> list[Step]:
        """The steps of one call that succeeded."""
        if call.name in {"openat", "open", "creat"}:
            return [Step(call.began_s, what) for what in self._opened(call)]
        if call.name.startswith("rename"):
            return [Step(call.ended_s, what) for what in self._renamed(*map(self._inside, _texts(call.arguments)))]
        if call.name.startswith("unlink"):
            name = self._inside(_texts(call.arguments)[0])
            if name is None or name not in self.names:
                return []
            self.names.discard(name)
            return [Step(call.ended_s, Delete(name))]
        return list(self._on_descriptor(call))

    def _on_descriptor(self, call: _Call) -> Iterator[Step]:
        found = _DESCRIPTOR.match(call.arguments)
        if found is None:
            return
        path = _text(found.group(2))
        if path in self.beside and call.name == "write":
            data = _bytes(call.arguments)
            yield from (Step(call.began_s, (path, json.loads(line))) for line in data.splitlines())
        elif path == self.folder and call.name in {"fsync", "fdatasync"}:
            yield Step(call.ended_s, SyncFolder())
        elif (name := self._inside(path)) is not None:
            if call.name in _UNKNOWN:
                raise ValueError(f"the recorded program called {call.name}, which the model of the disk does not know")
            yield self._in_file(call, name, int(found.group(1)))

    def _in_file(self, call: _Call, name: str, descriptor: int) -> Step:
        if call.name in {"fsync", "fdatasync"}:
            return Step(call.ended_s, Sync(name))
        if call.name == "ftruncate":
            self.sizes[name] = int(call.arguments.rsplit(",", 1)[1])
            return Step(call.began_s, Resize(name, self.sizes[name]))
        if call.name == "fallocate":
            mode, offset, size = (int(each) for each in call.arguments.rsplit(",", 3)[1:])
            if mode:
                raise ValueError(
                    f"the recorded program called fallocate with mode {mode}, which the model does not know"
                )
            self.sizes[name] = max(self.sizes.get(name, 0), offset + size)
            return Step(call.began_s, Resize(name, self.sizes[name]))
        data = _bytes(call.arguments)[: call.result]
        offset = self._offset(call.name, call.arguments, descriptor, len(data))
        self.sizes[name] = max(self.sizes.get(name, 0), offset + len(data))
        return Step(call.began_s, Write(name, offset, data))

    def _offset(self, call: str, arguments: str, descriptor: int, size: int) -> int:
        if call == "pwrite64":
            return int(arguments.rsplit(",", 1)[1])
        offset = self.offsets.get(descriptor, 0)
        self.offsets[descriptor] = offset + size
        return offset

    def _opened(self, call: _Call) -> Iterator[Operation]:
        name = self._inside(_text(call.result_path))
        if name is None:
            return
        self.offsets[call.result] = self.sizes.get(name, 0) if "O_APPEND" in call.arguments else 0
        if "O_CREAT" in call.arguments and name not in self.names:
            self.names.add(name)
            self.sizes[name] = 0
            yield Make(name)
        elif "O_TRUNC" in call.arguments:
            self.sizes[name] = 0
            yield Resize(name, 0)

    def _renamed(self, old: str | None, new: str | None) -> Iterator[Operation]:
        if old is None or new is None or old not in self.names:
            return
        self.names.discard(old)
        self.names.add(new)
        self.sizes[new] = self.sizes.pop(old, 0)
        yield Rename(old, new)

    def _inside(self, path: str) -> str | None:
        folder, _, name = path.removesuffix(" (deleted)").rpartition("/")
        return name if folder == self.folder else None


def read_traces(traces: Sequence[Path], folder: Path, beside: Sequence[Path]) -> list[Step]:
    """What processes did one after the other, in the order of time.

    Args:
        traces: of each process, in their order.
        folder: whose files are followed; it was empty before the first.
        beside: files of JSON lines whose lines are wanted.

    Raises:
        ValueError: a call that the model does not know.
    """
    reader = _Reader(str(folder), frozenset(map(str, beside)))
    steps = [step for trace in traces for step in _steps(trace, reader)]
    return sorted(steps, key=lambda step: step.at_s)


def _steps(trace: Path, reader: _Reader) -> Iterator[Step]:
    waiting: dict[str, tuple[float, str]] = {}
    for line in trace.read_text().splitlines():
        parts = _LINE.match(line)
        if parts is None:
            continue
        thread, at, text = parts.group(1), float(parts.group(2)), parts.group(3)
        began_s = at
        if text.endswith(_UNFINISHED):
            waiting[thread] = (at, text.removesuffix(_UNFINISHED))
            continue
        resumed = _RESUMED.match(text)
        if resumed is not None:
            if thread not in waiting:
                continue
            began_s, begun = waiting.pop(thread)
            text = begun + resumed.group(2)
        found = _CALL.match(text)
        # What failed changed nothing.
        if found is not None and int(found.group(3)) >= 0:
            ended_s = at if resumed is not None else at + float(found.group(5))
            name, arguments, result, path = found.group(1, 2, 3, 4)
            yield from reader.read(_Call(name, arguments, int(result), path or "", began_s, ended_s))


def _texts(arguments: str) -> list[str]:
    return [_text(found) for found in _HEX.findall(arguments)]


def _text(hexadecimal: str) -> str:
    return bytes.fromhex(hexadecimal.replace("\\x", "")).decode()


def _bytes(arguments: str) -> bytes:
    found = _HEX.search(arguments, _DESCRIPTOR.match(arguments).end())  # type: ignore[union-attr]
    return bytes.fromhex(found.group(1).replace("\\x", "")) if found else b""
