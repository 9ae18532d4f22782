"""A PostgreSQL of the tests' own: made when it is first needed, gone at the end, a fresh database for whoever asks."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from tests.ports import free_port

_USERS = ("postgres", "nobody")
_START_S = 60


@dataclass
class Cluster:
    """A running server on a loopback port.

    Attributes:
        programs: the folder of its programs.
        as_user: what stands before a command so that it does not run as root, which PostgreSQL refuses.
    """

    folder: Path
    port: int
    programs: Path
    as_user: list[str]
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def url(self, database: str = "postgres") -> str:
        """The URL of a database of this server."""
        return f"postgresql://tester@127.0.0.1:{self.port}/{database}"

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a new, empty database."""
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} STRATEGY FILE_COPY TEMPLATE template0")  # type: ignore[call-overload] # the name is ours
        try:
            yield self.url(name)
        finally:
            with psycopg.connect(self.url(), autocommit=True) as connection:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[call-overload] # the name is ours

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        self._control("start", "-w", "-t", str(_START_S), "-l", str(self.folder / "log"))

    def stop(self, mode: str = "immediate") -> None:
        """Stop it; ``immediate`` is as good as a power cut."""
        self._control("stop", "-w", "-m", mode)

    def _control(self, *arguments: str) -> None:
        command = [*self.as_user, str(self.programs / "pg_ctl"), "-D", str(self.folder / "data"), "-s", *arguments]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            log = self.folder / "log"
            raise RuntimeError(f"{done.stderr}{log.read_text() if log.exists() else ''}")


def find_programs() -> Path | None:
    """The folder of ``initdb`` and ``pg_ctl``; Debian keeps them off the path."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name.split(".")[0]))
    on_path = shutil.which("initdb")
    for folder in [*reversed(places), *([Path(on_path).resolve().parent] if on_path else [])]:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    return None


@contextlib.contextmanager
def cluster(programs: Path, *, durable: bool = False) -> Iterator[Cluster]:
    """A server for the length of the block. Nothing of it outlives the block.

    Args:
        programs: the folder of ``initdb`` and ``pg_ctl``.
        durable: commits reach the disk, as in production; tests, which cut no power, do without.
    """
    # Not pytest's folder: that one is closed to the user who runs the server.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    as_user = _not_root()
    try:
        if as_user:
            shutil.chown(folder, as_user[2])
        made = Cluster(folder, free_port(), programs, as_user)
        options = ["-U", "tester", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"]
        subprocess.run(
            [
                *as_user,
                str(programs / "initdb"),
                "-D",
                str(folder / "data"),
                "--no-sync",
                "--no-instructions",
                *options,
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=folder,
        )
        settings = f"""
            listen_addresses = '127.0.0.1'
            port = {made.port}
            unix_socket_directories = ''
            fsync = {"on" if durable else "off"}
            full_page_writes = {"on" if durable else "off"}
            shared_buffers = 32MB
            max_connections = 60
            dynamic_shared_memory_type = mmap
            autovacuum = off
        """
        with (folder / "data" / "postgresql.conf").open("a") as file:
            file.write(settings)
        made.start()
        try:
            yield made
        finally:
            with contextlib.suppress(RuntimeError):  # a test has stopped it already
                made.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _not_root() -> list[str]:
    if os.geteuid() != 0:
        return []
    known = Path("/etc/passwd").read_text().splitlines()
    user = next(user for user in _USERS if any(line.startswith(f"{user}:") for line in known))
    return ["runuser", "-u", user, "--"]


def wait_until_gone(port: int, timeout_s: float = 60) -> None:
    """Until nobody listens there any more."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            continue
        return
    raise TimeoutError(f"somebody still listens on port {port}")
