"""The power goes at every sync of a recorded life: the store opens and holds its promises, and an agent goes on."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from tests.conftest import require_program
from tests.fault.disk import Disk, Loss, Make, Rename, Resize, Sync, SyncFolder, Write
from tests.fault.power_cuts import Image, images, moments, open_and_judge, states_in
from tests.fault.processes import ForkServer
from tests.fault.recording import Recording, Scenario
from tests.fault.revival import revive_all

pytestmark = pytest.mark.long

SEED = int(os.environ.get("POWER_CUT_SEED", "1"))
OF_SECTORS = int(os.environ.get("POWER_CUT_SECTORS", "2"))
REVIVED = float(os.environ.get("POWER_CUT_REVIVED", "0.03"))
"""The share of the images that an agent is started on; 1 takes all of them."""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return Scenario(tmp_path_factory.mktemp("recording"), require_program("strace")).record()


def _images(recording: Recording) -> Iterator[Image]:
    for moment in moments(recording):
        yield from images(moment, random.Random(f"{SEED} {moment.number}"), of_sectors=OF_SECTORS)


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is possible: what these tests sync need not outlive them."""
    import tempfile

    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


# --- the model of the disk --------------------------------------------------------------------------------------------


def disk(*operations: object) -> Disk:
    made = Disk()
    for operation in operations:
        made.do(operation)  # type: ignore[arg-type]
    return made


def cut(made: Disk, loss: Loss) -> dict[str, bytes]:
    return made.after_power_cut(loss, random.Random(1))


def test_what_was_not_synced_is_gone_and_what_was_is_there():
    made = disk(Make("a"), SyncFolder(), Write("a", 0, b"one"), Sync("a"), Write("a", 3, b"two"))
    assert cut(made, Loss.ALL) == {"a": b"one"}
    assert cut(made, Loss.NONE) == {"a": b"onetwo"}
    assert cut(made, Loss.SIZES) == {"a": b"one\0\0\0"}


def test_a_name_is_there_once_its_folder_was_synced():
    made = disk(Make("a"), Write("a", 0, b"one"), Sync("a"))
    assert cut(made, Loss.ALL) == {}
    made.do(SyncFolder())
    made.do(Rename("a", "b"))
    assert cut(made, Loss.ALL) == cut(made, Loss.NAMES) == {"a": b"one"}
    assert cut(made, Loss.NONE) == {"b": b"one"}


def test_the_last_write_may_be_torn_and_sectors_may_be_missing():
    made = disk(Make("a"), SyncFolder(), Write("a", 0, b"x" * 2048))
    torn = {len(made.after_power_cut(Loss.TORN, random.Random(seed))["a"]) for seed in range(20)}
    assert len(torn) > 5
    some = {made.after_power_cut(Loss.SECTORS, random.Random(seed))["a"] for seed in range(20)}
    assert any(b"x" * 512 in each and b"\0" * 512 in each for each in some)


def test_a_shortened_file_is_long_again_until_it_is_synced():
    made = disk(Make("a"), SyncFolder(), Write("a", 0, b"one"), Sync("a"), Resize("a", 1))
    assert cut(made, Loss.ALL) == {"a": b"one"}
    assert cut(made, Loss.NONE) == {"a": b"o"}


# --- the agent's store ------------------------------------------------------------------------------------------------


def test_the_recording_holds_what_the_script_is_to_show(recording: Recording):
    kinds = Counter(event.kind for event in recording.events)
    calls = Counter(type(event.what).__name__ for event in recording.events if event.kind == "disk")
    assert kinds["promise"] > 50
    assert calls["Sync"] > 100
    handlers = {str(event.what["handler"]) for event in recording.events if _has_handler(event.what)}
    assert handlers >= {"repeatable", "only_once", "power_cycle"}
    written = {event.what.path for event in recording.events if isinstance(event.what, Write)}
    assert {"agent.db", "agent.db-wal"} <= written


def _has_handler(what: object) -> bool:
    return isinstance(what, dict) and "handler" in what


@pytest.mark.timeout(900)
def test_on_every_image_the_store_opens_and_holds_what_was_promised(recording: Recording, quick_folder: Path):
    found = [open_and_judge(image, quick_folder / "image") for image in _images(recording)]
    assert [fault for faults in found for fault in faults] == []
    assert len(found) > 500


@pytest.mark.timeout(900)
def test_a_store_that_does_not_sync_would_be_found(recording: Recording, quick_folder: Path):
    """The fault planted: no sync of the log reaches the disk, as with ``PRAGMA synchronous=OFF``."""
    without = Sync("a file that nobody has")
    careless = (replace(each, what=without) if each.what == Sync("agent.db-wal") else each for each in recording.events)
    planted = Recording(tuple(careless), recording.plugins)
    chosen = [image for image in _images(planted) if image.loss is Loss.ALL and image.moment.promise]
    faults = [fault for image in chosen[::2] for fault in open_and_judge(image, quick_folder / "image")]
    assert any("acknowledged command lost" in fault for fault in faults)
    assert any("reading lost" in fault for fault in faults)


@pytest.mark.timeout(7200)
def test_an_agent_that_starts_on_an_image_loses_nothing_and_repeats_nothing(recording: Recording, quick_folder: Path):
    chance = random.Random(SEED)
    chosen = (image for image in _images(recording) if chance.random() < REVIVED)
    with ForkServer(recording.plugins) as server:
        assert revive_all(chosen, server, quick_folder) == []


@pytest.mark.timeout(600)
def test_an_agent_that_repeats_after_a_power_cut_would_be_found(recording: Recording, quick_folder: Path):
    """The fault planted: ``once`` is taken for ``idempotent`` after a crash."""
    nothing_lost = (image for image in _images(recording) if image.loss is Loss.NONE)
    begun = (image for image in nothing_lost if _is_in_the_middle(image, quick_folder / "image"))
    with ForkServer(recording.plugins, ["tests.fault.planted:once_runs_again"]) as server:
        faults = revive_all(islice(begun, 4), server, quick_folder)
    assert any("ran twice" in fault for fault in faults), faults


def _is_in_the_middle(image: Image, folder: Path) -> bool:
    """A handler that must run once had begun, and the journal on the disk knows nothing of its end."""
    begun = {line["command_id"] for line in image.moment.effects if line.get("handler") == "only_once"}
    started = {name for name, (state, _) in image.moment.promise.get("commands", {}).items() if state == "started"}
    return any(state == "started" for state in states_in(image, folder, begun & started).values())
