"""The machines of a cluster in everything that people and programs read of a run; one machine alone is not shown."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from simulator.fleet.record import NodeRecord
from simulator.fleet.report.folder import RunFolder
from simulator.fleet.report.live import SilentView, changes, run_line
from simulator.fleet.report.live_screen import ScreenState, frame
from simulator.fleet.report.making import finish_run
from simulator.fleet.report.node_text import workers_text
from simulator.fleet.report.progress_lines import ProgressView
from simulator.fleet.report.run_status import NodeStatus, RunHead, RunStatus, WorkerState, WorkerStatus
from simulator.fleet.report.summary import print_summary
from simulator.fleet.report.window import Window
from simulator.fleet.report.writing import parse_record, record_text
from tests.fleet_runs import Shape, a_run

RECORD, SECONDS = a_run(Shape(duration_s=20, rate_per_s=40))
HEAD = RunHead("steady", "core", "http_poll", "http://t", 10_000, 4)
RUNNING = NodeStatus("10.0.0.1", 0, 2, 0, 5000, 83.0, 0.0004, 31.0, None)
GONE = NodeStatus("10.0.0.2", 2, 2, 2, 5000, 0.0, 0.0, 0.0, 31.0)
WORKERS = tuple(WorkerStatus(n, WorkerState.DEAD if n > 1 else WorkerState.RUNNING, 2500) for n in range(4))
STANDING = RunStatus(workers=WORKERS, nodes=(RUNNING, GONE))
NODES = (
    NodeRecord("10.0.0.1", 0, 2, 5000, 4000, 0.0004, 31.0),
    NodeRecord("10.0.0.2", 2, 2, 5000, 1000, 0.0004, 31.0, lost=2, gone_s=11.0),
)


def shown(width: int, height: int, standing: RunStatus = STANDING) -> list[str]:
    picture = ScreenState(HEAD)
    for second in SECONDS:
        picture.window.take(second)
    picture.standing = standing
    return frame(picture, width, height).plain.split("\n")


@pytest.mark.parametrize("width", [80, 160])
def test_the_screen_has_a_row_for_each_machine(width):
    lines = shown(width, 50)
    (running,) = (line for line in lines if line.startswith("10.0.0.1"))
    (gone,) = (line for line in lines if line.startswith("10.0.0.2"))
    assert running.split() == ["10.0.0.1", "2", "(0", "to", "1)", "5,000", "83", "400", "µs", "31", "%", "running"]
    assert gone.endswith("no worker since 0:31")
    assert max(map(cell_len, lines)) <= width
    assert not any("#0" in line for line in lines), "the rows of machines stand for those of each worker"
    assert any("2 of 4 at work" in line for line in lines)
    assert not any("is dead" in line for line in lines)


def test_a_number_of_a_worker_cannot_be_read_as_how_many_there_are():
    assert (workers_text(0, 1), workers_text(3, 2)) == ("1 (number 0)", "2 (3 to 4)")


def test_of_many_machines_those_that_lost_workers_stay_where_the_screen_is_low():
    many = tuple(replace(RUNNING, name=f"10.0.1.{number}", first=number) for number in range(60))
    lines = shown(80, 30, replace(STANDING, nodes=(*many, GONE)))
    assert len(lines) == 30
    assert any("10.0.0.2" in line and "no worker since" in line for line in lines)


def test_lines_and_notes_name_the_machine_and_not_each_of_its_workers():
    window = Window()
    window.take(SECONDS[0])
    line = run_line(window, HEAD, STANDING)
    assert "machine 10.0.0.2: no worker since 0:31" in line
    assert "worker 2" not in line
    before = replace(STANDING, nodes=(RUNNING, replace(GONE, gone_s=None)))
    assert [(at, text) for at, text, _ in changes(before, STANDING)] == [(31.0, "machine 10.0.0.2 has no worker left")]
    assert changes(STANDING, STANDING) == []


def test_progress_has_every_machine_in_each_second(tmp_path: Path):
    document = (Path(__file__).parents[5] / "docs" / "fleet.md").read_text()
    path = tmp_path / "p.jsonl"
    with ProgressView(SilentView(), str(path), HEAD) as progress:
        progress.show(SECONDS[0], RunStatus())
        progress.show(SECONDS[1], STANDING)
    alone, both = (line for line in map(json.loads, path.read_text().splitlines()) if line["event"] == "second")
    assert alone["nodes"] == []
    assert [(node["name"], node["gone_s"]) for node in both["nodes"]] == [("10.0.0.1", None), ("10.0.0.2", 31.0)]
    assert all(f"`{name}`" in document for name in both["nodes"][0])


def test_the_report_has_a_table_of_machines_and_a_record_without_them_opens_as_before(tmp_path: Path):
    pages = []
    for name, record in (("cluster", replace(RECORD, nodes=NODES)), ("alone", RECORD)):
        with RunFolder(tmp_path / name) as folder:
            for second in SECONDS:
                folder.append(second)
            finish_run(folder, replace(record, seconds=len(SECONDS)))
        pages.append((tmp_path / name / "report.html").read_text())
    assert 'id="machines"' in pages[0]
    assert "no worker since 0:11" in pages[0]
    assert 'id="machines"' not in pages[1]


def test_the_terminal_has_a_row_for_each_machine_at_the_end():
    def printed(record) -> str:
        console = Console(file=io.StringIO(), width=100)
        print_summary(console, record)
        return console.file.getvalue()  # type: ignore[attr-defined] # a StringIO

    text = printed(replace(RECORD, nodes=NODES))
    assert "2 (0 to 1)" in text
    assert "came to its end" in text
    assert "no worker since 0:11" in text
    (gone,) = (line for line in text.splitlines() if line.startswith("10.0.0.2"))
    assert gone.split()[5:7] == ["5,000", "91"], "1,000 requests in the 11 s that it was there"
    assert "machine" not in printed(RECORD)


def test_a_record_is_read_back_with_its_machines_and_one_of_before_without():
    record = replace(RECORD, nodes=NODES)
    assert parse_record(record_text(record)) == record
    old = json.loads(record_text(RECORD))
    del old["nodes"]
    assert parse_record(json.dumps(old)) == RECORD
