"""A broker on this machine for a demo or a trial: mosquitto where it is installed, else amqtt in this process.

Both listen on loopback and take everybody: on one machine of one's own there is nobody to keep out. A broker for
devices elsewhere is set up with ``device-gateway broker-config``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from simulator.children import ChildFailed, ChildProcess
from simulator.listening import check_port
from simulator.watched import describe, make_thread

_log = logging.getLogger(__name__)

AMQTT_LIMITS: Final = (
    "amqtt in this process, since mosquitto is not installed: MQTT 3.1.1 only, one gateway only, nothing kept over a "
    "restart, and made for trying out"
)
PORT_OPTION: Final = "--mqtt-port"
_HOST: Final = "127.0.0.1"
_READY_S: Final = 20.0
_PORT_FILE: Final = "port"
_PORTS_TRIED: Final = 5
_TAKEN: Final = "address already in use"
_RUNNING: Final = re.compile(rb"mosquitto version \S+ running")
# As the gateway's own configuration for mosquitto has them: a fleet sends more at once than its defaults let wait.
_LIMITS: Final = (
    "max_queued_messages 20000",
    "max_queued_bytes 67108864",
    "max_inflight_messages 100",
    "set_tcp_nodelay true",
)


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that runs.

    Attributes:
        port: on 127.0.0.1.
        name: what it is, in a few words, with its limits.
        speaks_v5: it knows MQTT 5.
        look: raises :class:`~simulator.children.ChildFailed` when it has ended.
    """

    port: int
    name: str
    speaks_v5: bool
    look: Callable[[], None] = lambda: None


@contextmanager
def running_broker(folder: Path, log: Path, port: int | None = None) -> Iterator[Broker]:
    """The best broker that there is, for the length of the block.

    Args:
        folder: of its configuration.
        log: where mosquitto's log goes.
        port: this one and no other; 0 takes any free one, None the one that it had before in this folder when that
            is free, else any.

    Raises:
        ConfigurationError: the port is taken.
        ChildFailed: it could not be started.
    """
    with ExitStack() as ended:
        if port:
            check_port(_HOST, port, PORT_OPTION)
        try:
            broker = _started(folder, log, ended, port)
        except ChildFailed:
            if port:
                check_port(_HOST, port, PORT_OPTION)  # taken between the look and the broker's start
            raise
        yield broker


def _started(folder: Path, log: Path, ended: ExitStack, wanted: int | None) -> Broker:
    """A broker that ``ended`` ends; one whose port may be any is tried again when somebody else took it meanwhile."""
    program = find_mosquitto()
    folder.mkdir(parents=True, exist_ok=True)
    first = _port_before(folder) if wanted is None else wanted
    for left in reversed(range(1 if wanted else _PORTS_TRIED)):
        port, first = first or _free_port(), 0
        try:
            if program is None:
                broker = Broker(port, AMQTT_LIMITS, speaks_v5=False, look=ended.enter_context(_amqtt(port)))
            else:
                look = ended.enter_context(_mosquitto(program, port, folder, log))
                broker = Broker(port, "mosquitto", speaks_v5=True, look=look)
        except ChildFailed as error:
            if not left or _TAKEN not in str(error).lower():
                raise
        else:
            (folder / _PORT_FILE).write_text(f"{port}\n")
            return broker
    raise AssertionError("the last try returns or raises")


@contextmanager
def _mosquitto(program: str, port: int, folder: Path, log: Path) -> Iterator[Callable[[], None]]:
    """Mosquitto as a child process; what raises when it has ended."""
    configuration = folder / "mosquitto.conf"
    lines = [f"listener {port} {_HOST}", "allow_anonymous true", *_LIMITS]
    if os.geteuid() == 0:
        lines.append("user root")  # it would give root up for a user that may not read this folder
    configuration.write_text("\n".join(lines) + "\n")
    log_begins = log.stat().st_size if log.exists() else 0
    child = ChildProcess("mosquitto", log)
    child.start([program, "-c", str(configuration)])
    try:
        # Who listens there may be somebody else: its own word counts, too.
        child.wait_until(lambda: _runs(log, log_begins) and _listens(port), "it listened", _READY_S)
        yield child.look
    finally:
        child.end()


def find_mosquitto() -> str | None:
    """The program; Debian keeps it where an ordinary user's PATH does not look."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


@contextmanager
def _amqtt(port: int) -> Iterator[Callable[[], None]]:
    """Amqtt on an event loop of its own, in a thread; what raises when that has ended."""
    ready, stop = threading.Event(), threading.Event()
    trouble: list[BaseException] = []

    def note(_name: str, error: BaseException) -> None:
        trouble.append(error)
        ready.set()

    def look() -> None:
        if trouble:
            raise ChildFailed(f"the broker amqtt ended unexpectedly: {describe(trouble[0])}")

    thread = make_thread(lambda: _run_amqtt(port, ready, stop), "broker", note)
    thread.start()
    try:
        if not ready.wait(_READY_S) or trouble:
            raise ChildFailed(f"the broker amqtt did not start: {trouble[0] if trouble else 'no answer'}")
        yield look
    finally:
        stop.set()
        thread.join(_READY_S)


def _run_amqtt(port: int, ready: threading.Event, stop: threading.Event) -> None:
    from amqtt.broker import Broker as Amqtt  # half a second: only where it is needed

    for name in ("amqtt", "transitions"):
        logging.getLogger(name).setLevel(logging.ERROR)

    async def serve() -> None:
        # A client that hangs up at once is an unhandled exception to amqtt, and a traceback on the screen.
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: _log.debug("amqtt: %s", context))
        broker = Amqtt(
            {
                "listeners": {"default": {"type": "tcp", "bind": f"{_HOST}:{port}"}},
                "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
            }
        )
        try:
            await broker.start()
        except Exception as error:
            raise ChildFailed(str(error)) from error  # reported by the thread that waits
        ready.set()
        try:
            await asyncio.to_thread(stop.wait)
        finally:
            stop.set()  # or the loop would wait for this thread of its pool before it ends by an error
        await broker.shutdown()

    asyncio.run(serve())


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


def _runs(log: Path, begins: int) -> bool:
    """Whether mosquitto has said since then that it runs: it listens by then, and did not before."""
    with log.open("rb") as file:
        file.seek(begins)
        return _RUNNING.search(file.read()) is not None


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection((_HOST, port), 1.0):
        return True
    return False
