"""The live view: it fits its terminal, says what matters first, and is plain lines or nothing elsewhere."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.screen import Screen
from rich.text import Text

from simulator.fleet.record import GeneratorHealth, Second
from simulator.fleet.report.formatting import DASH, clock_text, count_text, percent_text, short_count, time_text
from simulator.fleet.report.live import run_view
from simulator.fleet.report.live_screen import ScreenState, frame
from simulator.fleet.report.run_status import (
    RunHead,
    RunStatus,
    StreamSoFar,
    WorkerState,
    WorkerStatus,
    spans_under_way,
)
from simulator.fleet.report.window import Window
from simulator.report_parts.values import Tone
from tests.fleet_runs import Shape, a_run

SHAPE = Shape(duration_s=40, rate_per_s=60)
RECORD, SECONDS = a_run(SHAPE)
HEAD = RunHead("steady", "core", "http_poll", "http://t", 10_000, 2, RECORD.phases, RECORD.faults, 40.0)


def standing_at(second: int) -> RunStatus:
    phases = spans_under_way(RECORD.phases, second)
    workers = (
        WorkerStatus(0, WorkerState.RUNNING, 5000),
        WorkerStatus(1, WorkerState.DEAD if second > 23 else WorkerState.RUNNING, 5000),
    )
    return RunStatus(
        phases[0] if phases else None,
        "online >= 99%",
        spans_under_way(RECORD.faults, second),
        workers,
        {"readings": StreamSoFar(900, 890, 7)},
        tuple(replace(gap, to_s=min(gap.to_s, second + 1.0)) for gap in RECORD.gaps if gap.from_s <= second),
    )


def picture_at(second: int) -> ScreenState:
    picture = ScreenState(HEAD)
    for each in SECONDS:
        if each.second <= second:
            picture.window.take(each)
    picture.standing = standing_at(second)
    picture.notes = [("green", f"note {number}") for number in range(9)]
    return picture


def shown(second: int, width: int, height: int) -> list[str]:
    """What a terminal of this size has."""
    console = Console(file=io.StringIO(), force_terminal=False, width=width, height=height)
    console.print(Screen(frame(picture_at(second))))
    return console.file.getvalue().rstrip("\n").split("\n")


@pytest.mark.parametrize("width", [40, 80, 160])
@pytest.mark.parametrize("height", [6, 24, 45])
@pytest.mark.parametrize("second", [-1, 17, 38])
def test_a_frame_is_never_larger_than_the_terminal(width, height, second):
    lines = shown(second, width, height)
    assert len(lines) <= height
    assert max(cell_len(line) for line in lines) <= width


def test_a_terminal_shows_what_matters():
    ordinary = "\n".join(shown(17, 120, 30))
    for text in (
        "steady", "0:18 of 0:40", "until online >= 99%", "disconnect_storm: 5,000 devices", "http.sensor_data", "p99.9",
        "service p99", "all", "no connection", "5,000 of 10,000 online", "lag p99", "sent 100 %",
        "900 sent · 890 accepted · 7 unanswered", "2 of 2 at work", "Ctrl-C ends the run",
    ):  # fmt: skip
        assert text in ordinary
    later = "\n".join(shown(38, 160, 45))
    for text in ("1 of 2 at work · 1 is dead", "gap", "killed by signal 9", "limited (429)", "note 8"):
        assert text in later


def test_where_it_is_low_the_verdict_of_the_moment_stays():
    lines = "\n".join(shown(17, 120, 6))
    assert "0:18 of 0:40" in lines
    assert "http.poll" in lines
    assert "disconnect_storm" in lines


class Watched(Console):
    """A terminal of a given size that nobody sees."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__(file=io.StringIO(), force_terminal=is_terminal, width=100, height=30, legacy_windows=False)

    @property
    def printed(self) -> str:
        return self.file.getvalue()


def play(console: Console, *, quiet: bool = False) -> str:
    with run_view(console, HEAD, quiet=quiet) as view:
        view.stage("making devices", 1, 10_000)
        view.stage("making devices", 5000, 10_000)
        for second in SECONDS:
            if second.second == 30:
                view.note("[red]worker[/] 1 was killed", Tone.BAD)
            view.show(second, standing_at(second.second))
        view.end(RECORD)
    return console.printed


def test_without_a_terminal_there_is_a_line_every_five_seconds_and_one_for_each_thing_that_happens():
    lines = play(Watched(is_terminal=False)).splitlines()
    assert lines[0] == "steady: 10,000 devices, http_poll, core, http://t"
    assert lines[1].split() == ["0:00", "making", "devices", "(10,000)"]
    clocks = [line.split()[0] for line in lines if "generator lag" in line]
    # A second of the gap is no second: 0:25 to 0:28 are missing.
    assert clocks == ["0:01", "0:06", "0:11", "0:16", "0:21", "0:29", "0:34", "0:39"]
    told = "\n".join(lines)
    for text in ("phase hold begins", "fault disconnect_storm begins: 5,000 devices", "fault disconnect_storm ends"):
        assert told.count(text) == 1, "however short it was"
    assert "| fault link" in told
    begins = {phase.name: clock_text(phase.begin_s) for phase in RECORD.phases}
    for name, clock in begins.items():
        assert f"{clock:>7}  phase {name} begins" in lines, "when it began, not when it was told"
    assert sum("gap: worker 1, 0:24 to 0:28" in line for line in lines) == 1, "in the end"
    assert sum(line.startswith("   0:24  gap: worker 1 reports no seconds: killed by signal 9") for line in lines) == 1
    assert sum("| 1 gap, 4 s of workers" in line for line in lines) == 3, "in each line from then on"
    assert any("[red]worker[/] 1 was killed" in line for line in lines)
    assert any("worker 1 dead" in line for line in lines)
    assert "\x1b" not in "".join(lines)


def test_on_a_terminal_the_screen_is_given_back_and_the_summary_stays():
    printed = play(Watched(is_terminal=True))
    begun, ended = printed.index("\x1b[?1049h"), printed.index("\x1b[?1049l")
    assert begun < printed.index("http.sensor_data") < ended
    left = Text.from_ansi(printed[ended:]).plain
    for text in ("was killed", "Data was lost or changed.", "audit.lost == 0", "2 lost", "http.sensor_data", "p99.9"):
        assert text in left


def test_a_screen_is_given_back_after_an_error_too():
    console = Watched(is_terminal=True)
    with pytest.raises(KeyboardInterrupt), run_view(console, HEAD):
        raise KeyboardInterrupt
    assert console.printed.rstrip().endswith("\x1b[?25h") or "\x1b[?1049l" in console.printed


def test_quiet_is_nothing_at_all():
    assert play(Watched(is_terminal=True), quiet=True) == ""


def test_the_window_forgets_what_is_older_than_ten_seconds_also_over_a_gap():
    window = Window()
    first, last = SECONDS[0], SECONDS[-1]
    window.take(first)
    window.take(Second(100, last.operations, last.gauges, GeneratorHealth(sent=1, intended=2)))
    good = sum(kinds["ok"].count for kinds in last.operations.values())
    assert window.span_s() == 1
    assert window.whole().per_s(window.whole().good) == good
    assert window.health.intended == 2
    assert window.intended == first.health.intended + 2


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (time_text(0.0008504), "850 µs"), (time_text(0.0009996), "1.00 ms"), (time_text(0.00342), "3.42 ms"),
        (time_text(0.09996), "100 ms"), (time_text(0.9999), "1.00 s"), (time_text(61.2), "61.2 s"), (time_text(0), "0"),
        (time_text(None), DASH), (time_text(float("nan")), DASH),
        (count_text(12345.0), "12,345"), (count_text(2.5), "2.5"),
        (short_count(9999), "9,999"), (short_count(12345), "12.3k"), (short_count(4_560_000), "4.56M"),
        (clock_text(65), "1:05"), (clock_text(7200), "2:00:00"), (percent_text(0.99999), "99.99 %"),
        (percent_text(1.0), "100 %"), (percent_text(0.000001), "< 0.01 %"), (percent_text(0), "0 %"),
    ],
)  # fmt: skip
def test_numbers_are_short_and_never_better_than_they_are(shown, text):
    assert shown == text
