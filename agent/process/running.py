"""Runs another program so that it cannot hurt the agent.

Never through a shell. Bounded in time and in memory: what a program writes beyond the bound is read and thrown away,
so that it neither blocks nor fills the agent. It runs in a session of its own; when it ends, times out or is stopped,
its whole process group goes with it. Only a child that opens a session of its own (``setsid``) outlives that, and
systemd's control group ends it with the service.

Source: POSIX.1-2017, process groups and ``waitid``; ``setsid(2)``.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Self

from agent.errors import AgentError
from agent.process.bounds import DEFAULT_PATH, DIAGNOSTICS_BYTES, GRACE_S, OUTPUT_BYTES
from agent.process.handed_over import input_file

if TYPE_CHECKING:
    import subprocess

_LAST_LINE_MAX: Final = 300
_HEAD_BYTES: Final = 256
_ELF: Final = b"\x7fELF"
_RUNS_TOO: Final = frozenset({(b"\x3e\x00", b"\x03\x00"), (b"\xb7\x00", b"\x28\x00")})
"""Machines whose kernels may run another one's programs, too: x86-64 and i386, 64-bit and 32-bit ARM (elf(5))."""
_CHUNK_BYTES: Final = 64 * 1024
_SLICE_S: Final = 0.05
_LINGER_S: Final = 0.25
_UNKILLABLE_S: Final = 2.0
_CONTROLS: Final = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n\r"}


class ProgramEnd(StrEnum):
    """Why a program ended."""

    EXITED = "exited"
    TIMED_OUT = "timed_out"
    STOPPED = "stopped"


class ProgramNotStarted(AgentError):
    """The program could not be started at all; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """The result of one run.

    Attributes:
        ending: by itself, by the timeout or because it was asked to stop.
        exit_code: its own; negative is the signal that ended it; None when even SIGKILL did not end it in time.
        output: the first bytes of standard output.
        truncated: it wrote more than that.
        diagnostics: the last bytes of standard error; never a reason to fail.
        duration_s: from start to end.
    """

    ending: ProgramEnd
    exit_code: int | None
    output: bytes
    truncated: bool
    diagnostics: bytes
    duration_s: float

    def describe_exit(self) -> str:
        """The end as words: ``exit code 3`` or ``ended by SIGSEGV``."""
        if self.exit_code is None:
            return "could not be ended, not even by SIGKILL"
        if self.exit_code >= 0:
            return f"exit code {self.exit_code}"
        with contextlib.suppress(ValueError):
            return f"ended by {signal.Signals(-self.exit_code).name}"
        return f"ended by signal {-self.exit_code}"


def program_fault(argv: Sequence[str], environment: Mapping[str, str], directory: Path | None = None) -> str | None:
    """Why this program could not be started now, as a sentence; None when it looks good."""
    if directory is not None and not directory.is_dir():
        return f"working directory {directory} does not exist: create it or mend the configuration"
    program, search = argv[0], environment.get("PATH", DEFAULT_PATH)
    if "/" in program:
        path = Path(program) if directory is None else directory / program
        if not path.exists():
            return f"program {path} does not exist: install it or mend the path"
        if not path.is_file():
            return f"program {path} is not a file: mend the path"
        if not os.access(path, os.X_OK):
            return f"program {path} is not executable for this user: chmod +x it"
    else:
        found = shutil.which(program, path=search)
        if found is None:
            return f"program {program!r} was not found in {search}: install it or give its full path"
        path = Path(found)
    return _format_fault(path, search)


def _format_fault(path: Path, search: str) -> str | None:
    """Why the kernel would refuse what is in the file (execve(2): ENOEXEC, or ENOENT for an interpreter)."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return None  # whoever may only execute it can still start it
    if head.startswith(b"#!"):
        return _script_fault(path, head[2:].partition(b"\n")[0], search)
    if head.startswith(_ELF):
        machine, own = head[18:20], _own_machine()
        if own and machine != own and (own, machine) not in _RUNS_TOO:
            number = int.from_bytes(machine, sys.byteorder)
            return f"program {path} is made for another kind of machine (ELF machine {number}): build it for this one"
        return None
    if {each.name for each in Path("/proc/sys/fs/binfmt_misc").glob("*")} - {"register", "status"}:
        return None  # this machine has formats of its own (binfmt_misc)
    return f"program {path} is neither a program of this machine nor a script: begin it with #!/bin/sh or the like"


def _script_fault(path: Path, line: bytes, search: str) -> str | None:
    if line.endswith(b"\r"):
        return (
            f"script {path} has line ends of Windows (CR LF), which no interpreter's name has: sed -i 's/\\r$//' {path}"
        )
    words = os.fsdecode(line).split()
    if not words:
        return f"script {path} names no interpreter: begin it with #!/bin/sh or the like"
    if not (Path(words[0]).is_file() and os.access(words[0], os.X_OK)):
        return (
            f"script {path} needs {words[0]}, which is not there or not executable: install it or mend the first line"
        )
    if Path(words[0]).name == "env" and len(words) == 2 and shutil.which(words[1], path=search) is None:
        return f"script {path} needs {words[1]!r}, which was not found in {search}: install it or mend the first line"
    return None


def _own_machine() -> bytes:
    """The machine field of this very program's ELF header; empty where there is none."""
    try:
        with open(sys.executable, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return b""
    return head[18:20] if head.startswith(_ELF) else b""


def run_program(
    argv: Sequence[str],
    *,
    timeout_s: float,
    environment: Mapping[str, str],
    input_bytes: bytes = b"",
    stopping: threading.Event | None = None,
    directory: Path | None = None,
    output_bytes: int = OUTPUT_BYTES,
    diagnostics_bytes: int = DIAGNOSTICS_BYTES,
    grace_s: float = GRACE_S,
    alive: Callable[[], None] | None = None,
) -> ProgramRun:
    """Run a program to its end and return what it said.

    Args:
        argv: the program and its arguments; no shell looks at them.
        timeout_s: after this its process group gets SIGTERM, and SIGKILL ``grace_s`` later.
        environment: all of its environment; nothing of the agent's own is added.
        input_bytes: its standard input, complete before the program starts: also a program whose agent is killed at
            any moment reads all of it. A program that does not read it is not at fault.
        stopping: when set, the program ends as at a timeout.
        directory: its working directory; None keeps the agent's.
        output_bytes: how much of standard output is kept.
        diagnostics_bytes: how much of the end of standard error is kept.
        grace_s: from SIGTERM to SIGKILL.
        alive: called whenever it has written something, to either output.

    Raises:
        ProgramNotStarted: it is missing, not executable, or the system refused.
    """
    begun_s = time.monotonic()
    process = _start(argv, environment, directory, input_bytes)
    stop = stopping if stopping is not None else threading.Event()
    with _Pipes(
        process,
        output_bytes=output_bytes,
        diagnostics_bytes=diagnostics_bytes,
        alive=alive,
    ) as pipes:
        try:
            ending = _wait(process, pipes, begun_s + timeout_s, stop, grace_s)
        finally:
            _kill_group(process, signal.SIGKILL)
            exit_code = _reap(process)
        pipes.drain()
        return ProgramRun(
            ending,
            exit_code,
            bytes(pipes.output),
            pipes.truncated,
            bytes(pipes.diagnostics),
            time.monotonic() - begun_s,
        )


def _start(
    argv: Sequence[str], environment: Mapping[str, str], directory: Path | None, whole_input: bytes
) -> subprocess.Popen[bytes]:
    """Start it; its standard input is a file with ``whole_input``."""
    try:
        with input_file(whole_input) as stdin:
            return subprocess.Popen(
                list(argv),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=directory,
                env=dict(environment),
                start_new_session=True,
                bufsize=0,
            )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        fault = program_fault(argv, environment, directory) if argv else "no program is named"
        raise ProgramNotStarted(fault or f"program {argv[0]} could not be started: {reason}") from error


def _wait(
    process: subprocess.Popen[bytes], pipes: _Pipes, deadline_s: float, stopping: threading.Event, grace_s: float
) -> ProgramEnd:
    """Pump the pipes until the program is gone, and end it when its time is up."""
    ending = ProgramEnd.EXITED
    kill_at_s: float | None = None
    while not _has_exited(process):
        now_s = time.monotonic()
        if kill_at_s is None and (stopping.is_set() or now_s >= deadline_s):
            ending = ProgramEnd.STOPPED if stopping.is_set() else ProgramEnd.TIMED_OUT
            _kill_group(process, signal.SIGTERM)
            kill_at_s = now_s + grace_s
        if kill_at_s is not None and now_s >= kill_at_s:
            return ending
        limit_s = deadline_s if kill_at_s is None else kill_at_s
        pipes.pump(min(_SLICE_S, max(0.0, limit_s - now_s)))
    # What it left behind in its group may still hold the pipes: a moment for the last words, then the group ends.
    until_s = time.monotonic() + _LINGER_S
    while pipes.reading and time.monotonic() < until_s:
        pipes.pump(_SLICE_S)
    return ending


def _has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has exited, without reaping it: its id stays taken, so that no other group is killed."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _kill_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # The program is its group's leader (start_new_session), so its id is the group's.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _reap(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(_UNKILLABLE_S)
    except subprocess.TimeoutExpired:  # it hangs in the kernel, such as on a dead network file system
        return None


class _Pipes:
    """The pipes of a program, read without ever blocking."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        output_bytes: int,
        diagnostics_bytes: int,
        alive: Callable[[], None] | None,
    ) -> None:
        self.output = bytearray()
        self.diagnostics = bytearray()
        self.truncated = False
        self.reading = 2
        self._output_bytes = output_bytes
        self._diagnostics_bytes = diagnostics_bytes
        self._alive = alive
        self._selector = selectors.DefaultSelector()
        assert process.stdout is not None  # noqa: S101 - Popen makes both
        assert process.stderr is not None  # noqa: S101
        self._pipes: tuple[IO[bytes], ...] = (process.stdout, process.stderr)
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
        self._selector.register(process.stdout, selectors.EVENT_READ, self._read_output)
        self._selector.register(process.stderr, selectors.EVENT_READ, self._read_diagnostics)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.close()

    def pump(self, timeout_s: float) -> None:
        """Move what can be moved, waiting this long for something to do."""
        if not self._selector.get_map():
            time.sleep(timeout_s)  # it closed its output and lives on: nothing to wait for but its end
            return
        for key, _ in self._selector.select(timeout_s):
            move = key.data
            move(key.fileobj)

    def drain(self) -> None:
        """Take what is left in the pipes, without waiting."""
        for _ in range(1 + 2 * 1024 * 1024 // _CHUNK_BYTES):  # more than a pipe holds
            if not self.reading or not self._selector.select(0):
                return
            self.pump(0)

    def _read(self, pipe: IO[bytes]) -> bytes:
        try:
            chunk = os.read(pipe.fileno(), _CHUNK_BYTES)
        except BlockingIOError:
            return b""
        if not chunk:
            self._selector.unregister(pipe)
            self.reading -= 1
        elif self._alive is not None:
            self._alive()
        return chunk

    def _read_output(self, pipe: IO[bytes]) -> None:
        chunk = self._read(pipe)
        room = self._output_bytes - len(self.output)
        self.output += chunk[:room]
        if len(chunk) > room:
            self.truncated = True

    def _read_diagnostics(self, pipe: IO[bytes]) -> None:
        self.diagnostics += self._read(pipe)
        del self.diagnostics[: -self._diagnostics_bytes]


def text_of(raw: bytes, *, max_bytes: int) -> str:
    """A program's bytes as text that every JSON parser takes, at most this long in UTF-8.

    What is not UTF-8, and control characters beside tab and line ends, become U+FFFD: the service refuses NUL.
    """
    text = raw[:max_bytes].decode("utf-8", "replace").translate(_CONTROLS)
    return text.encode()[:max_bytes].decode("utf-8", "ignore")


def last_line(diagnostics: bytes) -> str:
    """The last line that a program wrote to standard error, for a person; empty when there is none."""
    # Three times, since U+FFFD takes three bytes where there was one, and here the end counts.
    lines = text_of(diagnostics, max_bytes=3 * len(diagnostics)).split("\n")
    return next((line.strip()[-_LAST_LINE_MAX:] for line in reversed(lines) if line.strip()), "")
