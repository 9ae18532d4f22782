"""A Debian tree booted with its own systemd in a container that shares this machine's network.

Nothing of it outlives the process that started it, however that ends: ``systemd-nspawn`` is the first process of a
process namespace of its own, whose ``unshare`` the kernel kills with the tests' process. A killed ``systemd-nspawn``
alone would leave its container running.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

REBOOT_EXIT_CODE = 133
"""systemd-nspawn's, with --keep-unit: the container wants to be started anew (systemd-nspawn(1), "Exit status")."""

_BOOT = """
set -e
for group in $GROUPS_; do echo $$ > "$group/cgroup.procs"; done
exec unshare --mount --pid --fork --kill-child=KILL --mount-proc sh -e -c '
    mkdir -p /run/systemd/nspawn && mount -t tmpfs tmpfs /run/systemd/nspawn
    mount -t overlay -o "lowerdir=$TREE,upperdir=$UPPER,workdir=$WORK" overlay "$ROOT" ||
        test -e "$ROOT/usr" || cp --archive "$TREE/." "$ROOT"
    exec "$@"
' sh "$@"
"""
"""Mounts, and what systemd-nspawn notes down, are in a namespace of their own: they end with it."""

BOOT_S = 60.0
_COMMAND_S = 60.0
_CGROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup/systemd"))


class Container:
    """One tree, booted; a context manager that ends it.

    Args:
        tree: a root directory, which is not changed: the container writes into an overlay, or where the kernel has
            none, into a copy.
        folder: an empty one for what it writes; it stays over reboots.
    """

    def __init__(self, tree: Path, folder: Path) -> None:
        self._console = folder / "console"
        self._places = {"TREE": tree} | {name: folder / name.lower() for name in ("UPPER", "WORK", "ROOT")}
        self._name = f"agent-{os.getpid()}-{time.monotonic_ns() % 10**9}"
        # A group of its own: two containers in one would meet in its child "payload".
        self._groups = [group / self._name for group in _CGROUPS if (group / "cgroup.procs").exists()]
        self._process: subprocess.Popen[bytes] | None = None
        self._leader = 0

    def __enter__(self) -> Self:
        for name in ("UPPER", "WORK", "ROOT"):
            self._places[name].mkdir()
        for group in self._groups:
            group.mkdir()
        try:
            self.boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for group in self._groups:
            _remove_group(group)

    def boot(self) -> None:
        """Start it and wait until its systemd has come up."""
        command = [
            *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot", "--console=pipe"),
            *(f"--machine={self._name}", f"--directory={self._places['ROOT']}", "--resolv-conf=off", "--timezone=off"),
        ]
        places = {name: str(path) for name, path in self._places.items()}
        with self._console.open("ab") as console:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", "sh", "-c", _BOOT, "sh", *command],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env={"PATH": os.environ["PATH"], "GROUPS_": " ".join(map(str, self._groups)), **places},
            )
        self._leader = self.wait_until(self._find_leader, "its systemd is there", BOOT_S)
        # Degraded is booted, too: a kernel may lack what some unit of Debian's wants.
        booted = {"running", "degraded"}
        self.wait_until(lambda: self.ask("systemctl", "is-system-running") in booted, "it has booted", BOOT_S)

    def wait_for_reboot(self, within_s: float = BOOT_S) -> None:
        """Wait until it goes down for a reboot, and start it again as a machine's firmware would."""
        assert self._process is not None
        code = self._process.wait(within_s)
        assert code == REBOOT_EXIT_CODE, f"the container ended with {code}:\n{self.console()}"
        self.boot()

    def run(self, *command: str, text: str = "", check: bool = True) -> str:
        """Run a program inside, as its root; what it printed, both streams."""
        done = subprocess.run(
            ["nsenter", f"--target={self._leader}", "--all", "--wd=/", "--", *command],
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_COMMAND_S,
            check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
        )
        assert not check or done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}: {done.stdout}"
        return done.stdout.strip()

    def ask(self, *command: str) -> str:
        """Like :meth:`run`, whatever its exit code."""
        return self.run(*command, check=False)

    def as_user(self, user: str, *command: str) -> str:
        """Run a program inside as another user; what it printed, whatever its exit code."""
        return self.ask("runuser", "-u", user, "--", *command)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file inside, owned by root."""
        self.run("mkdir", "-p", os.path.dirname(path))
        self.run("sh", "-c", 'umask 077 && cat > "$1" && chmod "$2" "$1"', "sh", path, f"{mode:o}", text=text)

    def copy_in(self, source: Path, path: str) -> None:
        """Copy a file of this machine to a path inside."""
        with source.open("rb") as file:
            subprocess.run(
                ["nsenter", f"--target={self._leader}", "--all", "--", "/bin/sh", "-c", 'cat > "$1"', "sh", path],
                stdin=file,
                timeout=_COMMAND_S,
                check=True,
            )

    def show(self, unit: str, name: str) -> str:
        """One property of a unit."""
        return self.run("systemctl", "show", "--value", f"--property={name}", unit)

    def log(self, unit: str) -> str:
        """What its journal has of a unit in this boot."""
        return self.run("journalctl", "--no-pager", "--output=cat", f"--unit={unit}")

    def console(self) -> str:
        """What it printed."""
        return self._console.read_text(errors="replace")

    def wait_until(self, look: Callable[[], Any], what: str, within_s: float = 60.0) -> Any:
        """Look again and again until there is something; the journal and the console are told when it does not come."""
        deadline_s = time.monotonic() + within_s
        while not (found := look()):
            assert self._process is not None
            code = self._process.poll()
            assert code is None, f"the container ended with {code} before {what}:\n{self.console()}"
            if time.monotonic() > deadline_s:
                log = self.ask("journalctl", "--no-pager", "--lines=60") if self._leader else ""
                raise AssertionError(f"not within {within_s:g} s: {what}\n{log}\n{self.console()}")
            time.sleep(0.05)
        return found

    def _find_leader(self) -> int:
        assert self._process is not None
        # unshare, systemd-nspawn, and the container's own first process.
        for nspawn in _children(self._process.pid):
            for child in _children(nspawn):
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                        return child
        return 0


def _children(process_id: int) -> Sequence[int]:
    found: list[int] = []
    for children in Path(f"/proc/{process_id}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, children.read_text().split())
    return found


def _remove_group(group: Path) -> None:
    """Remove a control group and those below it, once the kernel has seen that their processes are gone."""
    deadline_s = time.monotonic() + 30.0
    while True:
        try:
            for folder in [*sorted((path.parent for path in group.rglob("cgroup.procs")), reverse=True)]:
                folder.rmdir()
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)
        else:
            return
