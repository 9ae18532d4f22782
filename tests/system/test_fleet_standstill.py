"""A generator that stands still in the middle of a run makes no load meanwhile: such a run is inconclusive."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from simulator.children import program_path
from simulator.exit_codes import ExitCode
from simulator.fleet.record import RunRecord, VerdictStatus
from simulator.fleet.report.folder import read_record

STOPPED_S = 6.0
DEVICES, HOLD_S = 10, 20
DOCUMENT = {
    "scenario": "steady",
    "workers": 2,
    "fleet": {"devices": DEVICES, "models": [{"name": "m", "telemetry": {"every_s": 1}}]},
    "phases": [{"name": "hold", "kind": "hold", "duration_s": HOLD_S}],
    "drain_s": 60,
    "thresholds": ["audit.lost == 0"],
}
"""Each worker has half of the devices; each device sends one reading a second."""


@pytest.fixture
def conductor(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run with a service of its own, once some seconds of it are measured."""
    path = tmp_path / "steady.yaml"
    path.write_text(yaml.safe_dump(DOCUMENT))
    program = [program_path("fleet-simulator"), "run", path, "--local", "--out", tmp_path / "run"]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(program, stdout=log, stderr=log) as process:
        try:
            seconds = tmp_path / "run" / "seconds.jsonl"
            deadline_s = time.monotonic() + 120
            while not seconds.exists() or seconds.read_bytes().count(b"\n") < 3:
                assert process.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < deadline_s
                time.sleep(0.1)
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()


def workers_of(conductor: int) -> list[int]:
    """The processes that make the load."""
    children = Path(f"/proc/{conductor}/task/{conductor}/children").read_text().split()
    return [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def stand_still(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(STOPPED_S)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def ended(conductor: subprocess.Popen[bytes], folder: Path) -> RunRecord:
    code = conductor.wait(180)
    record = read_record(folder / "run")
    assert (code, record.verdict.word) == (ExitCode.INCONCLUSIVE, VerdictStatus.INCONCLUSIVE), record.verdict
    said = re.match(r"the generator stood still for (\d+\.\d) s ", record.verdict.sentences[0])
    assert said, record.verdict
    assert float(said[1]) >= STOPPED_S - 0.5
    return record


@pytest.mark.parametrize("stopped", [1, 2])
def test_what_stopped_workers_did_not_send_counts_as_intended(conductor, tmp_path, stopped):
    pids = workers_of(conductor.pid)
    assert len(pids) == 2
    stand_still(pids[:stopped])
    health = ended(conductor, tmp_path).health
    unsent = DEVICES * stopped / 2 * (STOPPED_S - 2)
    assert health.intended - health.sent >= unsent, health


def test_a_conductor_that_was_stopped(conductor, tmp_path):
    stand_still([conductor.pid])
    ended(conductor, tmp_path)


def test_all_of_it_stopped(conductor, tmp_path):
    stand_still([conductor.pid, *workers_of(conductor.pid)])
    health = ended(conductor, tmp_path).health
    assert health.intended - health.sent >= DEVICES * (STOPPED_S - 2), health
