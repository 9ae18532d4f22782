"""Fleet runs with real worker processes against a real service over sockets: whole ones, and ones that go wrong."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from agent.errors import ConfigurationError
from agent.wire.secret import Secret
from simulator.fleet.metrics.ages import stages_of
from simulator.fleet.record import AuditRecord, RunRecord, VerdictStatus
from simulator.fleet.report import making
from simulator.fleet.report.folder import read_record, read_seconds
from simulator.fleet.report.progress import RunView
from simulator.fleet.run import coordinator, lifecycle
from simulator.fleet.run.lifecycle import perform_run
from simulator.fleet.scenario.reading import read_scenario_file
from simulator.fleet.target.target import TargetOptions, find_target
from simulator.keys import write_secret
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.support import sudden_ends
from tests.support.fleet_runs import at_any_speed
from tests.support.sudden_ends import END, Sudden

API_KEY, SECRET_KEY = "mk_fleet_run", "msk_fleet_run_0123456789"
KEYS = {"x-api-key": API_KEY, "x-secret-key": SECRET_KEY}
DEVICES = 30
READINGS_ONLY = {"target": {"transport": "http_poll"}, "commands": [], "thresholds": ["audit.lost == 0"]}
LONG = [{"name": "hold", "kind": "hold", "duration_s": 600}]


@pytest.fixture(autouse=True)
def _at_any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    at_any_speed(monkeypatch)


@pytest.fixture
def service() -> Iterator[RunningService]:
    config = ServiceConfig(port=0, api_key=API_KEY, secret_key=Secret(SECRET_KEY), rate_limit=0)
    with RunningService(config) as running:
        yield running


class Onlooker(RunView):
    """Does one thing when the run has come to a second."""

    def __init__(self, at_second: int, what: Callable[[], object]) -> None:
        self._at_second = at_second
        self._what: Callable[[], object] | None = what

    def show(self, event: Any, source: Any = None) -> None:
        del source
        if event.get("second", -1) >= self._at_second and self._what is not None:
            what, self._what = self._what, None
            what()


def run(service: RunningService, tmp_path: Path, view: RunView | None = None, **changes: Any) -> RunRecord:
    """A short run of thirty devices on two workers, with some readings each and a few commands."""
    document = {
        "scenario": "short",
        "seed": 5,
        "workers": 2,
        "target": {"transport": "http_long_poll", "connections": 128},
        "fleet": {"devices": DEVICES, "models": [{"telemetry": {"every_s": 1}}]},
        "commands": [{"payload": {"command": "ping"}, "rate_per_s": 5}],
        "phases": [
            {"name": "ramp", "kind": "ramp", "duration_s": 1, "until": "online >= 100%"},
            {"name": "hold", "kind": "hold", "duration_s": 3},
        ],
        "drain_s": 60,
        "thresholds": ["audit.lost == 0", "commands.age.p99 < 60s"],
        **changes,
    }
    path = tmp_path / "short.yaml"
    path.write_text(yaml.safe_dump(document))
    way = find_target(TargetOptions(service.base_url, API_KEY, write_secret(tmp_path / "secret", SECRET_KEY)))
    record = perform_run(read_scenario_file(path), way, tmp_path / "run", [view or RunView()])
    assert read_record(tmp_path / "run") == record
    return record


def audited(record: RunRecord, *, complete: bool = True) -> AuditRecord:
    """Its audit, by which nothing was lost."""
    assert record.audit is not None
    assert record.audit.complete is complete, record.verdict
    assert record.audit.readings is None or record.audit.readings.lost == 0
    return record.audit


def check_inconclusive(record: RunRecord, sentence: str) -> None:
    assert (record.verdict.word, record.verdict.exit_code) == (VerdictStatus.INCONCLUSIVE, 3), record.verdict
    assert sentence in " | ".join(record.verdict.sentences)


def worker_pids() -> list[int]:
    """The worker processes of this test's run, the oldest first."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            status = (entry / "stat").read_text().rpartition(")")[2].split()
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if int(status[1]) == os.getpid() and b"spawn_main" in line:
            found.append((int(status[19]), int(entry.name)))  # when it began: /proc/[pid]/stat, field 22
    return [pid for _, pid in sorted(found)]


def test_a_run_proves_that_nothing_was_lost_and_leaves_its_record(service, tmp_path):
    phases = [
        {"name": "ramp", "kind": "ramp", "duration_s": 1, "until": "online >= 100%"},
        {"name": "hold", "kind": "hold", "duration_s": 7},  # a machine that stands still for seconds leaves enough
    ]
    record = run(service, tmp_path, phases=phases)
    assert record.verdict.word is VerdictStatus.PASSED, record.verdict
    readings, commands = audited(record).readings, audited(record).commands
    assert readings is not None
    assert commands is not None
    assert readings.sent == readings.accepted == readings.stored > 60
    assert commands.sent == commands.stored >= 15
    assert [phase.name for phase in record.phases] == ["ramp", "hold"]
    assert {"http.sensor_data", "http.long_poll", "http.report", "http.send_command"} <= set(record.operations)
    assert set(stages_of(record.operations)) == {"sent", "delivered", "started", "finished", "reported"}
    seconds = list(read_seconds(tmp_path / "run"))
    assert [second.second for second in seconds] == list(range(len(seconds)))
    assert max(second.gauges["online"] for second in seconds) == DEVICES
    assert record.gaps == ()
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or SECRET_KEY.encode() not in path.read_bytes(), path


def test_what_an_earlier_run_ordered_and_its_devices_get_in_this_one_is_no_unknown_command(service, tmp_path):
    (tmp_path / "before").mkdir()
    once = [{"name": "hold", "kind": "hold", "duration_s": 1}]
    before = run(service, tmp_path / "before", phases=once, commands=[], thresholds=[])
    with httpx.Client(base_url=service.base_url, headers=KEYS) as operator:
        for device in operator.get("/devices").raise_for_status().json()["data"][:3]:
            order = {"device_id": device["device_id"], "command_payload": {"command": "ping"}}
            operator.post("/commands/send", json=order).raise_for_status()
    record = run(service, tmp_path)
    assert audited(before).commands is None
    assert record.verdict.word is VerdictStatus.PASSED, record.verdict
    assert audited(record).findings == ()
    assert "3 commands of other runs with the same devices were left out" in audited(record).sentences


def test_a_gateway_without_tokens_is_refused_before_a_device_is_registered(service, tmp_path):
    with pytest.raises(ConfigurationError, match="give --local, or --up"):
        run(service, tmp_path, target={"transport": "http_poll", "through": "gateway"})
    assert httpx.get(f"{service.base_url}/devices", headers=KEYS).raise_for_status().json()["data"] == []


# --- ended early ------------------------------------------------------------------------------------------------------


def test_ctrl_c_ends_a_run_in_order_with_an_audit(service, tmp_path):
    begun = time.monotonic()
    record = run(service, tmp_path, Onlooker(1, lambda: signal.raise_signal(signal.SIGINT)), phases=LONG)
    assert time.monotonic() - begun < 300
    assert (record.verdict.word, record.verdict.exit_code) == (VerdictStatus.INTERRUPTED, 130)
    assert record.verdict.sentences[1].startswith("partial: it ended after ")
    assert [result.judged for result in record.thresholds] == [True, True]
    assert record.drained_from_s == record.phases[-1].end_s
    audited(record)
    assert worker_pids() == []


def test_a_run_that_is_ended_while_its_reports_are_made_says_how_to_make_them(service, tmp_path, monkeypatch):
    monkeypatch.setattr(lifecycle, "finish_run", lambda *_given: signal.raise_signal(signal.SIGINT))
    with pytest.raises(lifecycle.RunInterrupted) as ended:
        run(service, tmp_path)
    fix = f"'fleet-simulator report {tmp_path / 'run'}' makes the reports of what there is"
    assert str(ended.value) == f"ended by hand at once: {fix}"


def test_a_target_that_goes_away_ends_the_run_with_the_report_kept(service, tmp_path, monkeypatch):
    monkeypatch.setattr(coordinator, "GONE_AFTER_S", 3)
    stop = threading.Thread(target=lambda: service.__exit__(None, None, None))
    target = {"transport": "http_poll", "timeout_s": 1}
    record = run(service, tmp_path, Onlooker(1, stop.start), phases=LONG, target=target)
    stop.join()
    assert (record.verdict.word, record.verdict.exit_code) == (VerdictStatus.UNREACHABLE, 5)
    assert "of 600 s" in record.partial
    assert len(record.thresholds) == 2  # judged by what was measured until then
    audited(record, complete=False)
    assert len(list(read_seconds(tmp_path / "run"))) > 3


# --- a part of the run itself fails -----------------------------------------------------------------------------------


def test_a_killed_worker_makes_the_run_inconclusive_and_declares_the_gap(service, tmp_path):
    record = run(service, tmp_path, Onlooker(1, lambda: os.kill(worker_pids()[0], signal.SIGKILL)))
    check_inconclusive(record, "worker 0 did not report from")
    assert record.partial == "1 of 2 workers did not come to their end"
    assert [(gap.worker, "signal 9" in gap.reason) for gap in record.gaps] == [(0, True)]
    sent = [second.gauges["readings_sent"] for second in read_seconds(tmp_path / "run")]
    assert sent == sorted(sent), "what the dead one had sent stays sent"
    audited(record, complete=False)


def send(number: signal.Signals, pids: Sequence[int]) -> None:
    for pid in pids:
        os.kill(pid, number)


@pytest.mark.parametrize(("stopped", "with_coordinator"), [(1, False), (2, False), (2, True)])
def test_workers_that_stood_still_make_it_inconclusive_and_what_they_did_not_send_counts_as_intended(
    stopped, with_coordinator, service, tmp_path, monkeypatch
):
    monkeypatch.undo()  # the generator may be the limit
    stopped_s = 6.0

    def stand_still() -> None:
        pids = worker_pids()[:stopped]
        assert len(pids) == stopped
        send(signal.SIGSTOP, pids)
        threading.Timer(stopped_s, send, (signal.SIGCONT, pids)).start()
        if with_coordinator:
            time.sleep(stopped_s)

    phases = [{"name": "hold", "kind": "hold", "duration_s": 15}]
    record = run(service, tmp_path, Onlooker(3, stand_still), phases=phases, **READINGS_ONLY)
    check_inconclusive(record, "the generator stood still for ")
    assert record.health.stood_still_s >= stopped_s - 0.5
    assert record.health.intended - record.health.sent >= DEVICES * stopped / 2 * (stopped_s - 2), record.health


@pytest.mark.long
@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ("plan and ledger", "worker 0: plan and ledger ended unexpectedly: Sudden"),
        ("run.<locals>.wrapper", "worker 0: it ended unexpectedly: Sudden"),
        ("ledger", "worker 0: ledger-0 ended unexpectedly: Sudden"),
        ("sender", "worker 0: sender ended unexpectedly: Sudden"),
    ],
)
def test_a_run_is_inconclusive_when_a_part_of_its_worker_ends(part, sentence, service, tmp_path, monkeypatch):
    monkeypatch.setattr(lifecycle, "work", sudden_ends.work)
    monkeypatch.setenv(END, part)
    record = run(service, tmp_path, workers=1, **READINGS_ONLY)
    check_inconclusive(record, sentence)
    audited(record, complete=False)


def end_suddenly(*_: object, **_by_name: object) -> None:
    raise Sudden


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ((lifecycle, "audit_run"), "reading everything back ended unexpectedly: Sudden"),
        ((making, "fleet_page"), "the reports could not be made: Sudden"),
    ],
)
def test_a_run_is_inconclusive_when_what_comes_after_it_ends(function, sentence, service, tmp_path, monkeypatch):
    monkeypatch.setattr(*function, end_suddenly)
    check_inconclusive(run(service, tmp_path), sentence)


def test_a_run_is_inconclusive_when_what_shows_it_ends_and_its_seconds_are_written_all_the_same(service, tmp_path):
    record = run(service, tmp_path, Onlooker(0, end_suddenly))
    check_inconclusive(record, "what shows the run ended unexpectedly: Sudden")
    audited(record)
    assert [second.second for second in read_seconds(tmp_path / "run")][:4] == [0, 1, 2, 3]
