"""``plan --signals``: the first day of each reading in the terminal, as JSON and as a page."""

from __future__ import annotations

import html
import json
import math
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulator.cli import program
from simulator.fleet.models.day import SignalDay
from simulator.fleet.report.signal_plots import signals_page, terminal_plots

DAY_S = 86_400
SCENARIO = """\
scenario: look
fleet:
  devices: 4
  models:
    - name: tank
      signals:
        half: {kind: steps, phase: in_step, unit: litres, steps: [{value: 2, for_s: 12h}, {value: 8, for_s: 12h}]}
        wave: {kind: sine, mean: 10, amplitude: 4, period_s: 1d, phase: 0}
      telemetry: {every_s: 1m}
phases: [{name: hold, kind: hold, duration_s: 1m}]
"""


def day_of(samples: list[float | None], name: str = "level", unit: str = "m") -> SignalDay:
    return SignalDay("tank", name, unit, 0.0, DAY_S / len(samples), {0: samples})


def plan(tmp_path: Path, *arguments: str, text: str = SCENARIO, columns: int = 83) -> tuple[int, str]:
    path = tmp_path / "look.yaml"
    path.write_text(text)
    given = ["plan", str(path), *arguments]
    result = CliRunner().invoke(program, given, standalone_mode=False, env={"COLUMNS": str(columns)})
    if result.exception is None:
        return int(result.return_value), result.output
    return getattr(result.exception, "exit_code", -1), str(getattr(result.exception, "message", result.exception))


def rows_of(lines: list[str]) -> list[str]:
    """The plot of the lines alone, the top first, as wide as the clock below it."""
    width = max(map(len, lines))
    return [line[13:].ljust(width - 13) for line in lines if line[12:13] == "|"]


def test_a_value_stands_at_its_hour_and_height():
    lines = list(terminal_plots([day_of([2.0] * 720 + [8.0] * 720)], 13 + 48))
    assert lines[0] == "tank  level (m), device 1"
    assert lines[1].strip() == "2 to 8, mean 5"
    rows = rows_of(lines)
    assert rows == ["".rjust(24) + "*" * 24, *[" " * 48] * 5, "*" * 24 + " " * 24]
    assert [line[:11].strip() for line in lines[2:9]] == ["8", "", "", "5", "", "", "2"]
    assert lines[-1] == "             00:00       06:00       12:00       18:00  24:00"


def test_what_lasts_one_sample_is_seen_and_the_mean_is_marked():
    samples = [0.0] * 5760
    samples[2880] = 1.0
    rows = rows_of(list(terminal_plots([day_of(samples)], 13 + 60)))
    assert [row[30] for row in rows] == ["|", "|", "|", "|", "|", "|", "*"], "the spike over its mean"
    assert all(row[:30].strip() == row[31:].strip() == "" for row in rows[:-1])


def test_a_device_that_is_off_leaves_its_time_empty_and_the_share_is_said():
    lines = list(terminal_plots([day_of([1.0] * 300 + [None] * 300 + [3.0] * 600)], 13 + 60))
    assert "none in 25% of the day" in lines[1]
    assert [row[15:30] for row in rows_of(lines)] == [" " * 15] * 7
    nothing = list(terminal_plots([day_of([None] * 10)], 80))
    assert len(nothing) == 2
    assert "reads nothing on this day" in nothing[1]


def test_one_value_all_day_is_one_line():
    lines = list(terminal_plots([day_of([21.5] * 100)], 60))
    assert rows_of(lines) == ["*" * 47]
    assert lines[2].startswith("       21.5 |*")


@pytest.mark.parametrize("width", [33, 40, 57, 58, 80, 132, 250])
@pytest.mark.parametrize("count", [1, 7, 1440])
def test_a_plot_is_never_wider_than_the_terminal_and_of_plain_characters(width, count):
    values = [math.sin(at / 50) * 1e9 for at in range(count)]
    for line in terminal_plots([day_of(values, "a_very_long_name_of_a_reading_of_this_tank" * 2)], width):
        assert len(line) <= width
        assert line.isascii()
        assert line == line.rstrip()


def test_plan_plots_each_reading_as_wide_as_the_terminal_from_midnight_on(tmp_path):
    code, said = plan(tmp_path, "--signals")
    assert code == 0
    plots = said.partition("\ntank  ")[2]
    assert plots.startswith("half (litres), device 1\n             2 to 8, mean 5\n          8 |")
    assert max(map(len, plots.splitlines())) == 83
    top = next(line for line in plots.partition("wave, device 1")[2].splitlines() if line.startswith("         14 |"))
    assert (top.index("*") + top.rindex("*")) / 2 - 13 == pytest.approx(70 / 4, abs=1), "the wave is highest at 06:00"
    assert "tank  half" not in plan(tmp_path)[1]


def test_plan_has_the_values_as_json_and_only_where_they_are_asked_for(tmp_path):
    found = json.loads(plan(tmp_path, "--signals", "--json")[1])
    half, wave = found["signals"]
    assert (half["name"], half["unit"], half["step_s"], half["begin_s"] % DAY_S) == ("half", "litres", 60.0, 0)
    assert list(half["devices"]) == ["0", "1", "2"], "the first three"
    assert half["devices"]["0"] == [2.0] * 720 + [8.0] * 720
    wanted = [10 + 4 * math.sin(math.tau * at / 1440) for at in range(1440)]
    assert wave["devices"]["1"] == pytest.approx(wanted, abs=0.0051), "two decimals"
    assert "signals" not in json.loads(plan(tmp_path, "--json")[1])


def test_readings_of_a_state_and_of_a_battery_are_there_and_stop_while_it_is_empty(tmp_path):
    text = SCENARIO.replace(
        "      telemetry",
        "      battery: {reading: battery_percent, life_s: 6h, dead_s: 1h, charge_s: 1h}\n      telemetry",
    )
    found = {each["name"]: each for each in json.loads(plan(tmp_path, "--signals", "--json", text=text)[1])["signals"]}
    samples = found["battery_percent"]["devices"]["0"]
    assert max(value for value in samples if value is not None) > 99
    assert 60 <= samples.count(None) <= 240, "an hour each time, three times at the most, and a spread"


class Page(HTMLParser):
    """What a page loads, and its paths and headings."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.paths: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.loaded += [str(value) for name, value in attributes if name in {"src", "href"} and value != "#main"]
        if tag == "script":
            self.loaded.append("script")
        if tag == "path":
            self.paths.append(str(found["d"]))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_has_a_line_for_each_device_and_loads_nothing(tmp_path):
    target = tmp_path / "signals.html"
    code, said = plan(tmp_path, "--html", str(target))
    assert code == 0
    assert said.endswith(f"signals: {target}\n")
    text = target.read_text()
    page = Page(text)
    assert page.loaded == []
    assert "default-src 'none'" in html.unescape(text)
    assert len(page.paths) == 6
    for words in ("half (litres)", "2 to 8, mean 5", "device 3", "24:00", "tank", "look"):
        assert words in page.text
    assert page.paths[0].startswith("M0.5 ")
    heights = [float(part.split(" ")[1].rstrip("h0.5")) for part in page.paths[0].replace("M", "L").split("L")[1:]]
    assert heights[0] > 140, "low at midnight"
    assert heights[-1] < 10, "high at the end"


def test_a_line_of_the_page_breaks_where_nothing_was_read():
    (path,) = Page(signals_page("x", [day_of([1.0] * 10 + [None] * 10 + [2.0] * 10)])).paths
    assert path.count("M") == 2


def test_names_are_data_and_no_markup():
    text = signals_page("<script>", [day_of([1.0], "<b>", "<i>")])
    assert "<b>" not in text
    assert "<script>" not in text
    assert "&lt;b&gt;" in text


def test_a_page_that_cannot_be_written_is_one_line(tmp_path):
    code, said = plan(tmp_path, "--html", str(tmp_path / "none" / "x.html"))
    assert code == 2
    assert "cannot write" in said
    assert "another --html" in said
