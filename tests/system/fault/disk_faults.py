"""A disk that fails under a running agent, and mends: strace makes the agent's own system calls fail for a while.

Only calls on the database and its log are touched (``strace -P``), of a process that runs already (``strace -p``); when
strace lets go the disk is well again.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from agent.store.sqlite import FILE_NAME
from agent.wire.models import CommandRecord
from simulator.children import program_path
from tests.support import programs
from tests.system.fault.processes import ForkedProcess, ForkServer
from tests.system.fault.small_service import SmallService, World
from tests.system.fault.verdict import Books, Seen, look_at, read_effects

RECOVERED_WITHIN_S: Final = 30.0
_WITHIN_S: Final = 60.0
_LOOK_S: Final = 0.05
_FAULTY_S: Final = 4.0
_SAYS_SO: Final = "store="


@dataclass(frozen=True, slots=True)
class DiskFault:
    """What fails, and how.

    Attributes:
        name: for people.
        calls: system calls, as strace names them.
        error: what they answer.
        every: each so many-th call fails; 1 is all of them.
    """

    name: str
    calls: str
    error: str
    every: int = 1


DISK_FAULTS: Final = (
    DiskFault("EIO at every write", "pwrite64", "EIO"),
    DiskFault("EIO at every sync", "fdatasync,fsync", "EIO"),
    DiskFault("EIO at every third write or sync", "pwrite64,fdatasync", "EIO", every=3),
    DiskFault("ENOSPC at every write", "pwrite64,ftruncate", "ENOSPC"),
    DiskFault("EROFS at every write, truncation and opening", "pwrite64,ftruncate,openat,unlink", "EROFS"),
    DiskFault("EIO at every read and write", "pread64,pwrite64,fdatasync", "EIO"),
)


@dataclass(slots=True)
class Recovery:
    """What came of one fault.

    Attributes:
        seconds: from its end until every command had ended and fresh readings arrived; None when the agent was killed
            in the fault.
        faults: what must not have been, one line each.
    """

    fault: DiskFault
    killed: bool
    seconds: float | None = None
    faults: list[str] = field(default_factory=list)


class Patient:
    """An agent, its small service, and a disk that :meth:`go_through` makes fail.

    Args:
        folder: where everything goes; it must not exist.
        server: forks the agent.
        strace: the program's path.
    """

    def __init__(self, folder: Path, server: ForkServer, strace: str) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._server = server
        self._strace = strace
        self._state = folder / "state"
        self._effects = folder / "effects.jsonl"
        self._log = folder / "agent.log"
        self._number = 0
        self._state.mkdir(mode=0o700)

    def go_through(self, fault: DiskFault, *, killed: bool) -> Recovery:
        """Well, ill, well again; ``killed``: by SIGKILL in the middle of it, and started on the mended disk."""
        recovery = Recovery(fault, killed)
        with SmallService() as service:
            _write_config(self._folder / "agent.yaml", self._state, service.base_url, self._effects)
            agent = self._start()
            try:
                self._send(service)
                self._wait(lambda: not service.list_open() and len(service.world.readings) > 2, "a good start")
                # It ends in the middle of the illness.
                self._send(service, seconds=_FAULTY_S / 2)
                self._wait(lambda: f"only_once-{self._number}" in self._effects.read_text(), "the handler to begin")
                healthy = len(self._log.read_text())
                with self._ill(agent, fault):
                    self._be_ill(service, agent, recovery, healthy)
                    if killed:
                        agent.kill()
                began_s = time.monotonic()
                if killed:
                    agent = self._start()
                self._be_well(service, agent, recovery, began_s)
            finally:
                agent.kill()
            recovery.faults += self._judge(service.world)
        return recovery

    def _judge(self, world: World) -> list[str]:
        last = look_at(self._state / FILE_NAME, self._folder / "peek", whole=True)
        seen = Seen()
        seen.add(last)
        books = Books()
        books.add(
            sent={command_id: str(payload["command"]) for command_id, payload in world.payloads.items()},
            records={command_id: _record(world, command_id) for command_id in world.payloads},
            effects=read_effects(self._effects),
            seen=seen,
            waiting=last.readings,
            stored=world.stored(),
        )
        return books.faults

    def _be_ill(self, service: SmallService, agent: ForkedProcess, recovery: Recovery, healthy: int) -> None:
        sent = [self._send(service) for _ in range(3)]
        self._wait(lambda: _SAYS_SO in self._log.read_text()[healthy:], "a word about the failing store")
        until_s = time.monotonic() + _FAULTY_S
        while time.monotonic() < until_s and agent.running:
            time.sleep(_LOOK_S)
        if not agent.running:
            recovery.faults.append(f"the agent ended by itself with {agent.exit_code}: a crash loop")
        if recovery.fault.every == 1:
            done = set(sent) - set(service.world.open_ids())
            recovery.faults += [f"false acknowledgement: {each} ended while nothing could be stored" for each in done]

    def _be_well(self, service: SmallService, agent: ForkedProcess, recovery: Recovery, began_s: float) -> None:
        self._send(service)
        stored = len(service.world.readings)
        while service.list_open() or len(service.world.readings) <= stored:
            took_s = time.monotonic() - began_s
            if not agent.running:
                recovery.faults.append(f"the agent ended by itself with {agent.exit_code}: a crash loop")
                return
            if took_s > _WITHIN_S:
                recovery.faults.append(f"no recovery within {_WITHIN_S:g} s: {service.list_open()}")
                return
            time.sleep(_LOOK_S)
        recovery.seconds = time.monotonic() - began_s
        if recovery.seconds > RECOVERED_WITHIN_S:
            recovery.faults.append(f"the recovery took {recovery.seconds:.1f} s")

    @contextlib.contextmanager
    def _ill(self, agent: ForkedProcess, fault: DiskFault) -> Iterator[None]:
        paths = [f"-P{self._state / FILE_NAME}{ending}" for ending in ("", "-wal", "-journal")]
        when = f":when=1+{fault.every}" if fault.every > 1 else ""
        words = self._folder / "strace.log"
        argv = [
            self._strace,
            "-f",
            *paths,
            f"-etrace={fault.calls}",
            f"-einject={fault.calls}:error={fault.error}{when}",
        ]
        with words.open("wb") as log:
            tracer = subprocess.Popen([*argv, "-o", "/dev/null", "-p", str(agent.pid)], stdout=log, stderr=log)
        try:
            self._wait(lambda: "attached" in words.read_text() or tracer.poll() is not None, "strace")
            if tracer.poll() is not None:
                raise RuntimeError(f"strace could not attach: {words.read_text()}")
            yield
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait(_WITHIN_S)

    def _start(self) -> ForkedProcess:
        argv = [str(program_path("device-agent")), "run", "--config", str(self._folder / "agent.yaml")]
        return self._server.start(argv, self._log, variables={"FAULT_EFFECTS": str(self._effects)})

    def _send(self, service: SmallService, seconds: float = 0.0) -> str:
        self._number += 1
        command_id = f"only_once-{self._number}"
        service.send(command_id, {"command": "only_once", "number": self._number, "seconds": seconds})
        return command_id

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        until_s = time.monotonic() + _WITHIN_S
        while not is_so():
            if time.monotonic() > until_s:
                raise RuntimeError(f"waited in vain for {what}: {self._log.read_text()[-2000:]}")
            time.sleep(_LOOK_S)


def _write_config(path: Path, state: Path, base_url: str, effects: Path) -> None:
    """An agent that reads and polls often; its keys go beside the file."""
    (path.parent / "api_key").write_text("mk_disk\n")
    (path.parent / "secret_key").write_text("msk_disk\n")
    for name in ("api_key", "secret_key"):
        (path.parent / name).chmod(0o600)
    program = [sys.executable, "-I", "-S", str(Path(programs.__file__).with_name("effect.py")), str(effects)]
    configuration = {
        "service": {"base_url": base_url, "timeout_s": 5},
        "device": {"device_id": "d1"},
        "auth": {
            "mode": "key_pair",
            "allow_secret_key_on_device": True,
            "api_key_file": str(path.parent / "api_key"),
            "secret_key_file": str(path.parent / "secret_key"),
        },
        "state_dir": str(state),
        "commands": {"poll": {"fast_s": 0.05, "idle_s": 0.2, "spread_s": 0}, "first_contact": "all"},
        "executables": {"program": {"argv": program, "contract": "once"}},
        "sensors": [{"name": name, "type": "sequence", "interval_s": 0.1} for name in ("a", "b")],
        "outbox": {"send_every_s": 0.05},
        # Being killed is what this agent is for.
        "safe_mode": {"starts": 0},
    }
    path.write_text(yaml.safe_dump(configuration))


def _record(world: World, command_id: str) -> CommandRecord:
    result = world.results.get(command_id, {})
    return CommandRecord(
        id=command_id,
        command_payload=world.payloads[command_id],
        status=world.status_of(command_id),
        error=result.get("error"),
    )
