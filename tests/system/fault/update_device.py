"""A device that updates itself, without a machine: the real launcher, installer, guard and agent as processes.

In place of systemd a thread of the test starts them as the units say: ``ExecStartPre``, restarts, the path unit, READY
and the watchdog. Every file is in a folder of the test.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from tests.support.releases import Maker, write_package
from tests.system.agent_bench import AgentBench
from tools.build_deb import PACKAGES, launcher

AGENT, GUARD, WATCH, INSTALLER = "agent", "start", "watch", "serve"
_AGENT_PACKAGE = next(each for each in PACKAGES if each.name == "device-agent")
_AGAIN_S = 0.1
_STOP_S = 10.0
_WATCHDOG_S = 2.0
_PATIENCE_S = 20.0
"""A silent agent is killed after so long: ten times what it was told, since the machine may be slow."""

_MORE = """\
  handlers: {{update_agent: {{settings: {{root: '{root}', answer_timeout_s: 30}}}}}}
executables: {{append: {{argv: [/bin/true]}}}}
outbox: {{send_every_s: 0.05}}
sensors:
- {{name: witness, type: program, interval_s: 0.5, settings: {{argv: [/bin/echo, '{{"level": 1}}']}}}}
"""

_SYSTEMCTL = """#!/bin/sh
case "$*" in
*show*) cat "{folder}/shown" ;;
*restart*) touch "{folder}/restart" ;;
*) touch "{folder}/trial" ;;
esac
"""


@dataclass(slots=True)
class Device:
    """The device.

    Args:
        folder: everything of it.
        maker: of its releases.
        bench: its configuration, and whoever sends it commands.
        base_url: of the service.
        limits: of the trial.
        sensors: lines of the configuration, beside the witness.
    """

    folder: Path
    maker: Maker
    bench: AgentBench
    base_url: str
    limits: dict[str, float] = field(default_factory=lambda: {"probation_s": 1, "deadline_s": 100, "max_starts": 3})
    sensors: str = ""
    ready: threading.Event = field(default_factory=threading.Event)
    alive_s: float = 0.0
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _ending: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def state(self) -> dict[str, Any]:
        path = self.root / "var/lib/device-agent-releases/state.json"
        return json.loads(path.read_text()) if path.exists() else {}

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def __enter__(self) -> Self:
        self._make()
        for work in (
            self._hear,
            self._keep_agent,
            lambda: self._keep(WATCH, self.folder / "trial"),
            lambda: self._keep(INSTALLER, self.root / "run/device-agent/update"),
        ):
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        with self._lock:
            for process in self._processes.values():
                if process.poll() is None:
                    process.kill()
        for thread in self._threads:
            thread.join(30)

    # --- what a package would put there -------------------------------------------------------------------------------

    def _make(self) -> None:
        root = self.root
        for name in ("etc/device-agent/release-keys", "usr/bin", "usr/libexec", "run", "var/lib"):
            (root / name).mkdir(parents=True, mode=0o755)
        for name in ("run/device-agent", "var/lib/device-agent"):
            (root / name).mkdir(mode=0o700)
        (root / "var/lib/device-agent-releases").mkdir(mode=0o755)
        write_package(root / "usr/lib/device-agent", self.maker.program("1.0.0"), "1.0.0")
        (root / "etc/device-agent/release-keys/maker.pub").write_bytes(self.maker.public_pem)
        self.bench.write_config(self.base_url, more=_MORE.format(root=root) + self.sensors)
        start = "from agent.cli import main\n\nsys.exit(main())"
        # Everything here is one user's: the agent's part counts as the agent's user, also where root runs the tests.
        program = launcher(_AGENT_PACKAGE, "device-agent", start, str(root))
        assert "os.geteuid() != 0" in program
        (root / "usr/bin/device-agent").write_text(program.replace("os.geteuid() != 0", "True"))
        base = launcher(_AGENT_PACKAGE, "x", "@START@", str(root)).replace(_AGENT_PACKAGE.release, "/none")
        program = base.replace("@START@", _AGENT_PACKAGE.launchers["usr/libexec/device-agent-update"])
        (root / "usr/libexec/device-agent-update").write_text(program)
        (root / "usr/bin/systemctl").write_text(_SYSTEMCTL.format(folder=self.folder))
        (root / "usr/bin/systemctl").chmod(0o755)

    def _command(self, kind: str) -> list[str]:
        root = self.root
        if kind == AGENT:
            return [str(root / "usr/bin/device-agent"), "run", "--config", str(self.bench.config)]
        return [str(root / "usr/libexec/device-agent-update"), "--root", str(root), kind]

    # --- in place of systemd ------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        """Take what the agent tells the service manager."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
            heard.bind(str(self.folder / "n"))
            heard.settimeout(0.2)
            while not self._ending.is_set():
                with contextlib.suppress(TimeoutError):
                    said = heard.recv(4096)
                    if b"READY=1" in said or b"WATCHDOG=1" in said:
                        self.alive_s = time.monotonic()
                    if b"READY=1" in said:
                        self.ready.set()

    def _show(self, process_id: int) -> None:
        """Write what ``systemctl show`` prints."""
        state = "active" if process_id and self.ready.is_set() else "activating"
        alive = f"WatchdogTimestampMonotonic={int(self.alive_s * 1e6)}"
        (self.folder / "shown.new").write_text(f"ActiveState={state}\nMainPID={process_id}\n{alive}\n")
        (self.folder / "shown.new").replace(self.folder / "shown")

    def _start(self, kind: str) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._ending.is_set():
                return None
            limits = {f"DEVICE_AGENT_UPDATE_{name.upper()}": str(value) for name, value in self.limits.items()}
            environ = {**limits, "PATH": os.environ["PATH"], "RUNTIME_DIRECTORY": str(self.root / "run/device-agent")}
            if kind == AGENT:
                environ |= {"NOTIFY_SOCKET": str(self.folder / "n"), "WATCHDOG_USEC": str(int(_WATCHDOG_S * 1e6))}
            with (self.folder / "log").open("ab") as log:
                process = self._processes[kind] = subprocess.Popen(
                    [sys.executable, "-I", *self._command(kind)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environ,
                )
            return process

    def _keep_agent(self) -> None:
        restart = self.folder / "restart"
        while not self._ending.wait(_AGAIN_S):
            self.ready.clear()
            restart.unlink(missing_ok=True)
            self._show(0)
            if self.state:  # Wants=, and its condition
                (self.folder / "trial").touch()
            guard = self._start(GUARD)
            process = self._start(AGENT) if guard is not None and guard.wait() is not None else None
            if process is None:
                return
            stop_s = 0.0
            while process.poll() is None:
                self._show(process.pid)
                if restart.exists() and not stop_s:
                    stop_s = time.monotonic() + _STOP_S
                    process.terminate()
                hangs = self.ready.is_set() and time.monotonic() > self.alive_s + _PATIENCE_S
                if hangs or (stop_s and time.monotonic() > stop_s):
                    process.kill()
                time.sleep(0.02)

    def _keep(self, kind: str, request: Path) -> None:
        """Run a unit when it is asked for by a file, and again when it fails."""
        while not self._ending.wait(0.05):
            if request.exists():
                request.unlink(missing_ok=True)
                while (process := self._start(kind)) is not None and process.wait():
                    self._ending.wait(_AGAIN_S)


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The files of a folder over HTTP; its address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
