"""A real mosquitto of a test's own on a loopback port: started, killed and started again as the test wants."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho

from tests.support.ports import free_port

START_S = 60.0
END_S = 15.0


def find_mosquitto() -> str | None:
    """The broker's program; Debian keeps it where an ordinary user's PATH does not look."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


@dataclass
class Mosquitto:
    """One broker; its port stays the same over every start.

    Attributes:
        program: mosquitto itself.
        folder: of its files.
        settings: lines of its configuration beside those for the listener.
        keep: sessions and retained messages survive a restart, as far as mosquitto wrote them down.
    """

    program: str
    folder: Path
    settings: Sequence[str] = ("allow_anonymous true",)
    keep: bool = False
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        if self._process is None:
            raise RuntimeError("this broker does not run")
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        path = self.folder / "mosquitto.conf"
        lines = ["set_tcp_nodelay true", f"listener {self.port} 127.0.0.1", *self.settings]
        if os.geteuid() == 0:
            lines.append("user root")
        if self.keep:
            lines += ["persistence true", f"persistence_location {self.folder}/", "autosave_interval 1"]
        path.write_text("\n".join(lines) + "\n")
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([self.program, "-c", path], stdout=log, stderr=log)
        until_s = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
                return
            if self._process.poll() is not None or time.monotonic() > until_s:
                raise RuntimeError(f"mosquitto did not start:\n{self.log()}")
            time.sleep(0.02)

    def kill(self) -> None:
        """As a power cut would."""
        self._end(kill=True)

    def stop(self) -> None:
        """In order."""
        self._end(kill=False)

    def log(self) -> str:
        """What it told."""
        return (self.folder / "log").read_text(errors="replace")

    def client(self, name: str = "tester", *, login: tuple[str, str] | None = None) -> paho.Client:
        """A connected client whose thread runs; the caller ends it with :func:`end_client`."""
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5)
        if login is not None:
            client.username_pw_set(*login)
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        return client

    def _end(self, *, kill: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if not kill:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):  # it may miss a signal that comes while it starts
                process.wait(END_S)
        process.kill()
        process.wait(START_S)


def end_client(client: paho.Client) -> None:
    """Disconnect, and wait for the client's thread."""
    client.disconnect()
    client.loop_stop()


@contextlib.contextmanager
def mosquitto(program: str, folder: Path, settings: Sequence[str] = (), **options: Any) -> Iterator[Mosquitto]:
    """A running broker for the length of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    if not any(line.startswith(("allow_anonymous", "password_file")) for line in settings):
        settings = (*settings, "allow_anonymous true")
    broker = Mosquitto(program, folder, settings, **options)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def write_passwords(folder: Path, users: Mapping[str, str]) -> list[str]:
    """A password file; the lines of the configuration that use it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "passwords"
    path.write_text("".join(f"{user}:{password}\n" for user, password in users.items()))
    path.chmod(0o600)
    program = shutil.which("mosquitto_passwd") or "/usr/bin/mosquitto_passwd"
    subprocess.run([program, "-U", path], check=True, capture_output=True, timeout=120)
    return ["allow_anonymous false", f"password_file {path}"]
