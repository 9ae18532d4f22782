"""Processes that a fault test starts and kills: forked in milliseconds, or of the installed program."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

_SERVER = Path(__file__).with_name("fork_server.py")
_ROOT = Path(__file__).resolve().parents[3]
_PACKET_BYTES = 65536
_POLL_S = 0.01
_GRACE_S = 10.0


class Victim(Protocol):
    """A process that may be killed."""

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        ...

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        ...

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal; None while it runs."""
        ...

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        ...

    def end(self, grace_s: float = _GRACE_S) -> int | None:
        """SIGTERM, SIGKILL after a grace; its exit code."""
        ...


class ForkedProcess:
    """A child of the fork server."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self._pid = pid
        self._exit_code: int | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        return self._pid if self.running else None

    @property
    def running(self) -> bool:
        return self.exit_code is None

    @property
    def exit_code(self) -> int | None:
        with self._lock:
            if self._exit_code is None:
                self._exit_code = self._server.ask({"do": "poll", "pid": self._pid})["exit_code"]
            return self._exit_code

    def kill(self) -> None:
        if self.running:
            # Nobody reaps it but `exit_code`, so the id is still its own.
            os.kill(self._pid, signal.SIGKILL)
            self._wait(_GRACE_S)

    def end(self, grace_s: float = _GRACE_S) -> int | None:
        if self.running:
            os.kill(self._pid, signal.SIGTERM)
            if not self._wait(grace_s):
                self.kill()
        return self.exit_code

    def _wait(self, timeout_s: float) -> bool:
        until_s = time.monotonic() + timeout_s
        while self.running and time.monotonic() < until_s:
            time.sleep(_POLL_S)
        return not self.running


class ForkServer:
    """The server's other end. Thread-safe. Leaving the block ends it and whatever it started.

    Args:
        plugins: a folder with distributions that every child shall find installed.
        changes: ``module:function`` of what is called once after the imports: planted faults.

    Attributes:
        python_path: where its children look for packages first: the plug-ins, then this source tree.
    """

    def __init__(self, plugins: Path | None = None, changes: Sequence[str] = ()) -> None:
        self.python_path = os.pathsep.join(str(path) for path in (plugins, _ROOT) if path is not None)
        self._changes = list(changes)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(_SERVER), str(theirs.fileno()), str(os.getpid()), *self._changes],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=environment(PYTHONPATH=self.python_path),
            )
        if not self._socket.recv(_PACKET_BYTES):
            self.__exit__(None, None, None)
            raise RuntimeError("the fork server did not start; its words are above")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def start(
        self, argv: Sequence[str], log: Path, *, output: Path | None = None, variables: Mapping[str, str] | None = None
    ) -> ForkedProcess:
        """Fork a child that runs ``argv``, whose first word is the path of one of our programs.

        Args:
            log: where its standard error, and output unless ``output`` is given, are appended.
        """
        request = {
            "do": "start",
            "argv": list(argv),
            "log": str(log),
            "output": str(output) if output else None,
            "environ": environment(PYTHONPATH=self.python_path, **(variables or {})),
        }
        return ForkedProcess(self, self.ask(request)["pid"])

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request, one answer."""
        with self._lock:
            self._socket.send(json.dumps(request).encode())
            answer = self._socket.recv(_PACKET_BYTES)
        if not answer:
            raise RuntimeError("the fork server has ended; its words are above")
        found: dict[str, Any] = json.loads(answer)
        return found


def environment(**variables: str) -> dict[str, str]:
    """The few variables that every process gets, and these."""
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV")
    return {**{name: os.environ[name] for name in kept if name in os.environ}, "PYTHONUNBUFFERED": "1", **variables}


def end_all(victims: Sequence[Victim]) -> None:
    """SIGTERM to all at once, then wait for each."""
    for victim in victims:
        pid = victim.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    for victim in victims:
        victim.end()
