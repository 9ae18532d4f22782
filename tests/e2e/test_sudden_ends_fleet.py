"""Every thread and task of a fleet's run, each ended by an error from inside: the run says so and is never green."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from agent.wire.secret import Secret
from simulator.exit_codes import ExitCode
from simulator.fleet.audit import readback
from simulator.fleet.metrics.saturation import Limits, Saturation
from simulator.fleet.record import RunRecord, VerdictStatus
from simulator.fleet.report import making
from simulator.fleet.report.live import RunView, SilentView
from simulator.fleet.report.prometheus.address import MeteredView, MetricsAddress
from simulator.fleet.report.run_status import RunHead
from simulator.fleet.report.writing import read_record, read_seconds
from simulator.fleet.run import fleet_run
from simulator.fleet.run.fleet_run import RunOptions, perform_run
from simulator.fleet.run.reporter import RunReporter
from simulator.fleet.scenario.reading import read_scenario_file
from simulator.fleet.target.local import running_local
from simulator.fleet.target.safety import permit
from simulator.fleet.target.target import TargetOptions, find_target, target_of
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests import sudden_ends
from tests.conftest import require_program
from tests.sudden_ends import END, LIST, Sudden

pytestmark = pytest.mark.long

API_KEY, SECRET_KEY = "mk_sudden_ends", "msk_sudden_ends_0123456789"
ANY_SPEED: Final = Limits(strained_share=1.0, stood_still_s=float("inf"))
"""The generator is never the limit: how busy this machine is with other tests is not what is tested here."""

WORKER_ENDS: Final = {
    "plan": "worker 0: plan ended unexpectedly: Sudden",
    "phases": "worker 0: phases ended unexpectedly: Sudden",
    "ledger-flush": "worker 0: ledger-flush ended unexpectedly: Sudden",
    "seconds": "worker 0: seconds ended unexpectedly: Sudden",
    "run.<locals>.wrapper": "worker 0 failed: Sudden",
    "ledger": "worker 0: ledger-0 ended unexpectedly: Sudden",
    "sender": "worker 0: sender ended unexpectedly: Sudden",
    "orders": "worker 0: orders ended unexpectedly: Sudden",
}
"""The parts of a worker, and what the run says of each: it ends as inconclusive, exit code 3."""

NOT_ENDED: Final = {
    "MainThread": "runs the loop: its end is that of uvloop's task, run.<locals>.wrapper",
    "http-connect": "an attempt to connect, which may be under way: ended below",
}

NOT_OF_KINDS: Final[dict[str, Any]] = {"thresholds": [], "workers": None}
"""What the scenario of a core run has and other kinds refuse."""
STORM: Final = {
    "kind": "onboarding_storm",
    "onboarding": {"rate_per_s": 50, "races": 0.5, "remove": 0.5},
    **NOT_OF_KINDS,
    "fleet": {"devices": 200, "identities": {"prefix": "sudden-"}},
}
LIMITER: Final = {
    "kind": "limiter",
    "level": "wire",
    "fleet": {"devices": 1},
    "limiter": {"quota": 1000, "window_s": "1m"},
    "phases": [{"name": "hold", "kind": "hold", "duration_s": "4m"}],
    "seed": None,
    "target": {"transport": "http_poll"},
    **NOT_OF_KINDS,
}
BACKFILL: Final = {
    "kind": "backfill",
    "backfill": {"history_s": "3d"},
    "fleet": {"devices": 4, "models": [{"telemetry": {"every_s": 1, "batch": 500}}]},
    "phases": [{"name": "history", "kind": "hold", "duration_s": "4m"}],
    **NOT_OF_KINDS,
    "workers": 1,
}
OTHER_ENDS: Final = [
    ({}, "next:http-connect", "http-connect"),
    (STORM, "arrivals", "arrivals"),
    (STORM, "next:sudden", "sudden-"),
    (STORM, "next:StormWorkload._register", "sudden-"),
    (STORM, "next:StormWorkload._remove", "sudden-"),
    (LIMITER, "limiter", "limiter"),
    (BACKFILL, "backfill", "backfill-"),
]
"""What only some runs have, or have for moments: their scenario, the part, and how the name begins that the run has."""
MQTT_ENDS: Final = {
    "mqtt-connect": "ended below",
    "TargetAddress._find": "looks up the target's address: whoever connects waits for it, and gets its error",
}
OF_KINDS: Final = {"arrivals", "sudden", "StormWorkload._register", "StormWorkload._remove", "limiter", "backfill"}


@pytest.fixture(autouse=True)
def _at_any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_run, "RunReporter", lambda *given: RunReporter(*given, saturation=Saturation(ANY_SPEED)))


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    config = ServiceConfig(port=0, api_key=API_KEY, secret_key=Secret(SECRET_KEY), rate_limit=0)
    with RunningService(config) as running:
        yield running


def silent(_head: RunHead) -> RunView:
    return SilentView()


def scenario(**changes: Any) -> dict[str, Any]:
    """A short one, with these members changed; None leaves one out."""
    document = {
        "scenario": "sudden",
        "seed": 5,
        "workers": 1,
        "target": {"transport": "http_poll", "pool": 8},
        "fleet": {"devices": 3, "models": [{"telemetry": {"every_s": 1}}]},
        "commands": [],
        "phases": [
            {"name": "hold", "kind": "hold", "duration_s": 3},
            {"name": "rest", "kind": "hold", "duration_s": 1},  # while it is to come, a task waits for its time
        ],
        "drain_s": 60,
        "thresholds": ["audit.lost == 0"],
        **changes,
    }
    return {name: value for name, value in document.items() if value is not None}


def run(
    service: RunningService, tmp_path: Path, make_view: Callable[[RunHead], RunView] = silent, **changes: Any
) -> RunRecord:
    path, secret = tmp_path / "sudden.yaml", tmp_path / "secret"
    path.write_text(yaml.safe_dump(scenario(**changes)))
    secret.write_text(SECRET_KEY)
    secret.chmod(0o600)
    way = find_target(TargetOptions(service.base_url, API_KEY, secret))
    permission = permit(way.base_url, (), owned=False)
    return perform_run(RunOptions(read_scenario_file(path), way, tmp_path / "run", (permission,)), make_view)


def check_inconclusive(record: RunRecord, tmp_path: Path, sentence: str) -> None:
    told = " | ".join(record.verdict.sentences)
    assert record.verdict.word is VerdictStatus.INCONCLUSIVE, told
    assert record.verdict.exit_code == ExitCode.INCONCLUSIVE
    assert sentence in told
    assert read_record(tmp_path / "run").verdict == record.verdict


def test_every_thread_and_task_of_a_worker_stands_in_the_tables(service, tmp_path, monkeypatch):
    monkeypatch.setattr(fleet_run, "work", sudden_ends.work)
    monkeypatch.setenv(LIST, str(tmp_path / "parts"))
    record = run(service, tmp_path)
    assert record.verdict.word is VerdictStatus.PASSED, record.verdict
    found = set((tmp_path / "parts").read_text().split("\n"))
    assert set(WORKER_ENDS) <= found
    assert found <= {*WORKER_ENDS, *NOT_ENDED}


@pytest.mark.parametrize("part", WORKER_ENDS)
def test_a_run_is_inconclusive_when_a_part_of_its_worker_ends(part, service, tmp_path, monkeypatch):
    monkeypatch.setattr(fleet_run, "work", sudden_ends.work)
    monkeypatch.setenv(END, part)
    record = run(service, tmp_path)
    check_inconclusive(record, tmp_path, WORKER_ENDS[part])
    assert record.audit is not None
    assert not record.audit.complete


@pytest.mark.parametrize("case", OTHER_ENDS, ids=[part for _, part, _ in OTHER_ENDS])
def test_a_run_is_inconclusive_when_a_part_of_its_kind_ends(case, service, tmp_path, monkeypatch):
    changes, part, name = case
    monkeypatch.setattr(fleet_run, "work", sudden_ends.work)
    monkeypatch.setenv(END, part)
    record = run(service, tmp_path, **changes)
    check_inconclusive(record, tmp_path, f"worker 0: {name}")
    assert "ended unexpectedly: Sudden" in " | ".join(record.verdict.sentences)


@pytest.mark.parametrize("case", [(STORM, "arrivals"), (LIMITER, "limiter"), (BACKFILL, "backfill")])
def test_every_thread_and_task_of_other_kinds_of_runs_stands_in_the_tables(case, service, tmp_path, monkeypatch):
    changes, part = case
    monkeypatch.setattr(fleet_run, "work", sudden_ends.work)
    monkeypatch.setenv(END, part)  # the limiter's test takes four minutes to its end
    monkeypatch.setenv(LIST, str(tmp_path / "parts"))
    run(service, tmp_path, **changes)
    found = set((tmp_path / "parts").read_text().split("\n"))
    assert part in found
    assert found <= {*WORKER_ENDS, *NOT_ENDED, *OF_KINDS}


def end_suddenly(*_: object) -> None:
    raise Sudden


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ((readback, "_read_row"), "reading everything back ended unexpectedly: Sudden"),
        ((making, "fleet_page"), "the reports could not be made: Sudden"),
    ],
)
def test_a_run_is_inconclusive_when_what_comes_after_it_ends(function, sentence, service, tmp_path, monkeypatch):
    monkeypatch.setattr(*function, end_suddenly)
    check_inconclusive(run(service, tmp_path), tmp_path, sentence)


class Broken(SilentView):
    def show(self, second: Any, standing: Any) -> None:
        del second, standing
        raise Sudden


def test_a_run_is_inconclusive_when_what_shows_it_ends_and_its_seconds_are_written_all_the_same(service, tmp_path):
    record = run(service, tmp_path, lambda _head: Broken())
    check_inconclusive(record, tmp_path, "what shows the run ended unexpectedly: Sudden")
    assert record.audit is not None
    assert record.audit.complete
    assert [second.second for second in read_seconds(tmp_path / "run")][:4] == [0, 1, 2, 3]


class Scraper(SilentView):
    """Ends the thread behind the address in one second, and asks it for its figures from the next on."""

    def __init__(self, address: MetricsAddress) -> None:
        self._address = address
        self.notes: list[str] = []
        self.threads: set[str] = set()
        self.restarts = ""

    def note(self, text: str, tone: Any = None) -> None:
        self.notes.append(text)

    def show(self, second: Any, standing: Any) -> None:
        self.threads |= {sudden_ends.name_of(thread) for thread in threading.enumerate()}
        if second.second == 0:
            thread = next(thread for thread in threading.enumerate() if thread.name == "metrics")
            sudden_ends.end(thread)
            thread.join(60)
            assert not thread.is_alive()
        elif not self.restarts:
            text = httpx.get(self._address.url, trust_env=False, timeout=60).text
            self.restarts = next(line for line in text.splitlines() if line.startswith("fleet_metrics_restarts_total"))


def test_the_address_for_prometheus_is_served_again_and_the_conductor_has_no_other_thread(service, tmp_path):
    before = {sudden_ends.name_of(thread) for thread in threading.enumerate()}
    address = MetricsAddress(0, RunHead("sudden", "core", "http_poll", service.base_url, 3, 1))
    scraper = Scraper(address)
    record = run(service, tmp_path, lambda _head: MeteredView(scraper, address))
    assert record.verdict.word is VerdictStatus.PASSED, record.verdict
    assert scraper.threads - before <= {"metrics", "service-reader", "service-look-up"}
    assert any("metrics ended unexpectedly: Sudden; they are served again" in note for note in scraper.notes)
    assert scraper.restarts == 'fleet_metrics_restarts_total{scenario="sudden"} 1.0'


@pytest.fixture(scope="module")
def standing(tmp_path_factory) -> Iterator[Any]:
    """Service, broker and gateway."""
    require_program("mosquitto")
    with running_local(tmp_path_factory.mktemp("up"), rate_limit=0, gateway=True) as service:
        yield service


MQTT: Final = {
    "target": {"transport": "mqtt", "through": "gateway", "broker": {}},
    "faults": [],
    "thresholds": [],
}


def run_over_mqtt(standing: Any, tmp_path: Path) -> RunRecord:
    path = tmp_path / "sudden.yaml"
    path.write_text(yaml.safe_dump(scenario(**MQTT)))
    way = target_of(standing)
    permissions = tuple(permit(address, (), owned=False) for address in sorted(way.addresses))
    return perform_run(RunOptions(read_scenario_file(path), way, tmp_path / "run", permissions), silent)


def test_every_thread_and_task_of_a_run_over_mqtt_stands_in_the_tables(standing, tmp_path, monkeypatch):
    monkeypatch.setattr(fleet_run, "work", sudden_ends.work)
    monkeypatch.setenv(LIST, str(tmp_path / "parts"))
    record = run_over_mqtt(standing, tmp_path)
    assert record.verdict.word is VerdictStatus.PASSED, record.verdict
    found = set((tmp_path / "parts").read_text().split("\n"))
    assert "plan" in found
    assert found <= {*WORKER_ENDS, *NOT_ENDED, *MQTT_ENDS}


@pytest.mark.parametrize("part", ["next:mqtt-connect", "plan"])
def test_a_run_over_mqtt_is_inconclusive_when_a_part_of_it_ends(part, standing, tmp_path, monkeypatch):
    monkeypatch.setattr(fleet_run, "work", sudden_ends.work)
    monkeypatch.setenv(END, part)
    record = run_over_mqtt(standing, tmp_path)
    name = "plan" if part == "plan" else "mqtt-connect"
    check_inconclusive(record, tmp_path, f"worker 0: {name} ended unexpectedly: Sudden")
