"""The power goes at every sync of a recorded life of the store: it opens again and holds what it promised."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import require_program
from tests.system.fault.disk import Loss, Write
from tests.system.fault.power_cuts import images, open_and_judge, record, without_syncs_of
from tests.system.fault.trace import Step

pytestmark = pytest.mark.long

SEED = int(os.environ.get("POWER_CUT_SEED", "1"))
OF_SECTORS = int(os.environ.get("POWER_CUT_SECTORS", "2"))


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[Step]:
    return record(tmp_path_factory.mktemp("recording"), require_program("strace"))


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is possible: what these tests sync need not outlive them."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


@pytest.mark.timeout(600)
def test_on_every_image_the_store_opens_and_holds_what_was_promised(steps: list[Step], quick_folder: Path):
    assert {"agent.db", "agent.db-wal"} <= {step.what.path for step in steps if isinstance(step.what, Write)}
    found = [open_and_judge(image, quick_folder / "image") for image in images(steps, seed=SEED, of_sectors=OF_SECTORS)]
    assert [fault for faults in found for fault in faults] == []
    assert len(found) > 500


@pytest.mark.timeout(600)
def test_a_store_that_does_not_sync_would_be_found(steps: list[Step], quick_folder: Path):
    """The fault planted: no sync of the log reaches the disk, as with ``PRAGMA synchronous=OFF``."""
    planted = without_syncs_of(steps, "agent.db-wal")
    chosen = [image for image in images(planted, seed=SEED, of_sectors=0) if image.loss is Loss.ALL]
    faults = [fault for image in chosen[::2] for fault in open_and_judge(image, quick_folder / "image")]
    assert any("acknowledged command lost" in fault for fault in faults)
    assert any("reading lost" in fault for fault in faults)
