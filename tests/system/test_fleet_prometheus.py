"""A fleet that a real Prometheus reads while it runs, with a worker killed in it: what Prometheus makes of the figures.

The dashboard's expressions are asked here, too: each of them finds something in a run that had everything.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from agent.wire.secret import Secret
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.recorder import merge_operations
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import RunRecord, Second, VerdictStatus
from simulator.fleet.report.folder import read_seconds
from simulator.fleet.report.progress import RunView
from simulator.fleet.report.prometheus import MetricsView
from simulator.fleet.run.fleet_run import perform_run
from simulator.fleet.scenario.reading import read_scenario_file
from simulator.fleet.target.target import TargetOptions, find_target
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.conftest import require_program
from tests.support.ports import free_port
from tests.system.prometheus_running import START_S, Prometheus, prometheus

pytestmark = pytest.mark.long

DASHBOARD: Final = Path(__file__).parents[2] / "configs" / "grafana" / "fleet.json"
API_KEY, SECRET_KEY = "mk_prometheus", "msk_prometheus_0123456789"
KILLED_AT_S: Final = 13
SCENARIO: Final[dict[str, Any]] = {
    "scenario": "watched",
    "seed": 5,
    "workers": 2,
    "target": {"transport": "http_long_poll", "connections": 24},
    "fleet": {"devices": 8, "models": [{"telemetry": {"every_s": 1}}]},
    "commands": [{"payload": {"command": "ping"}, "rate_per_s": 4}],
    "phases": [
        {"name": "ramp", "kind": "ramp", "duration_s": 6},
        {"name": "hold", "kind": "hold", "duration_s": 10},
    ],
    "faults": [{"kind": "disconnect_storm", "name": "half-gone", "at_s": 7, "duration_s": 5, "share": 0.5}],
    "drain_s": 20,
}


class Watcher(RunView):
    """Kills a worker in the middle of the run, and lets it end only when Prometheus has read its last second."""

    def __init__(self, server: Prometheus) -> None:
        self._server = server
        self.latest = -1
        self.killed = False
        self.read_s = 0.0

    def show(self, event: Any, source: Any = None) -> None:
        del source
        if event["event"] == "end":
            self._wait_until_read()
        self.latest = event.get("second", self.latest)
        if self.latest >= KILLED_AT_S and not self.killed:
            self.killed = True
            multiprocessing.active_children()[0].kill()

    def _wait_until_read(self) -> None:
        until_s = time.monotonic() + START_S
        while True:
            # When it was read, not now: a reading that has begun since and fails counts from its beginning, and from
            # then on no series has a value.
            read = self._server.ask(f"timestamp(fleet_run_seconds == {self.latest + 1})", time.time())
            if read:
                self.read_s = float(read[0]["value"][1])
                return
            assert time.monotonic() < until_s, f"Prometheus has not read second {self.latest}"
            time.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Watched:
    """A run that is over, and the Prometheus that read it.

    Attributes:
        seconds: what was measured, as the run's folder has it.
        begin_s, end_s: since the epoch; at the end everything had been read.
    """

    server: Prometheus
    record: RunRecord
    seconds: list[Second]
    begin_s: float
    end_s: float

    def count(self, expression: str) -> float:
        """A single number at the end of the run."""
        [found] = self.server.ask(expression, self.end_s)
        return float(found["value"][1])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    program, folder, port = require_program("prometheus"), tmp_path_factory.mktemp("watched"), free_port()
    scenario, secret = folder / "watched.yaml", folder / "secret"
    scenario.write_text(yaml.safe_dump(SCENARIO))
    secret.write_text(SECRET_KEY)
    secret.chmod(0o600)
    config = ServiceConfig(port=0, api_key=API_KEY, secret_key=Secret(SECRET_KEY), rate_limit=0)
    with RunningService(config) as service, prometheus(program, folder / "prometheus", port) as server:
        way = find_target(TargetOptions(service.base_url, API_KEY, secret))
        begin_s = time.time()
        watcher = Watcher(server)
        record = perform_run(read_scenario_file(scenario), way, folder / "run", [MetricsView(port), watcher])
        # Not now: the address is gone, and once Prometheus has noticed, none of its series has a value any more.
        yield Watched(server, record, list(read_seconds(folder / "run")), begin_s, watcher.read_s)


def test_prometheus_sees_no_counter_fall_although_a_worker_died(run):
    assert run.record.verdict.word is VerdictStatus.INCONCLUSIVE, run.record.verdict
    assert run.record.gaps
    span = f"[{int(run.end_s - run.begin_s) + 5}s]"
    names = [name for name in run.server.metric_names() if name.startswith("fleet_")]
    counters = [name for name in names if name.endswith(("_total", "_bucket", "_count", "_sum"))]
    assert len(counters) > 15
    for name in counters:
        assert run.count(f"max(resets({name}{span}))") == 0, name
    assert run.count(f'max_over_time(fleet_workers{{state="dead"}}{span})') == 1
    assert run.count("fleet_worker_seconds_missing_total") > 2


def test_prometheus_counts_what_the_run_did_by_phase_fault_operation_and_outcome(run):
    operations = merge_operations([second.operations for second in run.seconds])
    for name in ("http.sensor_data", "http.report"):
        for outcome, tally in operations[name].items():
            labels = f'operation="{name}", outcome="{outcome.value}"'
            assert run.count(f"sum(fleet_exchanges_total{{{labels}}})") == tally.count
    readings = operations["readings.age"][OutcomeClass.OK].count
    assert run.count('sum(fleet_readings_total{outcome="ok"})') == readings > 30
    assert run.count('sum(fleet_exchanges_total{fault="half-gone", outcome="transport"})') > 0
    assert run.count('sum(fleet_readings_total{phase="ramp"})') > 0
    [about] = run.server.ask("fleet_run_info", run.end_s)
    assert about["metric"]["target"] == run.record.target
    labels = {"scenario", "phase", "fault", "operation", "outcome"}
    assert run.server.label_names("fleet_exchanges_total") == labels
    assert run.server.label_names("fleet_response_seconds_bucket") == labels - {"outcome"} | {"le"}


@pytest.mark.parametrize("quantile", [0.5, 0.99])
def test_quantiles_of_prometheus_are_those_of_the_run_to_a_quarter(run, quantile):
    ages = Histogram.decode(
        merge_operations([second.operations for second in run.seconds])["readings.age"][OutcomeClass.OK].response
    )
    expression = f"histogram_quantile({quantile}, sum by (le) (fleet_reading_age_seconds_bucket))"
    assert run.count(expression) == pytest.approx(ages.percentile(100 * quantile), rel=0.29)


def test_prometheus_sees_phases_and_faults_while_they_are_under_way(run):
    for what, name, begin_s, end_s in (("phase", "ramp", 0, 6), ("fault", "half-gone", 7, 12)):
        [found] = run.server.ask_range(f'fleet_{what}_active{{{what}="{name}"}} == 1', run.begin_s, run.end_s)
        seen_s = float(found["values"][-1][0]) - float(found["values"][0][0])
        # Read once a second, some seconds later than it was: an instant more or less at both ends.
        assert abs(seen_s - (end_s - begin_s)) < 8
        assert len(found["values"]) > 0


# --- the dashboard --------------------------------------------------------------------------------------------------


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def panels() -> list[dict[str, Any]]:
    return [panel for panel in document()["panels"] if panel["type"] != "row"]


def expressions() -> dict[str, str]:
    """By what asks."""
    asked = {f"{each['title']} {target['refId']}": target["expr"] for each in panels() for target in each["targets"]}
    return asked | {each["name"]: each["expr"] for each in document()["annotations"]["list"]}


def filled_in(expression: str, span_s: int) -> str:
    """As Grafana sends it, for a scrape interval of one second."""
    values = {"$scenario": "watched", "$__rate_interval": "4s", "$__range": f"{span_s}s"}
    for name, value in values.items():
        expression = expression.replace(name, value)
    assert "$" not in expression
    return expression


def labels_by(expression: str) -> set[str]:
    """The labels that it groups by."""
    groups = re.findall(r"\bby \(([^)]*)\)", expression)
    return {label.strip() for group in groups for label in group.split(",")} - {"le"}


def test_each_expression_of_the_dashboard_finds_something_in_a_real_run(run):
    span_s = int(run.end_s - run.begin_s) + 1
    assert len(expressions()) > 30
    for name, expression in expressions().items():
        found = run.server.ask_range(filled_in(expression, span_s), run.begin_s, run.end_s)
        numbers = [float(value) for series in found for _, value in series["values"]]
        assert not all(map(math.isnan, numbers)), f"{name}: no number in {len(found)} series"
        for series in found:
            assert labels_by(expression) <= series["metric"].keys(), name


def test_the_dashboard_writes_legends_out_of_labels_that_its_series_have(run):
    span_s = int(run.end_s - run.begin_s) + 1
    for panel in panels():
        for target in panel["targets"]:
            found = run.server.ask_range(filled_in(target["expr"], span_s), run.begin_s, run.end_s)
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert all(series["metric"].get(label) for series in found), (panel["title"], label)


def test_the_dashboard_chooses_among_the_scenarios_that_prometheus_knows(run):
    [variable] = [each for each in document()["templating"]["list"] if each["name"] == "scenario"]
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()
    assert {series["metric"][label] for series in run.server.ask(metric, run.end_s)} == {"watched"}
