"""The control paths of runs: what is there, what is refused, and what somebody else's folder cannot do."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from simulator.console.app import make_console
from simulator.console.runs.answers import SANDBOX
from simulator.console.runs.runs import RunSettings
from simulator.fleet.report.folder import RunFolder
from simulator.fleet.report.making import finish_run
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.console_pages import ConsoleBench, running_console
from tests.fleet_runs import Shape, a_run

RUNS = "/_emulator/runs"
SHAPE = Shape(duration_s=40, rate_per_s=40, good=True)
BAD = "scenario: bad\nfleet:\n  devcies: 3\n"
FOREIGN = "scenario: foreign\ntarget: {base_url: https://staging.example.com}\nfleet: {devices: 1}\n"


def keep(folder: Path, seed: int = 1) -> Path:
    record, seconds = a_run(replace(SHAPE, seed=seed))
    with RunFolder(folder) as made:
        for second in seconds:
            made.append(second)
        finish_run(made, replace(record, seconds=len(seconds)))
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("console")
    for number in (1, 2, 3):
        keep(folder / "runs" / f"steady-{number}", number)
    broken = keep(folder / "runs" / "broken")
    (broken / "run.json").write_text("{")
    (folder / "scenarios").mkdir()
    (folder / "scenarios" / "bad.yaml").write_text(BAD)
    (folder / "scenarios" / "foreign.yaml").write_text(FOREIGN)
    (folder / "secret.txt").write_text("msk_secret")
    return folder


@pytest.fixture(scope="module")
def console(place: Path) -> Iterator[ConsoleBench]:
    with running_console(RunSettings(place / "runs", place / "scenarios")) as bench:
        yield bench


def refused(answer: Any, status: int, error: str) -> str:
    assert (answer.status_code, answer.json()["error"]) == (status, error), answer.text
    return str(answer.json()["message"])


def events_of(text: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for block in text.split("\n\n"):
        members = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        if "data" in members:
            found.append((members["event"], json.loads(members["data"])))
    return found


def test_runs_are_listed_with_their_verdicts_a_part_at_a_time(console: ConsoleBench, place: Path) -> None:
    whole = console.http.get(RUNS).json()
    assert {run["id"]: run["state"] for run in whole["data"]} == {
        "steady-1": "ended", "steady-2": "ended", "steady-3": "ended", "broken": "unreadable",
    }  # fmt: skip
    assert (whole["total"], whole["folder"], whole["scenarios"]) == (
        4, str(place / "runs"), str(place / "scenarios")
    )  # fmt: skip
    part = console.http.get(RUNS, params={"q": "STEADY", "offset": 1, "limit": 1}).json()
    assert (len(part["data"]), part["total"]) == (1, 3)
    assert part["data"][0]["verdict"]["word"] == "passed"


@pytest.mark.parametrize("query", [{"limit": "0"}, {"limit": "201"}, {"offset": "-1"}, {"limit": "x"}, {"limt": "1"}])
def test_a_list_of_another_form_is_refused(console: ConsoleBench, query: dict[str, str]) -> None:
    refused(console.http.get(RUNS, params=query), 400, "validation_error")


@pytest.mark.parametrize("run_id", ["none", "%2e%2e%2fsecret", "..%2f..%2fetc", ".hidden", "a%00b"])
@pytest.mark.parametrize("path", ["", "/report", "/events", "/run.json"])
def test_a_run_that_is_not_there_is_404_whatever_its_name(console: ConsoleBench, run_id: str, path: str) -> None:
    answer = console.http.get(f"{RUNS}/{run_id}{path}")
    assert answer.status_code == 404
    assert "msk_secret" not in answer.text


def test_a_report_is_a_page_that_can_do_nothing_to_the_service(console: ConsoleBench) -> None:
    answer = console.http.get(f"{RUNS}/steady-1/report")
    assert answer.status_code == 200
    assert "Everything held" in answer.text
    assert answer.headers["content-security-policy"] == SANDBOX
    assert SANDBOX.startswith("sandbox allow-scripts;")
    assert "allow-same-origin" not in SANDBOX
    assert "connect-src" not in SANDBOX  # so that default-src 'none' holds
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "SAMEORIGIN"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_files_are_text_and_only_those_of_the_run(console: ConsoleBench, place: Path) -> None:
    answer = console.http.get(f"{RUNS}/steady-1/summary.csv")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert answer.text == (place / "runs" / "steady-1" / "summary.csv").read_text()
    page = console.http.get(f"{RUNS}/steady-1/report.html")
    assert page.headers["content-security-policy"] == SANDBOX
    for name in ("none.csv", "..%2f..%2fsecret.txt", ".running", "audit"):
        refused(console.http.get(f"{RUNS}/steady-1/{name}"), 404, "file_not_found")


def test_links_in_a_run_lead_nowhere(console: ConsoleBench, place: Path, request: pytest.FixtureRequest) -> None:
    run = place / "runs" / "hostile"
    run.mkdir()
    request.addfinalizer(lambda: [*map(Path.unlink, run.iterdir()), run.rmdir()])
    (run / "run.json").write_text("{}")
    for name in ("report.html", "summary.csv", "progress.jsonl"):
        (run / name).symlink_to(place / "secret.txt")
    refused(console.http.get(f"{RUNS}/hostile/report"), 409, "file_refused")
    refused(console.http.get(f"{RUNS}/hostile/summary.csv"), 404, "file_not_found")
    refused(console.http.get(f"{RUNS}/hostile/events"), 409, "not_watchable")
    refused(console.http.post(f"{RUNS}/hostile/report", json={}), 409, "report_not_made")
    assert (place / "secret.txt").read_text() == "msk_secret"


def test_a_report_is_made_anew_and_a_damaged_run_says_why_not(console: ConsoleBench, place: Path) -> None:
    (place / "runs" / "steady-3" / "report.html").unlink()
    assert "POST to this path" in refused(console.http.get(f"{RUNS}/steady-3/report"), 404, "report_not_found")
    made = console.http.post(f"{RUNS}/steady-3/report", json={}, timeout=120)
    assert made.status_code == 200, made.text
    assert "report.html" in made.json()["files"]
    message = refused(console.http.post(f"{RUNS}/broken/report", json={}, timeout=120), 409, "report_not_made")
    assert "run.json: no JSON" in message


def test_a_scenario_is_shown_with_its_faults(console: ConsoleBench) -> None:
    listed = console.http.get("/_emulator/scenarios").json()["data"]
    assert [one["name"] for one in listed] == ["bad.yaml", "foreign.yaml"]
    found = console.http.get("/_emulator/scenarios/bad.yaml", timeout=120).json()
    assert (found["text"], found["plan"]) == (BAD, None)
    assert {"line": 3, "column": 3, "text": "fleet.devcies: is no key of a scenario; did you mean 'devices'?"} in found[
        "faults"
    ]


def test_a_scenario_with_faults_or_for_somebody_elses_server_is_not_started(console: ConsoleBench, place: Path) -> None:
    answer = console.http.post(RUNS, json={"scenario": "bad.yaml"}, timeout=120)
    assert "did you mean 'devices'" in refused(answer, 400, "invalid_scenario")
    assert {
        "field": "line 3, column 3",
        "issue": "fleet.devcies: is no key of a scenario; did you mean 'devices'?",
    } in (answer.json()["details"])
    answer = console.http.post(RUNS, json={"scenario": "foreign.yaml"})
    assert "staging.example.com" in refused(answer, 400, "foreign_target")
    refused(console.http.post(RUNS, json={"scenario": "../secret.yaml"}), 404, "scenario_not_found")
    refused(console.http.post(RUNS, json={"scenari": "bad.yaml"}), 400, "validation_error")
    assert sorted(path.name for path in (place / "runs").iterdir()) == ["broken", "steady-1", "steady-2", "steady-3"]


def test_without_scenarios_nothing_is_started_and_runs_are_shown_all_the_same(place: Path) -> None:
    with running_console(RunSettings(place / "runs")) as bench:
        assert bench.http.get(RUNS).json()["scenarios"] is None
        assert "--scenarios DIR" in refused(bench.http.post(RUNS, json={"scenario": "bad.yaml"}), 409, "no_scenarios")
        refused(bench.http.get("/_emulator/scenarios"), 409, "no_scenarios")


def test_a_service_whose_secret_nobody_gave_starts_no_run_and_says_what_to_give(place: Path, tmp_path: Path) -> None:
    (place / "scenarios" / "good.yaml").write_text("scenario: x\nfleet: {devices: 1}\n")
    made = functools.partial(make_console, settings=RunSettings(place / "runs", place / "scenarios"))
    config = ServiceConfig(data_dir=tmp_path / "data", log_level="warning")
    with RunningService(config):
        pass  # it makes keys, and shows them this once
    with RunningService(config, make_addition=made) as service:
        answer = httpx.post(service.base_url + RUNS, json={"scenario": "good.yaml"}, trust_env=False)
    assert "--secret-key" in refused(answer, 409, "secret_unknown")
    (place / "scenarios" / "good.yaml").unlink()


def test_a_run_of_another_program_is_not_stopped_from_here(console: ConsoleBench) -> None:
    message = refused(console.http.post(f"{RUNS}/steady-1/stop", json={}), 404, "run_not_started_here")
    assert "Ctrl-C" in message
    refused(console.http.post(f"{RUNS}/none/stop", json={}), 404, "run_not_found")


def test_the_progress_of_a_run_that_is_over_is_streamed_to_its_end(console: ConsoleBench, place: Path) -> None:
    assert "--progress" in refused(console.http.get(f"{RUNS}/steady-1/events"), 409, "not_watchable")
    path = place / "runs" / "steady-2" / "progress.jsonl"
    lines = [{"event": "run", "scenario": "x"}, {"event": "second", "second": 1}, {"event": "end", "verdict": None}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    answer = console.http.get(f"{RUNS}/steady-2/events")
    assert answer.headers["content-type"] == "text/event-stream"
    found = events_of(answer.text)
    assert [event for event, _ in found] == ["state", "run", "second", "end", "over"]
    assert found[-1][1]["verdict"]["word"] == "passed"
    place_of_second = answer.text.split("id: ")[2].split("\n")[0]
    later = console.http.get(f"{RUNS}/steady-2/events", headers={"last-event-id": place_of_second})
    assert [event for event, _ in events_of(later.text)] == ["state", "end", "over"]
    for odd in ("9" * 5000, "-1", "x", "999999999999999"):
        answer = console.http.get(f"{RUNS}/steady-2/events", headers={"last-event-id": odd})
        assert [event for event, _ in events_of(answer.text)] == ["state", "run", "second", "end", "over"], odd


def test_a_web_page_of_another_origin_starts_and_stops_nothing(console: ConsoleBench) -> None:
    foreign = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    for path in (RUNS, f"{RUNS}/steady-1/stop", f"{RUNS}/steady-1/report"):
        assert console.http.post(path, json={}, headers=foreign).status_code == 403


def test_every_path_stands_in_the_document(console: ConsoleBench) -> None:
    paths = console.http.get("/_emulator/openapi.json").json()["paths"]
    assert {path for path in paths if "/run" in path or "/scenarios" in path} == {
        RUNS,
        f"{RUNS}/{{id}}",
        f"{RUNS}/{{id}}/events",
        f"{RUNS}/{{id}}/stop",
        f"{RUNS}/{{id}}/report",
        f"{RUNS}/{{id}}/{{name}}",
        "/_emulator/scenarios",
        "/_emulator/scenarios/{name}",
    }
