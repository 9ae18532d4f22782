"""The views of a run that goes on: a picture that fits its terminal, plain lines elsewhere, JSON lines for programs."""

from __future__ import annotations

import io
import json
from contextlib import ExitStack
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
from simulator.fleet.report.formatting import DASH, Tone, clock_text, percent_text, time_text
from simulator.fleet.report.live import ConsoleView
from simulator.fleet.report.progress import PROGRESS_FORMAT, Progress, ProgressFile, RunView
from tests.support.fleet_runs import Shape, a_run

RECORD, SECONDS = a_run(Shape(duration_s=40, rate_per_s=60))


def tell(progress: Progress, second: Second) -> None:
    """A second with all that may be under way in it."""
    at = second.second
    phase = next(span for span in RECORD.phases if span.begin_s <= at < span.end_s)
    faults = [span for span in RECORD.faults if span.begin_s <= at < span.end_s]
    gaps = [replace(gap, to_s=min(gap.to_s, at + 1.0)) for gap in RECORD.gaps if gap.from_s <= at]
    workers = {0: "running", 1: "dead" if at > 23 else "running"}
    progress.second(second, phase=phase, waiting_for="online >= 99%", faults=faults, workers=workers, gaps=gaps)


def unseen(*, is_terminal: bool, width: int = 100, height: int = 30) -> Console:
    """A terminal of a given size that nobody sees."""
    return Console(file=io.StringIO(), force_terminal=is_terminal, width=width, height=height, legacy_windows=False)


def shown(last: int, width: int, height: int) -> list[str]:
    """What a terminal of this size has."""
    with ConsoleView(unseen(is_terminal=True, width=width, height=height)) as view:
        progress = Progress([view])
        progress.begin(RECORD)
        for second in SECONDS[: last + 1]:
            tell(progress, second)
        console = unseen(is_terminal=False, width=width, height=height)
        console.print(Screen(view.picture()))
        return console.file.getvalue().rstrip("\n").split("\n")


def play(*views: RunView) -> None:
    with ExitStack() as ends:
        progress = Progress([ends.enter_context(view) for view in views])
        progress.begin(RECORD)
        progress.stage("preparing devices", 1, 10_000)
        progress.stage("preparing devices", 5000, 10_000)
        for second in SECONDS:
            if second.second == 30:
                progress.note("[red]worker[/] 1 was killed", Tone.BAD)
            tell(progress, second)
        progress.end(RECORD)


@pytest.mark.parametrize(("width", "height"), [(40, 6), (80, 24), (160, 45)])
@pytest.mark.parametrize("second", [-1, 17, 38])
def test_a_picture_is_never_larger_than_the_terminal(width, height, second):
    lines = shown(second, width, height)
    assert len(lines) <= height
    assert max(cell_len(line) for line in lines) <= width


def test_on_a_terminal_the_screen_is_given_back_and_the_summary_stays():
    console = unseen(is_terminal=True)
    play(ConsoleView(console))
    printed = console.file.getvalue()
    begun, ended = printed.index("\x1b[?1049h"), printed.index("\x1b[?1049l")
    assert begun < printed.index("http.sensor_data") < ended
    left = Text.from_ansi(printed[ended:]).plain
    for text in ("was killed", "Data was lost or changed.", "audit.lost == 0", "2 lost", "http.sensor_data", "p99.9"):
        assert text in left


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (time_text(0.0009996), "1.00 ms"), (time_text(0.9999), "1.00 s"), (time_text(float("nan")), DASH),
        (clock_text(7200), "2:00:00"),
        (percent_text(0.99999), "99.99 %"), (percent_text(0.000001), "< 0.01 %"),
    ],
)  # fmt: skip
def test_numbers_are_short_and_never_better_than_they_are(shown, text):
    assert shown == text


# --- JSON lines -------------------------------------------------------------------------------------------------------


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]


@pytest.fixture
def lines(tmp_path: Path) -> list[dict[str, Any]]:
    play(RunView(), ProgressFile(str(tmp_path / "p.jsonl"), pytest.fail))
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


def test_a_run_that_never_ended_says_so_in_its_last_line(tmp_path):
    view = ProgressFile(str(tmp_path / "p.jsonl"), pytest.fail)
    Progress([view]).begin(RECORD)
    error = ConfigurationError(["the service does not take the keys"])
    view.__exit__(ConfigurationError, error, None)
    last = lines_of(tmp_path / "p.jsonl")[-1]
    assert (last["event"], last["verdict"]) == ("end", None)
    assert "does not take the keys" in last["error"]


def names_in(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(names_in, value))
    return {*value, *names_in(list(value.values()))} if isinstance(value, dict) else set()


def test_every_member_stands_in_the_documents(lines):
    document = (Path(__file__).parents[5] / "docs" / "fleet.md").read_text()
    described = document.partition("--progress\n")[2].partition("\n## ")[0]
    found = names_in(lines) - set(RECORD.operations) - {"ok", "limited", "transport", "timeout", "0", "1"}
    assert not {name for name in found if f"`{name}`" not in described}
