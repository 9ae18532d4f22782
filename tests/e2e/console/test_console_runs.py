"""The pages of fleet runs, in Chromium: a scenario started, watched, stopped; reports in place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import Browser, Page, expect

from simulator.console.runs.runs import RunSettings
from simulator.fleet.report.folder import RunFolder
from simulator.fleet.report.live import SilentView
from simulator.fleet.report.making import finish_run
from simulator.fleet.report.progress_lines import ProgressView
from simulator.fleet.report.run_status import RunHead, RunStatus, StreamSoFar, WorkerState, WorkerStatus
from tests.console_pages import (
    ALL_LOOKS,
    DESKTOP,
    PHONE,
    REFUSED,
    ConsoleBench,
    faults_of,
    has_no_overflow,
    open_page,
    running_console,
)
from tests.fleet_runs import Shape, a_run

pytestmark = pytest.mark.long

SHAPE = Shape(duration_s=40, rate_per_s=40, good=True)
RECORD, SECONDS = a_run(replace(SHAPE, good=False))


def scenario(hold: str, **more: Any) -> str:
    """Ten devices with a reading a second and a few commands."""
    document = {
        "scenario": "short",
        "seed": 5,
        "target": {"transport": "http_long_poll"},
        "fleet": {
            "devices": 10,
            "models": [
                {"signals": {"temperature_celsius": {"kind": "constant", "value": 21}}, "telemetry": {"every_s": 1}},
            ],
        },
        "commands": [{"payload": {"command": "ping"}, "rate_per_s": 2}],
        "faults": [{"kind": "disconnect_storm", "at_s": 2, "duration_s": 3, "share": 0.5}],
        "phases": [
            {"name": "ramp", "kind": "ramp", "duration_s": 1, "until": "online >= 100%"},
            {"name": "hold", "kind": "hold", "duration_s": hold},
        ],
        "drain_s": 20,
        "thresholds": ["audit.lost == 0"],
    }  # fmt: skip
    return yaml.safe_dump({**document, **more})


def keep(folder: Path, seed: int = 1) -> Path:
    """A run that ended, with its reports."""
    record, seconds = a_run(replace(SHAPE, seed=seed))
    with RunFolder(folder) as made:
        for second in seconds:
            made.append(second)
        finish_run(made, replace(record, seconds=len(seconds)))
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    keep(folder / "runs" / "steady-1")
    keep(folder / "runs" / "steady-2", seed=2)
    (folder / "runs" / "foreign").mkdir()
    (folder / "runs" / "foreign" / "run.json").write_text('{"format": "<b>somebody-elses</b>/7"}')
    (folder / "scenarios").mkdir()
    (folder / "scenarios" / "short.yaml").write_text(scenario("6s"))
    (folder / "scenarios" / "long.yaml").write_text(scenario("10m"))
    (folder / "scenarios" / "wrong.yaml").write_text(scenario("6s", fleett={"devices": 3}))
    (folder / "scenarios" / "foreign.yaml").write_text(scenario("6s", target={"base_url": "http://203.0.113.7:8080"}))
    return folder


@pytest.fixture(scope="module")
def console(place: Path) -> Iterator[ConsoleBench]:
    with running_console(RunSettings(place / "runs", place / "scenarios")) as bench:
        yield bench


def choose(page: Page, name: str) -> None:
    page.goto("/console/runs")
    page.get_by_role("button", name="Start a run").first.click()
    page.get_by_label("Scenario", exact=True).select_option(name)


def test_a_scenario_is_started_watched_and_its_report_opens_in_place(open_at):
    with open_at("/console/runs", expected=[REFUSED]) as page:
        choose(page, "short.yaml")
        expect(page.get_by_text("ramp, hold")).to_be_visible()
        page.get_by_role("button", name="Start the run").click()
        expect(page.get_by_role("heading", name="short-")).to_be_visible()
        # While it goes on: rates, percentiles, phases, faults, audit.
        expect(page.get_by_role("heading", name="Answers per second")).to_be_visible()
        expect(page.locator(".live-plot canvas")).to_have_count(2)
        expect(page.get_by_role("row", name="http.sensor_data")).to_contain_text("/s")
        expect(page.get_by_text("10 of 10", exact=True).first).to_be_visible()
        expect(page.get_by_text("fault disconnect_storm begins: 5 devices")).to_be_visible()
        expect(page.get_by_role("heading", name="Audit so far")).to_be_visible()
        # Then: the verdict, and the report in a frame, whose scripts have drawn its plots.
        expect(page.get_by_text("nothing was lost, doubled or altered").first).to_be_visible()
        report = page.frame_locator("iframe.report-frame")
        expect(report.get_by_role("heading", level=1)).to_have_text("Everything held.")
        expect(report.locator(".plot canvas").first).to_be_attached()
        page.get_by_role("link", name="Runs").last.click()
        expect(page.get_by_role("row").filter(has_text="short-").first).to_contain_text("passed")


def test_a_run_is_stopped_in_order_and_its_devices_are_nobody_elses_meanwhile(open_at, console):
    with open_at("/console/runs", expected=[REFUSED]) as page:
        choose(page, "long.yaml")
        page.get_by_role("button", name="Start the run").click()
        expect(page.get_by_role("row", name="http.sensor_data")).to_be_visible()
        name = page.url.rpartition("/")[2]
        refused = console.http.post("/_emulator/runs", json={"scenario": "short.yaml"})
        assert (refused.status_code, refused.json()["error"]) == (409, "run_refused")
        assert "another run of this machine uses these devices" in refused.json()["message"]
        page.get_by_role("button", name="Stop", exact=True).click()
        again = console.http.post(f"/_emulator/runs/{name}/stop", json={})
        assert again.status_code in {200, 409}  # it is being stopped, or has ended: nothing is cut off
        expect(page.get_by_text("ended by hand before its time").first).to_be_visible()
        expect(page.locator(".head .badge")).to_have_text("interrupted")
        run = console.http.get(f"/_emulator/runs/{name}").json()
        assert (run["state"], run["verdict"]["exit_code"], run["lost"]) == ("ended", 130, 0)
        late = console.http.post(f"/_emulator/runs/{name}/stop", json={})
        assert (late.status_code, late.json()["error"]) == (409, "run_not_running")


def test_faults_of_a_scenario_are_shown_with_line_column_and_suggestion(open_at, place):
    with open_at("/console/runs", expected=[REFUSED]) as page:
        choose(page, "wrong.yaml")
        line = place.joinpath("scenarios", "wrong.yaml").read_text().splitlines().index("fleett:") + 1
        expect(page.get_by_role("alert")).to_contain_text(f"line {line}, column 1: fleett: is no key of a scenario")
        expect(page.get_by_role("alert")).to_contain_text("did you mean 'fleet'?")
        expect(page.locator(".scenario-line.wrong")).to_contain_text("fleett:")
        expect(page.get_by_role("button", name="Start the run")).to_be_disabled()
        assert faults_of(page) == []


def test_a_scenario_for_a_foreign_server_is_refused_and_says_where_to_run_it(open_at):
    with open_at("/console/runs", expected=[REFUSED]) as page:
        choose(page, "foreign.yaml")
        page.get_by_role("button", name="Start the run").click()
        expect(page.get_by_role("alert")).to_contain_text("203.0.113.7")
        expect(page.get_by_role("alert")).to_contain_text("--i-own-this-target")


def test_a_run_that_cannot_be_read_says_why_and_its_words_are_text(open_at):
    with open_at("/console/runs") as page:
        expect(page.get_by_role("row").filter(has_text="foreign")).to_contain_text("cannot be read")
        page.get_by_role("link", name="foreign").click()
        expect(page.get_by_text("<b>somebody-elses</b>/7")).to_be_visible()


HOSTILE = """<!doctype html><title>report</title><h1>Report</h1><p id="said"></p><script>
const said = [];
const show = () => { document.getElementById("said").textContent = said.join(", "); };
const attempt = async (name, act) => {
  try { await act(); said.push(name + " worked"); } catch { said.push(name + " refused"); }
};
const reset = {method: "POST", headers: {"content-type": "application/json"}, body: "{}"};
(async () => {
  await attempt("fetch", () => fetch("/_emulator/reset", reset));
  await attempt("cookie", () => document.cookie);
  await attempt("storage", () => localStorage.length);
  if (top !== self) {
    await attempt("parent", () => parent.document.title);
    await attempt("top", () => { top.location = "/console/runs/steady-2"; });
  }
  await attempt("window", () => { if (!open("/console/runs")) throw new Error("no window"); });
  document.body.insertAdjacentHTML("beforeend", "<form method=post action=/_emulator/reset><button>x</button></form>");
  document.forms[0].submit();
  said.push("done");
  show();
})();
</script>"""


def test_a_hostile_report_reaches_neither_the_session_nor_the_service(open_at, console, place):
    product_id = console.product(name="Still there")
    hostile = keep(place / "runs" / "hostile")
    (hostile / "report.html").write_text(HOSTILE)
    complaints = ["Content Security Policy", "sandboxed", "Unsafe attempt", "Blocked", REFUSED]
    with open_at("/console/runs/hostile", expected=complaints) as page:
        frame = page.frame_locator("iframe.report-frame")
        expect(frame.locator("#said")).to_contain_text("done")
        said = frame.locator("#said").inner_text()
        for attempt in ("fetch", "parent", "cookie", "storage", "top", "window"):
            assert f"{attempt} refused" in said, said
        assert page.url.endswith("/console/runs/hostile")
        # In a tab of its own it has an origin of its own as well.
        page.goto("/_emulator/runs/hostile/report")
        expect(page.locator("#said")).to_have_text(
            "fetch refused, cookie refused, storage refused, window refused, done"
        )
    assert console.http.get(f"/products/{product_id}/commands").status_code == 200


@pytest.fixture
def going_on(place: Path) -> Iterator[str]:
    """A run of another program that goes on: its folder is locked, and its progress is written down."""
    folder = place / "runs" / "going-on"
    head = RunHead("steady-10k", "core", "http_poll", "http://t", 10_000, 2, RECORD.phases, RECORD.faults, 40.0)
    workers = tuple(WorkerStatus(number, WorkerState.RUNNING, 5000, 40.0) for number in range(2))
    audit = {"readings": StreamSoFar(900, 890, 7), "commands": StreamSoFar(20, 18, 2)}
    standing = RunStatus(RECORD.phases[1], "online >= 99%", RECORD.faults[:1], workers, audit, RECORD.gaps)
    with RunFolder(folder) as made:
        made.keep(replace(RECORD, ended_at=""))
        with ProgressView(SilentView(), str(folder / "progress.jsonl"), head) as progress:
            for second in SECONDS[:30]:
                progress.show(second, standing)
            yield folder.name
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


@pytest.mark.parametrize("look", ALL_LOOKS)
@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_axe_finds_nothing(open_at, going_on, look, viewport):
    # axe speaks to every frame; that of the report has another origin, and does not listen.
    silent = ["Failed to execute 'postMessage'"]
    with open_at("/console/runs", look=look, viewport=viewport, expected=silent) as page:
        expect(page.get_by_role("link", name=going_on)).to_be_visible()
        assert faults_of(page) == []
        assert has_no_overflow(page)
        page.goto(f"/console/runs/{going_on}")
        expect(page.locator(".live-plot canvas")).to_have_count(2)
        assert faults_of(page) == []
        assert has_no_overflow(page)
        page.goto("/console/runs/steady-1")
        expect(page.locator("iframe.report-frame")).to_be_visible()
        assert faults_of(page) == []
        assert has_no_overflow(page)


def test_a_run_of_another_program_is_watched_and_not_stopped(open_at, going_on, place):
    with open_at(f"/console/runs/{going_on}") as page:
        expect(page.get_by_text("until online >= 99%")).to_be_visible()
        expect(page.get_by_text("Fault half-gone")).to_be_visible()
        expect(page.get_by_text("900 sent, 890 accepted, 7 unanswered")).to_be_visible()
        expect(page.get_by_text("worker 1: ", exact=False).first).to_be_visible()
        expect(page.get_by_role("button", name="Stop")).to_have_count(0)
        with (place / "runs" / going_on / "progress.jsonl").open("a") as file:
            file.write(
                json.dumps({"event": "note", "at_s": 31, "tone": "bad", "text": "<i>worker 0</i> is gone"}) + "\n"
            )
        expect(page.get_by_text("<i>worker 0</i> is gone")).to_be_visible()


def test_without_scenarios_the_dialog_names_the_option(browser: Browser, place: Path, tmp_path: Path):
    with (
        running_console(RunSettings(tmp_path / "none")) as bench,
        open_page(browser, bench, "/console/runs", tmp_path / "failed.png") as page,
    ):
        expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
        assert faults_of(page) == []
        page.get_by_role("button", name="Start a run").first.click()
        expect(page.get_by_text("fleet-simulator up --scenarios DIR")).to_be_visible()
