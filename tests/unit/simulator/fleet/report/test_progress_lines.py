"""The progress of a run as JSON lines: the figures of the live view, in whole lines."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.report import progress_lines
from simulator.fleet.report.live import RunView, SilentView
from simulator.fleet.report.progress_lines import PROGRESS_FORMAT, ProgressView
from simulator.fleet.report.run_status import RunHead, RunStatus, StreamSoFar, WorkerState, WorkerStatus
from simulator.fleet.report.window import Window
from simulator.report_parts.values import Tone
from tests.fleet_runs import Shape, a_run

SHAPE = Shape(duration_s=40, rate_per_s=60)
RECORD, SECONDS = a_run(SHAPE)
HEAD = RunHead("steady", "core", "http_poll", "http://t", 10_000, 2, RECORD.phases, RECORD.faults, 40.0)
STANDING = RunStatus(
    RECORD.phases[1],
    "online >= 99%",
    RECORD.faults[:1],
    (WorkerStatus(0, WorkerState.RUNNING, 5000, 12.0),),
    {"readings": StreamSoFar(900, 890, 7), "commands": StreamSoFar(20, 18, 2)},
    RECORD.gaps,
)


class NotingView(RunView):
    """Keeps the notes that it is given."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        del tone
        self.notes.append(text)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]


def played(path: Path, view: RunView | None = None) -> list[dict[str, Any]]:
    with ProgressView(view or SilentView(), str(path), HEAD) as progress:
        progress.stage("preparing devices", 5, 10)
        for second in SECONDS:
            progress.show(second, STANDING)
        progress.note("a worker is slow", Tone.WARN)
        progress.end(RECORD)
    return lines_of(path)


def test_the_first_line_says_what_is_run_and_the_last_one_how_it_ended(tmp_path: Path) -> None:
    found = played(tmp_path / "p.jsonl")
    assert found[0]["event"] == "run"
    assert found[0]["format"] == PROGRESS_FORMAT
    assert (found[0]["scenario"], found[0]["devices"], found[0]["duration_s"]) == ("steady", 10_000, 40.0)
    assert [phase["name"] for phase in found[0]["phases"]] == ["ramp", "hold", "storm"]
    assert found[-1]["event"] == "end"
    assert found[-1]["verdict"]["word"] == RECORD.verdict.word
    assert found[-1]["verdict"]["sentences"] == list(RECORD.verdict.sentences)


def test_a_second_has_the_figures_of_the_live_view(tmp_path: Path) -> None:
    window = Window()
    for second in SECONDS:
        window.take(second)
    found = [line for line in played(tmp_path / "p.jsonl") if line["event"] == "second"]
    assert [line["second"] for line in found] == [second.second for second in SECONDS]
    last = found[-1]
    row = next(row for row in window.rows() if row.name == "http.sensor_data")
    shown = last["operations"]["http.sensor_data"]
    assert shown["ok_per_s"] == row.per_s(row.good)
    assert list(shown["response_s"].values()) == pytest.approx(row.response.percentiles((50, 95, 99, 99.9)))
    assert list(shown["response_s"]) == ["p50", "p95", "p99", "p99.9"]
    assert last["so_far"]["ok"] == window.counts["ok"]  # type: ignore[index] # a StrEnum's own word
    assert last["phase"]["name"] == "hold"
    assert last["waiting_for"] == "online >= 99%"
    assert last["faults"][0]["name"] == "half-gone"
    assert last["workers"] == [{"number": 0, "state": "running", "devices": 5000, "cpu_percent": 12.0}]
    assert last["audit"] == {
        "readings": {"sent": 900, "accepted": 890, "unanswered": 7},
        "commands": {"ordered": 20, "reported": 18, "under_way": 2},
    }
    assert last["gaps"][0]["worker"] == 1
    alone = Window()
    alone.take(SECONDS[-1])
    assert last["alone"]["ok_per_s"] == alone.whole().per_s(alone.whole().good)


def test_what_begins_and_ends_is_a_note_as_on_the_screen(tmp_path: Path) -> None:
    notes = [line["text"] for line in played(tmp_path / "p.jsonl") if line["event"] == "note"]
    assert "phase hold begins" in notes
    assert any(text.startswith("fault disconnect_storm begins") for text in notes)
    assert notes[-1] == "a worker is slow"


def test_a_run_that_never_ended_says_so_in_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError), ProgressView(SilentView(), str(tmp_path / "p.jsonl"), HEAD):
        raise ConfigurationError(["the service does not take the keys"])
    last = lines_of(tmp_path / "p.jsonl")[-1]
    assert (last["event"], last["verdict"]) == ("end", None)
    assert "does not take the keys" in last["error"]


def test_a_full_disk_costs_lines_and_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, view, write, room = tmp_path / "p.jsonl", NotingView(), os.write, [True]

    def full(descriptor: int, content: bytes) -> int:
        if room[0]:
            return write(descriptor, content)
        write(descriptor, content[:10])  # half a line is there already
        raise OSError(errno.ENOSPC, "No space left on device")

    with ProgressView(view, str(path), HEAD) as progress:
        monkeypatch.setattr(progress_lines.os, "write", full)
        room[0] = False
        progress.show(SECONDS[0], STANDING)
        progress.show(SECONDS[1], STANDING)
        room[0] = True
        progress.show(SECONDS[2], STANDING)
        progress.end(RECORD)
    assert [line["event"] for line in lines_of(path)] == ["run", "second", "end"]
    complaints = [note for note in view.notes if "--progress" in note]
    assert len(complaints) == 1
    assert "No space left on device; the run goes on" in complaints[0]


def test_a_place_that_cannot_be_written_is_an_error_before_the_run(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigurationError, match="name a file in a folder that is there"),
        ProgressView(SilentView(), str(tmp_path / "no" / "p.jsonl"), HEAD),
    ):
        pytest.fail("it was opened")


def names_in(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(names_in, value))
    return {*value, *names_in(list(value.values()))} if isinstance(value, dict) else set()


def test_every_member_stands_in_the_documents(tmp_path: Path) -> None:
    document = (Path(__file__).parents[5] / "docs" / "fleet.md").read_text()
    described = document.partition("--progress\n")[2].partition("\n## ")[0]
    found = names_in(played(tmp_path / "p.jsonl")) - set(RECORD.operations) - {"ok", "limited", "transport", "timeout"}
    assert not {name for name in found if f"`{name}`" not in described}
