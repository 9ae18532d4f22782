"""Disks that fail under a running agent, and files with flipped bits."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.core.values import Reading
from agent.errors import StorageError
from agent.runtime.clocks import SystemClock
from agent.store.sqlite import FILE_NAME
from agent.store.store import Store
from tests.conftest import require_program
from tests.support.factories import make_entry
from tests.system.fault.disk_faults import DISK_FAULTS, Patient
from tests.system.fault.plugin_folder import make_plugin_folder
from tests.system.fault.processes import ForkServer

pytestmark = pytest.mark.long

FLIPS = int(os.environ.get("BIT_FLIPS", "150"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("killed", [False, True], ids=["mended", "killed"])
def test_a_failing_disk_acknowledges_nothing_and_is_forgotten_once_it_is_mended(tmp_path: Path, *, killed: bool):
    strace = require_program("strace")
    with ForkServer(make_plugin_folder(tmp_path / "plugins")) as server, ThreadPoolExecutor(len(DISK_FAULTS)) as pool:
        patients = [Patient(tmp_path / str(number), server, strace) for number in range(len(DISK_FAULTS))]
        recoveries = list(pool.map(lambda each, fault: each.go_through(fault, killed=killed), patients, DISK_FAULTS))
    assert {each.fault.name: each.faults for each in recoveries if each.faults} == {}


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
