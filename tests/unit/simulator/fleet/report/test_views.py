"""The views of a run that goes on: a picture that fits its terminal, plain lines elsewhere, JSON lines for programs."""

from __future__ import annotations

import errno
import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.screen import Screen
from rich.text import Text

from agent.errors import ConfigurationError
from simulator.fleet.record import Second
from simulator.fleet.report import line_file
from simulator.fleet.report.formatting import (
    DASH,
    Tone,
    clock_text,
    count_text,
    percent_text,
    short_count,
    time_text,
)
from simulator.fleet.report.live import ConsoleView
from simulator.fleet.report.progress_lines import PROGRESS_FORMAT, ProgressView
from simulator.fleet.report.views import RunStatus, RunView, Views, spans_under_way
from simulator.fleet.report.window import Window
from tests.fleet_runs import Shape, a_run

RECORD, SECONDS = a_run(Shape(duration_s=40, rate_per_s=60))


def status_at(second: int) -> RunStatus:
    phases = spans_under_way(RECORD.phases, second)
    return RunStatus(
        phases[0] if phases else None,
        "online >= 99%",
        spans_under_way(RECORD.faults, second),
        {0: "running", 1: "dead" if second > 23 else "running"},
        tuple(replace(gap, to_s=min(gap.to_s, second + 1.0)) for gap in RECORD.gaps if gap.from_s <= second),
    )


def with_ledgers(second: Second) -> Second:
    return replace(second, gauges={**second.gauges, "readings_sent": 900.0, "readings_accepted": 890.0})


class Watched(Console):
    """A terminal of a given size that nobody sees."""

    def __init__(self, *, is_terminal: bool, width: int = 100, height: int = 30) -> None:
        super().__init__(
            file=io.StringIO(), force_terminal=is_terminal, width=width, height=height, legacy_windows=False
        )

    @property
    def printed(self) -> str:
        return self.file.getvalue()


def shown(last: int, width: int, height: int) -> list[str]:
    """What a terminal of this size has."""
    view = ConsoleView(Watched(is_terminal=True, width=width, height=height), RECORD)
    for second in SECONDS:
        if second.second <= last:
            view.second(with_ledgers(second), status_at(second.second))
    console = Watched(is_terminal=False, width=width, height=height)
    console.print(Screen(view.picture()))
    return console.printed.rstrip("\n").split("\n")


def play(view: RunView) -> None:
    with view:
        view.stage("preparing devices", 1, 10_000)
        view.stage("preparing devices", 5000, 10_000)
        for second in SECONDS:
            if second.second == 30:
                view.note("[red]worker[/] 1 was killed", Tone.BAD)
            view.second(second, status_at(second.second))
        view.end(RECORD)


@pytest.mark.parametrize(("width", "height"), [(40, 6), (80, 24), (160, 45)])
@pytest.mark.parametrize("second", [-1, 17, 38])
def test_a_picture_is_never_larger_than_the_terminal(width, height, second):
    lines = shown(second, width, height)
    assert len(lines) <= height
    assert max(cell_len(line) for line in lines) <= width


def test_a_terminal_shows_what_matters():
    ordinary = "\n".join(shown(17, 120, 40))
    for text in (
        "steady-10k", "0:18 of 0:40", "until online >= 99%", "disconnect_storm: 5,000 devices", "http.sensor_data",
        "p99.9", "service p99", "all", "no connection", "5,000 of 10,000 online", "lag p99", "sent 100 %",
        "900 sent · 890 accepted", "2 of 2 at work", "Ctrl-C ends the run",
    ):  # fmt: skip
        assert text in ordinary
    later = "\n".join(shown(38, 160, 45))
    for text in ("1 of 2 at work · 1 is dead", "gap", "killed by signal 9", "limited (429)"):
        assert text in later
    low = "\n".join(shown(17, 120, 6))
    for text in ("0:18 of 0:40", "http.poll", "disconnect_storm"):
        assert text in low


def test_without_a_terminal_there_is_a_line_every_five_seconds_and_one_for_each_thing_that_happens():
    console = Watched(is_terminal=False)
    play(ConsoleView(console, RECORD))
    lines = console.printed.splitlines()
    assert lines[0] == f"steady-10k: 10,000 devices, http_poll, devices, {RECORD.target}"
    assert lines[1].split() == ["0:00", "preparing", "devices", "(10,000)"]
    clocks = [line.split()[0] for line in lines if "generator lag" in line]
    # A second of the gap is no second: 0:25 to 0:28 are missing.
    assert clocks == ["0:01", "0:06", "0:11", "0:16", "0:21", "0:29", "0:34", "0:39"]
    told = "\n".join(lines)
    for text in ("phase hold begins", "fault disconnect_storm begins: 5,000 devices", "fault disconnect_storm ends"):
        assert told.count(text) == 1, "however short it was"
    for phase in RECORD.phases:
        assert f"{clock_text(phase.begin_s):>7}  phase {phase.name} begins" in lines, "when it began, not when told"
    assert "   0:24  gap: worker 1 reports no seconds: killed by signal 9" in told
    assert sum("| 1 gap, 4 s of workers" in line for line in lines) == 3, "in each line from then on"
    for text in ("| fault link", "[red]worker[/] 1 was killed", "worker 1 dead"):
        assert text in told
    assert "\x1b" not in told


def test_on_a_terminal_the_screen_is_given_back_and_the_summary_stays():
    console = Watched(is_terminal=True)
    play(ConsoleView(console, RECORD))
    begun, ended = console.printed.index("\x1b[?1049h"), console.printed.index("\x1b[?1049l")
    assert begun < console.printed.index("http.sensor_data") < ended
    left = Text.from_ansi(console.printed[ended:]).plain
    for text in ("was killed", "Data was lost or changed.", "audit.lost == 0", "2 lost", "http.sensor_data", "p99.9"):
        assert text in left


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (time_text(0.0008504), "850 µs"), (time_text(0.0009996), "1.00 ms"), (time_text(0.00342), "3.42 ms"),
        (time_text(0.9999), "1.00 s"), (time_text(61.2), "61.2 s"), (time_text(0), "0"), (time_text(None), DASH),
        (time_text(float("nan")), DASH), (count_text(12345.0), "12,345"), (count_text(2.5), "2.5"),
        (short_count(9999), "9,999"), (short_count(12345), "12.3k"), (short_count(4_560_000), "4.56M"),
        (clock_text(65), "1:05"), (clock_text(7200), "2:00:00"), (percent_text(0.99999), "99.99 %"),
        (percent_text(1.0), "100 %"), (percent_text(0.000001), "< 0.01 %"), (percent_text(0), "0 %"),
    ],
)  # fmt: skip
def test_numbers_are_short_and_never_better_than_they_are(shown, text):
    assert shown == text


# --- JSON lines -------------------------------------------------------------------------------------------------------


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]


@pytest.fixture
def lines(tmp_path: Path) -> list[dict[str, Any]]:
    play(Views([RunView(), ProgressView(str(tmp_path / "p.jsonl"), RECORD, pytest.fail)]))
    return lines_of(tmp_path / "p.jsonl")


def test_the_first_line_says_what_is_run_and_the_last_one_how_it_ended(lines):
    first, last = lines[0], lines[-1]
    assert (first["event"], first["format"], first["scenario"]) == ("run", PROGRESS_FORMAT, "steady-10k")
    assert (first["devices"], first["duration_s"]) == (10_000, 40.0)
    assert [phase["name"] for phase in first["phases"]] == ["ramp", "hold", "storm"]
    assert (last["event"], last["verdict"]["word"]) == ("end", RECORD.verdict.word)
    assert last["verdict"]["sentences"] == list(RECORD.verdict.sentences)
    notes = [line["text"] for line in lines if line["event"] == "note"]
    assert "phase hold begins" in notes
    assert any(text.startswith("fault disconnect_storm begins") for text in notes)


def test_a_second_has_the_figures_of_the_live_view(lines):
    window, alone = Window(), Window()
    for second in SECONDS:
        window.add(second)
    alone.add(SECONDS[-1])
    found = [line for line in lines if line["event"] == "second"]
    assert [line["second"] for line in found] == [second.second for second in SECONDS]
    last = found[-1]
    row = next(row for row in window.operations() if row.name == "http.sensor_data")
    written = last["operations"]["http.sensor_data"]
    assert written["ok_per_s"] == row.per_s(row.good)
    assert list(written["response_s"].values()) == pytest.approx(row.response.percentiles((50, 95, 99, 99.9)))
    assert list(written["response_s"]) == ["p50", "p95", "p99", "p99.9"]
    assert last["so_far"]["ok"] == window.counts["ok"]  # type: ignore[index] # a StrEnum's own word
    assert (last["phase"]["name"], last["waiting_for"]) == ("storm", "online >= 99%")
    assert last["workers"] == {"0": "running", "1": "dead"}
    assert last["gaps"][0]["worker"] == 1
    assert last["alone"]["ok_per_s"] == alone.whole().per_s(alone.whole().good)


def test_a_run_that_never_ended_says_so_in_its_last_line(tmp_path):
    with pytest.raises(ConfigurationError), ProgressView(str(tmp_path / "p.jsonl"), RECORD, pytest.fail):
        raise ConfigurationError(["the service does not take the keys"])
    last = lines_of(tmp_path / "p.jsonl")[-1]
    assert (last["event"], last["verdict"]) == ("end", None)
    assert "does not take the keys" in last["error"]


def test_a_full_disk_costs_lines_and_not_the_run(tmp_path, monkeypatch):
    path, complaints, write, room = tmp_path / "p.jsonl", [], os.write, [True]

    def full(descriptor: int, content: bytes) -> int:
        if room[0]:
            return write(descriptor, content)
        write(descriptor, content[:10])  # half a line is there already
        raise OSError(errno.ENOSPC, "No space left on device")

    with ProgressView(str(path), RECORD, complaints.append) as progress:
        monkeypatch.setattr(line_file.os, "write", full)
        room[0] = False
        progress.second(SECONDS[0], RunStatus())
        progress.second(SECONDS[1], RunStatus())
        room[0] = True
        progress.second(SECONDS[2], RunStatus())
        progress.end(RECORD)
    assert [line["event"] for line in lines_of(path)] == ["run", "second", "end"]
    (complaint,) = complaints
    assert "No space left on device; the run goes on" in complaint


def names_in(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(names_in, value))
    return {*value, *names_in(list(value.values()))} if isinstance(value, dict) else set()


def test_every_member_stands_in_the_documents(lines):
    document = (Path(__file__).parents[5] / "docs" / "fleet.md").read_text()
    described = document.partition("--progress\n")[2].partition("\n## ")[0]
    found = names_in(lines) - set(RECORD.operations) - {"ok", "limited", "transport", "timeout", "0", "1"}
    assert not {name for name in found if f"`{name}`" not in described}
