"""Threads and tasks of a fleet's run, ended by an error from inside: the run says so and is never green."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from agent.wire.secret import Secret
from simulator.exit_codes import ExitCode
from simulator.fleet.audit import readback
from simulator.fleet.record import RunRecord, VerdictStatus
from simulator.fleet.report import making
from simulator.fleet.report.folder import read_record, read_seconds
from simulator.fleet.report.progress import RunView
from simulator.fleet.run import fleet_run
from simulator.fleet.run.fleet_run import perform_run
from simulator.fleet.scenario.reading import read_scenario_file
from simulator.fleet.target.target import TargetOptions, find_target
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.support import sudden_ends
from tests.support.fleet_runs import at_any_speed
from tests.support.sudden_ends import END, Sudden

pytestmark = pytest.mark.long

API_KEY, SECRET_KEY = "mk_sudden_ends", "msk_sudden_ends_0123456789"

WORKER_ENDS: Final = {
    "plan and ledger": "worker 0: plan and ledger ended unexpectedly: Sudden",
    "run.<locals>.wrapper": "worker 0: it ended unexpectedly: Sudden",
    "ledger": "worker 0: ledger-0 ended unexpectedly: Sudden",
    "sender": "worker 0: sender ended unexpectedly: Sudden",
}
"""Parts of a worker, and what the run says of each: it ends as inconclusive, exit code 3."""


@pytest.fixture(autouse=True)
def _at_any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    at_any_speed(monkeypatch)


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    config = ServiceConfig(port=0, api_key=API_KEY, secret_key=Secret(SECRET_KEY), rate_limit=0)
    with RunningService(config) as running:
        yield running


SCENARIO: Final = {
    "scenario": "sudden",
    "seed": 5,
    "workers": 1,
    "target": {"transport": "http_poll", "connections": 8},
    "fleet": {"devices": 3, "models": [{"telemetry": {"every_s": 1}}]},
    "phases": [
        {"name": "hold", "kind": "hold", "duration_s": 3},
        {"name": "rest", "kind": "hold", "duration_s": 1},  # while it is to come, a task waits for its time
    ],
    "drain_s": 60,
    "thresholds": ["audit.lost == 0"],
}


def run(service: RunningService, tmp_path: Path, *views: RunView) -> RunRecord:
    path, secret = tmp_path / "sudden.yaml", tmp_path / "secret"
    path.write_text(yaml.safe_dump(SCENARIO))
    secret.write_text(SECRET_KEY)
    secret.chmod(0o600)
    way = find_target(TargetOptions(service.base_url, API_KEY, secret))
    return perform_run(read_scenario_file(path), way, tmp_path / "run", views)


def check_inconclusive(record: RunRecord, tmp_path: Path, sentence: str) -> None:
    told = " | ".join(record.verdict.sentences)
    assert record.verdict.word is VerdictStatus.INCONCLUSIVE, told
    assert record.verdict.exit_code == ExitCode.INCONCLUSIVE
    assert sentence in told
    assert read_record(tmp_path / "run").verdict == record.verdict


@pytest.mark.parametrize("part", WORKER_ENDS)
def test_a_run_is_inconclusive_when_a_part_of_its_worker_ends(part, service, tmp_path, monkeypatch):
    monkeypatch.setattr(fleet_run, "work", sudden_ends.work)
    monkeypatch.setenv(END, part)
    record = run(service, tmp_path)
    check_inconclusive(record, tmp_path, WORKER_ENDS[part])
    assert record.audit is not None
    assert not record.audit.complete


def end_suddenly(*_: object, **_by_name: object) -> None:
    raise Sudden


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ((readback, "_values_in"), "reading everything back ended unexpectedly: Sudden"),
        ((making, "fleet_page"), "the reports could not be made: Sudden"),
    ],
)
def test_a_run_is_inconclusive_when_what_comes_after_it_ends(function, sentence, service, tmp_path, monkeypatch):
    monkeypatch.setattr(*function, end_suddenly)
    check_inconclusive(run(service, tmp_path), tmp_path, sentence)


class Broken(RunView):
    def show(self, event: Any, source: Any = None) -> None:
        del source
        if event["event"] == "second":
            raise Sudden


def test_a_run_is_inconclusive_when_what_shows_it_ends_and_its_seconds_are_written_all_the_same(service, tmp_path):
    record = run(service, tmp_path, Broken())
    check_inconclusive(record, tmp_path, "what shows the run ended unexpectedly: Sudden")
    assert record.audit is not None
    assert record.audit.complete
    assert [second.second for second in read_seconds(tmp_path / "run")][:4] == [0, 1, 2, 3]
