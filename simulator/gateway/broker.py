"""A broker on this machine for a demo or a trial: mosquitto where it is installed, else amqtt.

Both listen on loopback and take everybody: on one machine of one's own there is nobody to keep out. A broker for
devices elsewhere is set up with ``device-gateway broker-config``.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simulator.children import ChildProcess, NotStarted, program_path
from simulator.listening import check_port

PORT_OPTION: Final = "--mqtt-port"
_AMQTT: Final = (
    "amqtt, since mosquitto is not installed: MQTT 3.1.1 only, one gateway only, nothing kept over a restart, and made "
    "for trying out"
)
_HOST: Final = "127.0.0.1"
_READY_S: Final = 20.0
_PORT_FILE: Final = "port"
_PORTS_TRIED: Final = 5
_TAKEN: Final = "address already in use"
_RUNS: Final = (" running", "Listener 'default' bind")
"""What mosquitto and amqtt say once they listen; who listens on the port may be somebody else."""
# As the gateway's own configuration for mosquitto has them: a fleet sends more at once than its defaults let wait.
_LIMITS: Final = (
    "max_queued_messages 20000",
    "max_queued_bytes 67108864",
    "max_inflight_messages 1000",
    "set_tcp_nodelay true",
)


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that runs.

    Attributes:
        port: on 127.0.0.1.
        name: what it is, in a few words, with its limits.
        speaks_v5: it knows MQTT 5.
    """

    port: int
    name: str
    speaks_v5: bool
    child: ChildProcess

    def look(self) -> None:
        """Raise :class:`~simulator.children.ChildFailed` when it has ended."""
        self.child.look()


@contextmanager
def running_broker(folder: Path, log: Path, port: int | None = None) -> Iterator[Broker]:
    """The best broker that there is, for the length of the block.

    Args:
        folder: of its configuration.
        log: where its log goes.
        port: this one and no other; 0 takes any free one, None the one that it had before in this folder when that
            is free, else any.

    Raises:
        ConfigurationError: the port is taken.
        NotStarted: it could not be started.
    """
    if port:
        check_port(_HOST, port, PORT_OPTION)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        broker = _started(folder, log, port)
    except NotStarted:
        if port:
            check_port(_HOST, port, PORT_OPTION)  # taken between the look and the broker's start
        raise
    try:
        (folder / _PORT_FILE).write_text(f"{broker.port}\n")
        yield broker
    finally:
        broker.child.end()


def _started(folder: Path, log: Path, wanted: int | None) -> Broker:
    """One whose port may be any is tried again when somebody else took it meanwhile."""
    if wanted:
        return _start(folder, log, wanted)
    before = _port_before(folder) if wanted is None else 0
    for left in reversed(range(_PORTS_TRIED)):
        try:
            return _start(folder, log, before or _free_port())
        except NotStarted as error:
            before = 0
            if not left or _TAKEN not in str(error).lower():
                raise
    raise AssertionError("the last try returns or raises")


def _start(folder: Path, log: Path, port: int) -> Broker:
    mosquitto = find_mosquitto()
    program = mosquitto or str(program_path("amqtt"))
    configuration = folder / "broker.conf"
    configuration.write_text(_for_mosquitto(port) if mosquitto else json.dumps(_for_amqtt(port)))
    log_begins = log.stat().st_size if log.exists() else 0
    child = ChildProcess("mosquitto" if mosquitto else "amqtt", log)

    def runs() -> bool:
        with log.open("rb") as file:
            file.seek(log_begins)
            text = file.read().decode(errors="replace")
        if _TAKEN in text.lower():
            raise NotStarted(f"{child.name}: Address already in use: port {port}")
        return any(words in text for words in _RUNS)

    child.start([program, "-c", str(configuration)])
    try:
        child.wait_until(runs, "it listened", _READY_S)
    except BaseException:
        child.end()
        raise
    return Broker(port, "mosquitto" if mosquitto else _AMQTT, mosquitto is not None, child)


def _for_mosquitto(port: int) -> str:
    lines = [f"listener {port} {_HOST}", "allow_anonymous true", *_LIMITS]
    if os.geteuid() == 0:
        lines.append("user root")  # it would give root up for a user that may not read this folder
    return "\n".join(lines) + "\n"


def _for_amqtt(port: int) -> dict[str, Any]:
    return {
        "listeners": {"default": {"type": "tcp", "bind": f"{_HOST}:{port}"}},
        "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
    }


def find_mosquitto() -> str | None:
    """The program; Debian keeps it where an ordinary user's PATH does not look."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def _port_before(folder: Path) -> int:
    """The port of the last time, 0 when there was none or somebody else has it now."""
    try:
        port = int((folder / _PORT_FILE).read_text())
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((_HOST, port))
    except (OSError, ValueError, OverflowError):
        return 0
    return port


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
