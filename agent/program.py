"""Runs another program so that it cannot hurt the agent.

Never through a shell, with one deadline and one limit of output: what a program writes beyond the limit is read and
thrown away, so that it neither blocks nor fills the agent. It runs in a session of its own; when it ends, times out or
is stopped, its whole process group is killed. Only a child that opens a session of its own (``setsid``) outlives that,
and systemd's control group ends it with the service.

Source: POSIX.1-2017, process groups and ``waitid``; ``setsid(2)``, ``memfd_create(2)``.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from agent.errors import AgentError

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The ``PATH`` of every program that the agent runs, unless its settings have another one."""
OUTPUT_BYTES: Final = 64 * 1024
MAX_OUTPUT_BYTES: Final = 128 * 1024
"""The limit of the limit: with its quoting, a result must fit into a request body of 256 KiB."""
GRACE_S: Final = 2.0
"""From SIGTERM to SIGKILL."""

_DIAGNOSTICS_BYTES: Final = 8 * 1024
_LAST_LINE_MAX: Final = 300
_HEAD_BYTES: Final = 256
_CHUNK_BYTES: Final = 64 * 1024
_PIPES_HOLD_BYTES: Final = 2 * 1024 * 1024
_SLICE_S: Final = 0.05
_LINGER_S: Final = 0.25
_UNKILLABLE_S: Final = 2.0
_CONTROLS: Final = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n\r"}

Argument = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")]
"""One argument of a program."""


class ProgramSettings(BaseModel):
    """A program as the configuration names it: one of the device's own, in any language."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    argv: tuple[Argument, ...] = Field(min_length=1, description="The program and its arguments; no shell sees them.")
    timeout_s: float = Field(default=60.0, gt=0, le=86400, description="After this its process group is ended, s.")
    output_bytes: int = Field(
        default=OUTPUT_BYTES, ge=1, le=MAX_OUTPUT_BYTES, description="How much of standard output is kept."
    )
    environment: dict[str, str] = Field(default_factory=dict, description="Added to its environment.")
    directory: Path | None = Field(default=None, description="Its working directory.")


class ProgramNotStarted(AgentError):
    """The program could not be started at all; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """The result of one run.

    Attributes:
        exit_code: its own; negative is the signal that ended it; None when even SIGKILL did not end it in time.
        output: the first bytes of standard output.
        truncated: it wrote more than that.
        diagnostics: the last bytes of standard error; never a reason to fail.
        duration_s: from start to end.
        ended_for: ``timeout`` or ``stopped`` when it was ended; empty when it ended by itself.
    """

    exit_code: int | None
    output: bytes
    truncated: bool
    diagnostics: bytes
    duration_s: float
    ended_for: str = ""

    def exited_with(self, code: int) -> bool:
        """Whether it ended by itself with this exit code; a negative one is a signal's number."""
        return not self.ended_for and self.exit_code == code

    def failure(self) -> tuple[str, str] | None:
        """A code and a sentence when it did not end by itself with exit code 0; None when it did."""
        if self.exited_with(0):
            return None
        last = last_line(self.diagnostics)
        tail = f"; stderr ended with: {last}" if last else ""
        if self.ended_for == "timeout":
            return "timeout", f"the program was ended by its timeout after {self.duration_s:.3g} s{tail}"
        if self.ended_for:
            return "stopped", f"the program was ended because it had to stop{tail}"
        return "program_failed", f"the program failed, {_describe_exit(self.exit_code)}{tail}"


def _describe_exit(exit_code: int | None) -> str:
    if exit_code is None:
        return "could not be ended, not even by SIGKILL"
    if exit_code < 0:
        return f"ended by signal {-exit_code} ({signal.strsignal(-exit_code)})"
    return f"exit code {exit_code}"


def program_fault(
    argv: Sequence[str], environment: Mapping[str, str] | None = None, directory: Path | None = None
) -> str | None:
    """Why this program could not be started now, as a sentence; None when nothing speaks against it."""
    if directory is not None and not directory.is_dir():
        return f"working directory {directory} does not exist: create it or correct the configuration"
    program, search = argv[0], (environment or {}).get("PATH", DEFAULT_PATH)
    found = shutil.which(Path(directory or "", program) if "/" in program else program, path=search)
    if found is None:
        where = "there" if "/" in program else f"in {search}"
        return f"program {program} is not {where}, or not executable for this user: install it or correct the path"
    try:
        with open(found, "rb") as file:
            first, _, _ = file.read(_HEAD_BYTES).partition(b"\n")
    except OSError:
        return None  # whoever may only execute it can still start it
    # execve(2): ENOENT for the interpreter of a script.
    interpreter = os.fsdecode(first[2:].lstrip(b" \t").replace(b"\t", b" ").partition(b" ")[0])
    if first.startswith(b"#!") and shutil.which(interpreter) is None:
        fix = f"install it, or take line ends of Windows away: sed -i 's/\\r$//' {found}"
        return f"script {found} needs {interpreter!r}, which is not there: {fix}"
    return None


def run_program(
    argv: Sequence[str],
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    input_bytes: bytes = b"",
    stopping: threading.Event | None = None,
    directory: Path | None = None,
    output_bytes: int = OUTPUT_BYTES,
    grace_s: float = GRACE_S,
    alive: Callable[[], None] = lambda: None,
) -> ProgramRun:
    """Run a program to its end and return what it said.

    Args:
        argv: the program and its arguments.
        timeout_s: after this its process group gets SIGTERM, and SIGKILL ``grace_s`` later.
        environment: all of its environment beside ``PATH``; nothing of the agent's own is added.
        input_bytes: its standard input, complete before the program starts: also a program whose agent is killed at
            any moment reads all of it.
        stopping: when set, the program ends as at a timeout.
        directory: its working directory; None keeps the agent's.
        output_bytes: how much of standard output is kept.
        grace_s: from SIGTERM to SIGKILL.
        alive: called whenever it has written something, to either output.

    Raises:
        ProgramNotStarted: it is missing, not executable, or the system refused.
    """
    begun_s, kill_s, ended_for = time.monotonic(), math.inf, ""
    process = _start(argv, environment or {}, directory, input_bytes)
    with contextlib.closing(_Output(process, output_bytes, alive)) as output:
        try:
            while not _has_exited(process) and time.monotonic() < kill_s:
                is_stopping = stopping is not None and stopping.is_set()
                if not ended_for and (is_stopping or time.monotonic() >= begun_s + timeout_s):
                    ended_for = "stopped" if is_stopping else "timeout"
                    kill_s = time.monotonic() + grace_s
                    _kill_group(process, signal.SIGTERM)
                output.read(min(_SLICE_S, timeout_s, max(0.0, kill_s - time.monotonic())))
            # What it left behind in its group may still hold the pipes: a moment for the last words.
            linger_s = min(time.monotonic() + _LINGER_S, kill_s)
            while output.is_open and time.monotonic() < linger_s:
                output.read(_SLICE_S)
        finally:
            _kill_group(process, signal.SIGKILL)
            exit_code = _reap(process)
        for _ in range(0, _PIPES_HOLD_BYTES, _CHUNK_BYTES):
            if not output.read(0.0):
                break
        return ProgramRun(
            exit_code,
            bytes(output.kept),
            output.truncated,
            bytes(output.diagnostics),
            time.monotonic() - begun_s,
            ended_for,
        )


def _start(
    argv: Sequence[str], environment: Mapping[str, str], directory: Path | None, whole_input: bytes
) -> subprocess.Popen[bytes]:
    try:
        with _input_file(whole_input) as stdin:
            return subprocess.Popen(
                list(argv),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=directory,
                env={"PATH": DEFAULT_PATH, **environment},
                start_new_session=True,
                bufsize=0,
            )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        fault = program_fault(argv, environment, directory)
        raise ProgramNotStarted(fault or f"program {argv[0]} could not be started: {reason}") from error


def _input_file(content: bytes) -> IO[bytes]:
    """A file without a name that holds everything before the program starts.

    A pipe is written after the start: when the agent is killed between the two, the program would read an empty or a
    cut input and act on it.
    """
    if not content:
        return open(os.devnull, "rb")
    memory = os.fdopen(os.memfd_create("stdin"), "w+b") if hasattr(os, "memfd_create") else None
    file: IO[bytes] = memory or tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(content)
    file.seek(0)
    return file


class _Output:
    """The two outputs of a program: the begin of the one is kept, and the end of the other."""

    def __init__(self, process: subprocess.Popen[bytes], output_bytes: int, alive: Callable[[], None]) -> None:
        self.kept = bytearray()
        self.diagnostics = bytearray()
        self.truncated = False
        self._process = process
        self._output_bytes = output_bytes
        self._alive = alive
        self._selector = selectors.DefaultSelector()
        for pipe in (process.stdout, process.stderr):
            self._selector.register(pipe, selectors.EVENT_READ)  # type: ignore[arg-type]  # Popen makes both

    @property
    def is_open(self) -> bool:
        """Whether somebody may still write to one of them."""
        return bool(self._selector.get_map())

    def read(self, timeout_s: float) -> bool:
        """Take what is there, or comes within this time; whether something was."""
        if not self.is_open:
            time.sleep(timeout_s)  # it closed its outputs and lives on: nothing to wait for but its end
            return False
        ready = self._selector.select(timeout_s)
        for key, _ in ready:
            chunk = os.read(key.fd, _CHUNK_BYTES)
            if not chunk:
                self._selector.unregister(key.fileobj)
                continue
            self._alive()
            if key.fileobj is self._process.stdout:
                room = self._output_bytes - len(self.kept)
                self.kept += chunk[:room]
                self.truncated = self.truncated or len(chunk) > room
            else:
                self.diagnostics += chunk
                del self.diagnostics[:-_DIAGNOSTICS_BYTES]
        return bool(ready)

    def close(self) -> None:
        """Let go of the pipes."""
        self._selector.close()
        for pipe in (self._process.stdout, self._process.stderr):
            pipe.close()  # type: ignore[union-attr]


def _has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has exited, without reaping it: its id stays taken, so that no other group is killed."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # The program is its group's leader (start_new_session), so its id is the group's.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _reap(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(_UNKILLABLE_S)
    except subprocess.TimeoutExpired:  # it hangs in the kernel, such as on a dead network file system
        return None


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
