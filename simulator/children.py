"""The demo's child processes: started in sessions of their own, logged into files, and ended on every path."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from agent.errors import AgentError, TransportError
from simulator.die_with_parent import with_parent
from simulator.interrupts import without_interrupts

_POLL_S: Final = 0.02
_TAIL_LINES: Final = 5
KEPT_VARIABLES: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "PYTHONWARNINGS", "VIRTUAL_ENV")
"""Of this process's environment every child gets these; keys are not among them."""


class ChildFailed(AgentError):
    """A child process ended by itself; the text shows its log."""


class NotStarted(ChildFailed, TransportError):
    """A child process could not be started, or did not get ready; for who needs it, that is a target out of reach."""


def program_path(name: str) -> Path:
    """Where one of this distribution's own programs is installed.

    Raises:
        NotStarted: it is neither beside this Python nor on the PATH.
    """
    beside = Path(sys.executable).with_name(name)
    if beside.is_file():
        return beside
    found = shutil.which(name)
    if found is None:
        raise NotStarted(f"the program {name} is not installed beside {sys.executable}: pip install device-agent")
    return Path(found)


class ChildProcess:
    """A child process that ends with this one.

    Args:
        name: what messages call it.
        log: where its standard output and error go, appended.
        output: where its standard output goes instead, if a caller reads it; begun anew.
    """

    def __init__(self, name: str, log: Path, output: Path | None = None) -> None:
        self.name = name
        self._log = log
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self.running and self._process is not None else None

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs or before it began."""
        return None if self._process is None else self._process.poll()

    def start(self, program: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start it. Ctrl-C in the terminal does not reach it: whoever started it ends it, in order.

        Args:
            program: the path and its arguments; no shell looks at them.
            environment: beside the few variables that every program gets.

        Raises:
            NotStarted: it could not be started.
        """
        inherited = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        with contextlib.ExitStack() as files:
            log = files.enter_context(self._log.open("ab"))
            output = files.enter_context(self._output.open("wb")) if self._output else log
            try:
                self._process = subprocess.Popen(
                    with_parent(program),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=log,
                    env={**inherited, "PYTHONUNBUFFERED": "1", **(environment or {})},
                    start_new_session=True,
                )
            except OSError as error:
                raise NotStarted(f"{self.name} could not be started: {error}") from None

    def wait_until(self, ready: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait until ``ready`` says so.

        Args:
            ready: asked every few milliseconds.
            what: what is waited for, for the message.
            timeout_s: how long.

        Raises:
            NotStarted: it ended, or was not ready in time; the message ends with the last lines of its log.
        """
        deadline_s = time.monotonic() + timeout_s
        while not ready():
            if not self.running:
                raise NotStarted(f"{self.name} ended with {self.exit_code} before {what}{self._last_words()}")
            if time.monotonic() > deadline_s:
                raise NotStarted(f"{self.name}: {what} did not happen within {timeout_s:g} s{self._last_words()}")
            time.sleep(_POLL_S)  # being ready is seen in its log, which nothing announces

    def look(self) -> None:
        """Raise when it has ended.

        Raises:
            ChildFailed: with its exit code and the last lines of its log.
        """
        if not self.running:
            raise ChildFailed(f"{self.name} ended unexpectedly with {self.exit_code}{self._last_words()}")

    def terminate(self) -> None:
        """SIGTERM, and no wait; harmless when it has ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def kill(self) -> None:
        """SIGKILL: as if the power went for this process. Returns when it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def kill_all(self) -> None:
        """SIGKILL for its whole session, unless it has ended. Returns when it is gone itself."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def end(self, grace_s: float = 8.0) -> int | None:
        """SIGTERM, and SIGKILL for its whole session after ``grace_s``; its exit code. Harmless when it has ended."""
        process = self._process
        if process is None:
            return None
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self.kill_all()
        return process.wait()

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = self._log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
            if lines:
                return f"; its log {self._log} ends with:\n" + "\n".join(f"    {line}" for line in lines)
        return ""


class Children:
    """Every child of one demo; leaving the block ends them, the last one first."""

    def __init__(self) -> None:
        self._all: list[ChildProcess] = []

    def add(self, child: ChildProcess) -> ChildProcess:
        """Have it ended with the others."""
        self._all.append(child)
        return child

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with without_interrupts():
            for child in reversed(self._all):
                child.end()
