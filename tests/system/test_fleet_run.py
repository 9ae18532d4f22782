"""Fleet runs with real worker processes against a real service over sockets."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from agent.errors import ConfigurationError
from agent.wire.secret import Secret
from simulator.fleet.metrics.ages import stages_of
from simulator.fleet.record import RunRecord, VerdictStatus
from simulator.fleet.report.folder import read_record, read_seconds
from simulator.fleet.report.progress import RunView
from simulator.fleet.run import fleet_run
from simulator.fleet.run import run as run_module
from simulator.fleet.run.fleet_run import perform_run
from simulator.fleet.scenario.reading import read_scenario_file
from simulator.fleet.target.target import TargetOptions, find_target
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.support.fleet_runs import at_any_speed

API_KEY, SECRET_KEY = "mk_fleet_run", "msk_fleet_run_0123456789"


@pytest.fixture(autouse=True)
def _at_any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    at_any_speed(monkeypatch)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RunningService]:
    config = ServiceConfig(port=0, api_key=API_KEY, secret_key=Secret(SECRET_KEY), rate_limit=0)
    with RunningService(config) as running:
        yield running


def scenario(tmp_path: Path, **changes: Any) -> Path:
    """A short run of thirty devices with two readings each and a few commands."""
    document = {
        "scenario": "short",
        "seed": 5,
        "workers": 2,
        "target": {"transport": "http_long_poll", "connections": 128},
        "fleet": {
            "devices": 30,
            "models": [
                {"signals": {"temperature_celsius": {"kind": "random_walk", "start": 21, "step": 0.1}},
                 "telemetry": {"every_s": 1}},
            ],
        },
        "commands": [{"payload": {"command": "ping"}, "rate_per_s": 5}],
        "phases": [
            {"name": "ramp", "kind": "ramp", "duration_s": 1, "until": "online >= 100%"},
            {"name": "hold", "kind": "hold", "duration_s": 3},
        ],
        "drain_s": 60,
        "thresholds": ["audit.lost == 0", "commands.age.p99 < 60s"],
    }  # fmt: skip
    path = tmp_path / "short.yaml"
    if changes.get("kind") == "requests":
        del document["commands"]
    path.write_text(yaml.safe_dump({**document, **changes}))
    return path


def run(
    service: RunningService,
    tmp_path: Path,
    view: RunView | None = None,
    through: Mapping[str, Any] | None = None,
    **changes: Any,
) -> RunRecord:
    way = replace(find_target(TargetOptions(service.base_url, API_KEY, secret_file(tmp_path))), **(through or {}))
    file = read_scenario_file(scenario(tmp_path, **changes))
    return perform_run(file, way, tmp_path / "run", [view or RunView()])


def secret_file(tmp_path: Path) -> Path:
    secret = tmp_path / "secret"
    secret.write_text(SECRET_KEY)
    secret.chmod(0o600)
    return secret


class Onlooker(RunView):
    """Does one thing when the run is in the middle."""

    def __init__(self, at_second: int, what: Callable[[], None]) -> None:
        self._at_second = at_second
        self._what: Callable[[], None] | None = what

    def show(self, event: Any, source: Any = None) -> None:
        del source
        if event.get("second", -1) >= self._at_second and self._what is not None:
            what, self._what = self._what, None
            what()


def test_a_run_proves_that_nothing_was_lost_and_leaves_its_record(service, tmp_path):
    phases = [
        {"name": "ramp", "kind": "ramp", "duration_s": 1, "until": "online >= 100%"},
        {"name": "hold", "kind": "hold", "duration_s": 7},  # a machine that stands still for seconds leaves enough
    ]
    record = run(service, tmp_path, phases=phases)
    assert record.verdict.word is VerdictStatus.PASSED, record.verdict
    assert record.audit is not None
    readings, commands = record.audit.readings, record.audit.commands
    assert readings is not None
    assert commands is not None
    assert readings.sent == readings.accepted == readings.stored > 60
    assert commands.sent == commands.stored >= 15
    assert [phase.name for phase in record.phases] == ["ramp", "hold"]
    assert {"http.sensor_data", "http.long_poll", "http.report", "http.send_command"} <= set(record.operations)
    assert set(stages_of(record.operations)) == {"sent", "delivered", "started", "finished", "reported"}
    assert read_record(tmp_path / "run") == record
    seconds = list(read_seconds(tmp_path / "run"))
    assert [second.second for second in seconds] == list(range(len(seconds)))
    assert max(second.gauges["online"] for second in seconds) == 30
    assert record.gaps == ()
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or SECRET_KEY.encode() not in path.read_bytes(), path


def worker_pids() -> list[int]:
    """The worker processes of this test's run, the oldest first."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text().rpartition(")")[2].split()
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(status[1]) == os.getpid() and b"spawn_main" in line:
                found.append((int(status[19]), int(entry.name)))  # when it began: /proc/[pid]/stat, field 22
    return [pid for _, pid in sorted(found)]


def test_a_killed_worker_makes_the_run_inconclusive_and_declares_the_gap(service, tmp_path):
    onlooker = Onlooker(1, lambda: os.kill(worker_pids()[0], signal.SIGKILL))
    record = run(service, tmp_path, onlooker)
    assert record.verdict.word is VerdictStatus.INCONCLUSIVE, record.verdict
    assert record.verdict.exit_code == 3
    assert record.partial == "1 of 2 workers did not come to their end"
    assert [(gap.worker, "signal 9" in gap.reason) for gap in record.gaps] == [(0, True)]
    sent = [second.gauges["readings_sent"] for second in read_seconds(tmp_path / "run")]
    assert sent == sorted(sent), "what the dead one had sent stays sent"
    assert record.audit is not None
    assert not record.audit.complete
    assert record.audit.readings is not None
    assert record.audit.readings.lost == 0


def test_a_run_that_is_ended_while_its_reports_are_made_says_how_to_make_them(service, tmp_path, monkeypatch):
    monkeypatch.setattr(fleet_run, "finish_run", lambda *_given: signal.raise_signal(signal.SIGINT))
    with pytest.raises(fleet_run.RunInterrupted) as ended:
        run(service, tmp_path)
    fix = f"'fleet-simulator report {tmp_path / 'run'}' makes the reports of what there is"
    assert str(ended.value) == f"ended by hand at once: {fix}"


def test_ctrl_c_ends_a_run_in_order_with_an_audit(service, tmp_path):
    onlooker = Onlooker(1, lambda: signal.raise_signal(signal.SIGINT))
    phases = [{"name": "hold", "kind": "hold", "duration_s": 600}]
    begun = time.monotonic()
    record = run(service, tmp_path, onlooker, phases=phases)
    assert time.monotonic() - begun < 300
    assert (record.verdict.word, record.verdict.exit_code) == (VerdictStatus.INTERRUPTED, 130)
    assert record.verdict.sentences[1].startswith("partial: it ended after ")
    assert [result.judged for result in record.thresholds] == [True, True]
    assert record.drained_from_s == record.phases[-1].end_s
    assert record.audit is not None
    assert record.audit.complete
    assert record.audit.readings is not None
    assert record.audit.readings.lost == 0
    assert worker_pids() == []


def test_what_an_earlier_run_ordered_and_its_devices_get_in_this_one_is_no_unknown_command(service, tmp_path):
    once = {"phases": [{"name": "hold", "kind": "hold", "duration_s": 1}], "commands": [], "thresholds": []}
    (tmp_path / "before").mkdir()
    before = run(service, tmp_path / "before", **once)
    keys = {"x-api-key": API_KEY, "x-secret-key": SECRET_KEY}
    with httpx.Client(base_url=service.base_url, headers=keys) as operator:
        devices = operator.get("/devices").raise_for_status().json()["data"]
        for device in devices[:3]:
            order = {"device_id": device["device_id"], "command_payload": {"command": "ping"}}
            operator.post("/commands/send", json=order).raise_for_status()
    record = run(service, tmp_path)
    assert before.audit.commands is None
    assert record.verdict.word is VerdictStatus.PASSED, record.verdict
    assert record.audit.findings == ()
    assert "3 commands of other runs with the same devices were left out" in record.audit.sentences


def test_a_gateway_without_tokens_is_refused_before_a_device_is_registered(service, tmp_path):
    with pytest.raises(ConfigurationError, match="give --local, or --up"):
        run(service, tmp_path, target={"transport": "http_poll", "through": "gateway"})
    with httpx.Client(
        base_url=service.base_url, headers={"x-api-key": API_KEY, "x-secret-key": SECRET_KEY}
    ) as operator:
        assert operator.get("/devices").raise_for_status().json()["data"] == []


def test_a_target_that_goes_away_ends_the_run_with_the_report_kept(service, tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "GONE_AFTER_S", 3)
    stop = threading.Thread(target=lambda: service.__exit__(None, None, None))
    onlooker = Onlooker(1, stop.start)
    phases = [{"name": "hold", "kind": "hold", "duration_s": 600}]
    record = run(service, tmp_path, onlooker, phases=phases, target={"transport": "http_poll", "timeout_s": 1})
    stop.join()
    assert (record.verdict.word, record.verdict.exit_code) == (VerdictStatus.UNREACHABLE, 5)
    assert "of 600 s" in record.partial
    assert len(record.thresholds) == 2  # judged by what was measured until then
    assert record.audit is not None
    assert not record.audit.complete
    assert read_record(tmp_path / "run") == record
    assert len(list(read_seconds(tmp_path / "run"))) > 3
