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

# Rows in any order, since the triggers that keep references whole are off. Numbers begin anew; the revision stays.
_EMPTY = """
    SET session_replication_role = replica;
    DO $$ DECLARE name text; BEGIN
        FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version' LOOP
            EXECUTE format('DELETE FROM public.%I', name);
        END LOOP;
        FOR name IN SELECT sequencename FROM pg_sequences WHERE schemaname = 'public' AND last_value IS NOT NULL LOOP
            EXECUTE format('ALTER SEQUENCE public.%I RESTART', name);
        END LOOP;
    END $$
"""
# Every table, index, sequence, column, constraint and function, and the revision: what no test of rows changes.
_LOOKS = """
    SELECT md5(string_agg(what, '|' ORDER BY what COLLATE "C")) FROM (
        SELECT concat_ws(' ', c.relkind, c.relname, a.attname, a.atttypid, a.attcollation, a.attnotnull) AS what
            FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
            WHERE c.relnamespace = 'public'::regnamespace
        UNION ALL SELECT concat_ws(' ', conname, conrelid::regclass, contype) FROM pg_constraint
            WHERE connamespace = 'public'::regnamespace
        UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace
        UNION ALL SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg_t%'
        UNION ALL SELECT version_num FROM public.alembic_version
    ) AS found
"""
_USES = 40


@dataclass
class Spare:
    """A database of :meth:`Cluster.service_database`.

    Attributes:
        looks: of its tables; empty before a service has made them.
        uses: how often it was emptied; what was deleted still takes room.
    """

    url: str
    looks: str = ""
    uses: int = 0

    def has_tables(self) -> None:
        """A service has opened it: from now on its tables are to stay as they are."""
        if not self.looks:
            with psycopg.connect(self.url, autocommit=True) as connection:
                self.looks = _look(connection)

    def empty(self) -> bool:
        """End whoever is connected and delete all rows; whether it is as good as new then."""
        self.uses += 1
        try:
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
                looks = _look(connection)
                connection.execute(_EMPTY)
        except psycopg.Error:  # a test has stopped the server, or no service got as far as its tables
            return False
        return looks == self.looks and self.uses < _USES


def _look(connection: psycopg.Connection) -> str:
    [looks] = connection.execute(_LOOKS).fetchone() or [""]
    return str(looks)


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
    _spare: list[Spare] = field(default_factory=list)

    def url(self, database: str = "postgres") -> str:
        """The URL of a database of this server."""
        return f"postgresql://tester@127.0.0.1:{self.port}/{database}"

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a new, empty database."""
        name = self._create()
        try:
            yield self.url(name)
        finally:
            self._drop(name)

    @contextlib.contextmanager
    def service_database(self) -> Iterator[Spare]:
        """A database for one service of this release, which makes its tables unless another one has before.

        To make a database and its tables and to drop it all is far more work than to delete the few rows of a test. One
        whose tables are not as the first service made them is not used again.
        """
        spare = self._spare.pop() if self._spare else Spare(self.url(self._create()))
        try:
            yield spare
        finally:
            if spare.empty():
                self._spare.append(spare)
            else:
                self._drop(spare.url.rpartition("/")[2])

    def _create(self) -> str:
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} STRATEGY FILE_COPY TEMPLATE template0")  # type: ignore[call-overload] # the name is ours
        return name

    def _drop(self, name: str) -> None:
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
