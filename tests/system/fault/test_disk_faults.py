"""Disks that fail under a running agent, and files with flipped bits."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.core.values import Reading
from agent.errors import StorageError
from agent.runtime.clocks import SystemClock
from agent.store.sqlite import FILE_NAME
from agent.store.store import Store
from agent.wire.models import FINAL_STATES
from gateway.client import SendCommand
from simulator.wire.client import ServiceClient
from tests.conftest import require_program
from tests.support.factories import make_entry
from tests.system.fault.kill_storm import Device, Plan, Storm

pytestmark = pytest.mark.long

FLIPS = int(os.environ.get("BIT_FLIPS", "150"))
RECOVERED_WITHIN_S = 30.0
_WITHIN_S = 60.0
_FAULTY_S = 4.0


@dataclass(frozen=True, slots=True)
class DiskFault:
    """What fails, and how.

    Attributes:
        calls: system calls, as strace names them.
        error: what they answer.
        every: each so many-th call fails; 1 is all of them.
    """

    calls: str
    error: str
    every: int = 1


DISK_FAULTS = (
    DiskFault("pwrite64", "EIO"),
    DiskFault("fdatasync,fsync", "EIO"),
    DiskFault("pwrite64,fdatasync", "EIO", every=3),
    DiskFault("pwrite64,ftruncate", "ENOSPC"),
    DiskFault("pwrite64,ftruncate,openat,unlink", "EROFS"),
    DiskFault("pread64,pwrite64,fdatasync", "EIO"),
)


class FailingDisks(Storm):
    """One agent for each fault: well, ill, well again.

    strace makes the calls on the database and its log fail, of a process that runs already; when it lets go the disk is
    well again.

    Args:
        folder: where everything goes.
        strace: the program's path.
        killed: each agent is killed in the middle of the illness, and started on the mended disk.
    """

    def __init__(self, folder: Path, strace: str, *, killed: bool) -> None:
        super().__init__(folder, Plan(seed=1, cycles=0, devices=len(DISK_FAULTS)))
        self._strace = strace
        self._is_killed = killed
        self.faults: list[str] = []

    def rage(self, devices: Sequence[Device]) -> None:
        with ThreadPoolExecutor(len(devices)) as pool:
            list(pool.map(self._go_through, devices, DISK_FAULTS))

    def _go_through(self, device: Device, fault: DiskFault) -> None:
        self.start_agent(device, forked=True)
        with self.client() as client:
            self._send(client, device)
            _wait(lambda: not _open(client, device) and _stored(client, device) > 2)
            # It ends in the middle of the illness.
            long = self._send(client, device, seconds=_FAULTY_S / 2)
            _wait(lambda: long in device.effects.read_text())
            healthy = len(device.log.read_text())
            with self._ill(device, fault):
                sent = {self._send(client, device) for _ in range(3)}
                _wait(lambda: "store=" in device.log.read_text()[healthy:])
                self.live(device, _FAULTY_S)
                if fault.every == 1 and sent - _open(client, device):
                    self.faults.append(f"{fault}: a command ended while nothing could be stored")
                if self._is_killed:
                    self.kill(device)
            began_s, stored = time.monotonic(), _stored(client, device)
            if self._is_killed:
                self.start_agent(device, forked=True)
            self._send(client, device)
            _wait(lambda: not _open(client, device) and _stored(client, device) > stored)
            if time.monotonic() - began_s > RECOVERED_WITHIN_S:
                self.faults.append(f"{fault}: the recovery took {time.monotonic() - began_s:.0f} s")
        self.kill(device)

    def _send(self, client: ServiceClient, device: Device, seconds: float = 0.0) -> str:
        payload = {"command": "only_once", "number": len(device.sent), "seconds": seconds}
        record = client.send_command(SendCommand(device_id=device.id, command_payload=payload))
        device.sent.append((str(record.id), "only_once"))
        return str(record.id)

    @contextlib.contextmanager
    def _ill(self, device: Device, fault: DiskFault) -> Iterator[None]:
        paths = [f"-P{device.state / FILE_NAME}{ending}" for ending in ("", "-wal", "-journal")]
        when = f":when=1+{fault.every}" if fault.every > 1 else ""
        what = [f"-etrace={fault.calls}", f"-einject={fault.calls}:error={fault.error}{when}"]
        words = device.folder / "strace.log"
        assert device.victim is not None
        with words.open("wb") as log:
            argv = [self._strace, "-f", *paths, *what, "-o", "/dev/null", "-p", str(device.victim.pid)]
            tracer = subprocess.Popen(argv, stdout=log, stderr=log)
        try:
            _wait(lambda: "attached" in words.read_text() or tracer.poll() is not None)
            assert tracer.poll() is None, words.read_text()
            yield
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait(_WITHIN_S)


def _open(client: ServiceClient, device: Device) -> set[str]:
    records = client.device_commands(device.id, status="open").records
    return {str(record.id) for record in records if record.status not in FINAL_STATES}


def _stored(client: ServiceClient, device: Device) -> int:
    return sum(1 for _ in client.sensor_data(device_id=device.id))


def _wait(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + _WITHIN_S
    while not is_so():
        assert time.monotonic() < until_s, "waited in vain"
        time.sleep(0.05)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("killed", [False, True], ids=["mended", "killed"])
def test_a_failing_disk_acknowledges_nothing_and_is_forgotten_once_it_is_mended(tmp_path: Path, *, killed: bool):
    disks = FailingDisks(tmp_path, require_program("strace"), killed=killed)
    books = disks.run()
    assert disks.faults + books.faults == []


# --- flipped bits -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def well_used(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a store with commands, readings and a log that was not written back."""
    path = tmp_path_factory.mktemp("store") / FILE_NAME
    with _store(path) as store:
        store.journal.admit([make_entry(f"c{number}") for number in range(60)])
        for number in range(300):
            store.outbox.put(_reading(number), wait=number % 50 == 0)
        files = {}
        store.journal.put_setting("last", "1")
        for ending in ("", "-wal"):
            files[FILE_NAME + ending] = path.with_name(FILE_NAME + ending).read_bytes()
    return files


def _reading(number: float) -> Reading:
    return Reading({"number": number, "square": number * number}, SystemClock().now())


@contextlib.contextmanager
def _store(path: Path) -> Iterator[Store]:
    store = Store(path, clock=SystemClock(), group_window_s=0.0)
    store.start()
    try:
        yield store
    finally:
        assert store.stop(30.0)


def flipped(files: dict[str, bytes], chance: random.Random) -> dict[str, bytes]:
    """One to eight flipped bits, anywhere; now and then many, as a dying card does it."""
    changed = {name: bytearray(content) for name, content in files.items()}
    for _ in range(chance.choice([1, 1, 2, 8, 500])):
        content = changed[chance.choice([name for name in changed if changed[name]])]
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return {name: bytes(content) for name, content in changed.items()}


@pytest.mark.timeout(600)
def test_with_flipped_bits_the_store_opens_goes_on_and_says_what_it_found(well_used, tmp_path: Path):
    told = 0
    for seed in range(FLIPS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        for name, content in flipped(well_used, random.Random(seed)).items():
            (folder / name).write_bytes(content)
        with _store(folder / FILE_NAME) as store:
            # The first uses may meet damage that the start did not see, and look through the file anew for it.
            said = [text for text in (_try(store) for _ in range(3)) if text]
            assert all("damaged" in text for text in said), f"seed {seed}: {said}"
            _use(store)
            status = store.status()
            assert status is not None
            if status.incidents:
                told += 1
                assert list(folder.glob("*.damaged-*")), f"seed {seed}: the damaged file was not kept"
    assert told > FLIPS / 10


def _try(store: Store) -> str:
    try:
        _use(store)
    except StorageError as error:
        return str(error)
    return ""


def _use(store: Store) -> None:
    store.journal.in_state("received", "started", "finished")
    store.journal.known([f"c{number}" for number in range(60)])
    store.outbox.next_batch(1000)
    store.outbox.put(_reading(1.0), wait=True)
    store.journal.put_setting("alive", "1")
    assert store.journal.setting("alive") == "1"
    store.outbox.stats()
