"""A service and an agent as real processes that a test may kill at any moment, and the books kept outside of both."""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml

from agent.errors import ErrorAnswer, ServiceError
from agent.store.sqlite import FILE_NAME
from agent.wire.models import PostSensorData
from agent.wire.secret import KeyPair, Secret
from gateway.client import RegisterDevice, SendCommand
from simulator.children import ChildProcess, Children, program_path
from simulator.wire.client import ServiceClient
from simulator.wire.models import NewProduct
from tests.support import programs
from tests.support.canary import SECRET_KEY
from tests.support.ports import free_port

API_KEY = "mk_fault_0123456789"
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")
_READY_S = 60.0


@dataclass(slots=True)
class Books:
    """What the outside knows for certain, and what it cannot know.

    Attributes:
        sent: ids of commands whose sending was answered with 2xx.
        posted: sequence numbers of readings whose posting was answered with 2xx.
        unsure: sequence numbers of readings whose posting had no answer: stored once or not at all.
    """

    sent: list[str] = field(default_factory=list)
    posted: list[int] = field(default_factory=list)
    unsure: list[int] = field(default_factory=list)


class Rig:
    """The two processes, their files, and a client.

    Args:
        folder: where everything goes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.effects = folder / "effects.jsonl"
        self.witness = folder / "witness.jsonl"
        self._children = Children()
        self.service = self._children.add(ChildProcess("service", folder / "service.log", folder / "service.out"))
        self.agent = self._children.add(ChildProcess("agent", folder / "agent.log"))
        self._port = free_port()
        self.device_id = ""
        self.load_device_id = ""

    def __enter__(self) -> Self:
        write_files(self.folder)
        self._children.__enter__()
        with contextlib.ExitStack() as undo:
            undo.callback(self._children.__exit__, None, None, None)
            self.start_service()
            self._register()
            self._configure()
            undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._children.__exit__(None, None, None)

    def start_service(self) -> None:
        """Start it, on the port that it had before, and wait for its address."""
        self.service.start(service_argv(self.folder, self._port))
        self.service.wait_until(self._has_port, "it printed its address", _READY_S)

    def start_agent(self) -> None:
        """Start it; it is not waited for."""
        self.agent.start([str(program_path("device-agent")), "run", "--config", str(self.folder / "agent.yaml")])

    @property
    def base_url(self) -> str:
        """Where the service is."""
        return f"http://127.0.0.1:{self._port}"

    def client(self) -> ServiceClient:
        """A client of the service; close it."""
        return ServiceClient(self.base_url, KeyPair(API_KEY, Secret(SECRET_KEY)))

    def runs(self) -> Counter[str]:
        """Command id -> how often its program began, by the program's own synced file."""
        return Counter(str(line["command_id"]) for line in _json_lines(self.effects))

    def committed_sequences(self) -> set[int]:
        """The witness's readings that the (dead) agent's outbox holds now: it must never lose one of them."""
        store = self.folder / "state" / FILE_NAME
        if not store.exists():
            return set()
        copy = self.folder / "peek"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for file in store.parent.glob(f"{store.name}*"):
            shutil.copyfile(file, copy / file.name)
        with contextlib.closing(sqlite3.connect(copy / store.name)) as connection:
            rows = connection.execute("SELECT body FROM reading WHERE body IS NOT NULL").fetchall()
        found = (re.search(r'"witness_sequence":\s*(\d+)', _text(body)) for (body,) in rows)
        return {int(match.group(1)) for match in found if match}

    def _has_port(self) -> bool:
        match = _ADDRESS.search((self.folder / "service.out").read_text(errors="replace"))
        if match:
            self._port = int(match.group(1))
        return match is not None

    def _register(self) -> None:
        with self.client() as client:
            self.device_id, self.load_device_id = register(client, ["agent", "load"])

    def _configure(self) -> None:
        python = [sys.executable, "-I", "-S"]
        effect = [*python, str(self.folder / "effect.py"), str(self.effects)]
        witness = [*python, str(self.folder / "witness.py"), str(self.witness)]
        configuration = agent_configuration(self.folder, self.base_url, self.device_id, self.folder / "state") | {
            "commands": {"poll": {"fast_s": 0.2, "idle_s": 1, "spread_s": 0}},
            "executables": {"append": {"argv": effect, "contract": "once"}},
            "sensors": [{"name": "witness", "type": "program", "interval_s": 0.1, "settings": {"argv": witness}}],
        }
        (self.folder / "state").mkdir(mode=0o700)
        (self.folder / "agent.yaml").write_text(yaml.safe_dump(configuration))


def write_files(folder: Path) -> None:
    """The keys of service and agent, and the programs that the agent runs."""
    for name, key in (("secret_key", SECRET_KEY), ("api_key", API_KEY)):
        (folder / name).write_text(key + "\n")
        (folder / name).chmod(0o600)
    for name in ("effect.py", "witness.py"):
        shutil.copyfile(Path(programs.__file__).with_name(name), folder / name)


def service_argv(folder: Path, port: int) -> list[str]:
    """How the service is started."""
    return [
        str(program_path("fleet-simulator")),
        "service",
        f"--port={port}",
        f"--data={folder / 'data'}",
        f"--api-key={API_KEY}",
        f"--secret-key-file={folder / 'secret_key'}",
        "--rate-limit=0",
        "--log-level=warning",
    ]


def register(client: ServiceClient, names: Sequence[str]) -> list[str]:
    """The ids of new devices with these names."""
    product_id = client.create_product(NewProduct(name="fault rig")).product_id
    bodies = [
        RegisterDevice(user_id="user-1", product_id=product_id, device_name=name, device_identifier=name, qr_info={})
        for name in names
    ]
    return [client.register_device(body).device_id for body in bodies]


def agent_configuration(folder: Path, base_url: str, device_id: str, state: Path) -> dict[str, Any]:
    """Of an agent with the keys in this folder, without commands and sensors."""
    return {
        "service": {"base_url": base_url},
        "device": {"device_id": device_id},
        "auth": {
            "mode": "key_pair",
            "allow_secret_key_on_device": True,
            "api_key_file": str(folder / "api_key"),
            "secret_key_file": str(folder / "secret_key"),
        },
        "state_dir": str(state),
        "outbox": {"send_every_s": 0.05},
        # Being killed is what this agent is for.
        "safe_mode": {"starts": 0},
    }


@contextlib.contextmanager
def load(rig: Rig, books: Books) -> Iterator[None]:
    """While it lasts: commands for the agent and readings of another device, each answer written down."""
    stop = threading.Event()
    threads = [
        threading.Thread(target=_send_commands, args=(rig, books, stop), name="load commands"),
        threading.Thread(target=_post_readings, args=(rig, books, stop), name="load readings"),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _send_commands(rig: Rig, books: Books, stop: threading.Event) -> None:
    with rig.client() as client:
        for number in itertools.count():
            command = SendCommand(
                device_id=rig.device_id, command_payload={"command": "append", "seconds": 0, "number": number}
            )
            with contextlib.suppress(ServiceError):
                record = client.send_command(command)
                assert record.id is not None
                books.sent.append(record.id)
            if stop.wait(0.15):
                return


def _post_readings(rig: Rig, books: Books, stop: threading.Event) -> None:
    with rig.client() as client:
        for sequence in itertools.count(1):
            try:
                client.post_sensor_data(
                    PostSensorData(device_id=rig.load_device_id, sensor_data={"sequence": sequence})
                )
            except ErrorAnswer:
                raise
            except ServiceError:
                books.unsure.append(sequence)
            else:
                books.posted.append(sequence)
            if stop.wait(0.005):
                return


def _text(body: object) -> str:
    return body.decode() if isinstance(body, bytes) else str(body)


def _json_lines(path: Path) -> Iterator[dict[str, object]]:
    if path.exists():
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                yield yaml.safe_load(line)
