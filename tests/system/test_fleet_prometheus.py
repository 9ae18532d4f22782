"""A fleet that a real Prometheus reads while it runs, with a worker killed in it: what Prometheus makes of the figures.

The dashboard's expressions are asked here, too: each of them finds something in a run that had everything.
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.recorder import merge_operations
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import RunRecord, VerdictStatus
from simulator.fleet.report.folder import read_seconds
from simulator.fleet.report.progress import RunView
from simulator.fleet.report.prometheus import MetricsView
from simulator.fleet.run.lifecycle import perform_run
from simulator.fleet.scenario.reading import read_scenario_file
from simulator.fleet.target.target import running_local
from tests.conftest import require_program
from tests.support.ports import free_port
from tests.system.agent_bench import wait_until

pytestmark = pytest.mark.long

DASHBOARD: Final = Path(__file__).parents[2] / "configs" / "grafana" / "fleet.json"
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


START_S: Final = 120.0
CONFIG: Final = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs: [{{job_name: fleet, static_configs: [{{targets: ["127.0.0.1:{port}"]}}]}}]
"""


@dataclass(slots=True)
class Prometheus:
    """A real Prometheus that reads an address once a second."""

    url: str

    def get(self, path: str, **given: Any) -> Any:
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=given, timeout=60, trust_env=False)
        assert answer.status_code == 200, f"{given}: {answer.text}"
        return answer.json()["data"]

    def ask(self, expression: str, at_s: float) -> list[dict[str, Any]]:
        """What an expression comes to at a time (seconds since the epoch)."""
        return self.get("query", query=expression, time=at_s)["result"]

    def is_ready(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/-/ready", timeout=5, trust_env=False).is_success
        return False


@contextlib.contextmanager
def prometheus(program: str, folder: Path, scraped_port: int) -> Iterator[Prometheus]:
    config, port = folder / "prometheus.yml", free_port()
    config.write_text(CONFIG.format(port=scraped_port))
    command = [program, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    try:
        server = Prometheus(f"http://127.0.0.1:{port}")
        wait_until(server.is_ready, START_S, what=f"prometheus did not start: {folder / 'log'}")
        yield server
    finally:
        process.terminate()
        process.wait(START_S)


class Watcher(RunView):
    """Kills a worker in the middle of the run, and lets it end only when Prometheus has read its last second."""

    def __init__(self, server: Prometheus) -> None:
        self._server = server
        self.latest = -1
        self.killed = False
        self.read_s = 0.0

    def show(self, event: Any, source: Any = None) -> None:
        if event["event"] == "end":
            # When it was read, not now: a reading that has begun since and fails counts from its beginning, and from
            # then on no series has a value.
            last = f"timestamp(fleet_run_seconds == {self.latest + 1})"
            [read] = wait_until(
                lambda: self._server.ask(last, time.time()), START_S, what=f"second {self.latest} is not read"
            )
            self.read_s = float(read["value"][1])
        self.latest = event.get("second", self.latest)
        if self.latest >= KILLED_AT_S and not self.killed:
            self.killed = True
            multiprocessing.active_children()[0].kill()


@dataclass(frozen=True, slots=True)
class Watched:
    """A run that is over, and the Prometheus that read it.

    Attributes:
        operations: what was measured, as the run's folder has it.
        begin_s, end_s: since the epoch; at the end everything had been read.
    """

    server: Prometheus
    record: RunRecord
    operations: Any
    begin_s: float
    end_s: float

    def count(self, expression: str) -> float:
        """A single number at the end of the run."""
        [found] = self.server.ask(expression, self.end_s)
        return float(found["value"][1])

    def over_time(self, expression: str) -> list[dict[str, Any]]:
        """What it comes to at each second of the run, as a plot of Grafana asks for it."""
        span_s = int(self.end_s - self.begin_s) + 1
        values = {"$scenario": "watched", "$__rate_interval": "4s", "$__range": f"{span_s}s"}
        for name, value in values.items():
            expression = expression.replace(name, value)
        assert "$" not in expression
        times = {"start": self.begin_s, "end": self.end_s, "step": 1}
        return self.server.get("query_range", query=expression, **times)["result"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    program, folder, port = require_program("prometheus"), tmp_path_factory.mktemp("watched"), free_port()
    scenario = folder / "watched.yaml"
    scenario.write_text(yaml.safe_dump(SCENARIO))
    with (
        running_local(folder / "up", gateway=False) as target,
        prometheus(program, folder, port) as server,
    ):
        begin_s, watcher = time.time(), Watcher(server)
        record = perform_run(read_scenario_file(scenario), target, folder / "run", [MetricsView(port), watcher])
        operations = merge_operations([second.operations for second in read_seconds(folder / "run")])
        # Not now: the address is gone, and once Prometheus has noticed, none of its series has a value any more.
        yield Watched(server, record, operations, begin_s, watcher.read_s)


def test_prometheus_sees_no_counter_fall_although_a_worker_died(run):
    assert run.record.verdict.word is VerdictStatus.INCONCLUSIVE, run.record.verdict
    assert run.record.gaps
    span = f"[{int(run.end_s - run.begin_s) + 5}s]"
    names = run.server.get("label/__name__/values")
    counters = [name for name in names if re.fullmatch("fleet_.*_(total|bucket|count|sum)", name)]
    assert len(counters) > 15
    for name in counters:
        assert run.count(f"max(resets({name}{span}))") == 0, name
    assert run.count(f'max_over_time(fleet_workers{{state="dead"}}{span})') == 1
    assert run.count("fleet_worker_seconds_missing_total") > 2


def test_prometheus_counts_what_the_run_did_by_phase_fault_operation_and_outcome(run):
    for name in ("http.sensor_data", "http.report"):
        for outcome, tally in run.operations[name].items():
            labels = f'operation="{name}", outcome="{outcome.value}"'
            assert run.count(f"sum(fleet_exchanges_total{{{labels}}})") == tally.count
    readings = run.operations["readings.age"][OutcomeClass.OK].count
    assert run.count('sum(fleet_readings_total{outcome="ok"})') == readings > 30
    assert run.count('sum(fleet_exchanges_total{fault="half-gone", outcome="transport"})') > 0
    assert run.count('sum(fleet_readings_total{phase="ramp"})') > 0
    [about] = run.server.ask("fleet_run_info", run.end_s)
    assert about["metric"]["target"] == run.record.target
    for metric, further in (("fleet_exchanges_total", {"outcome"}), ("fleet_response_seconds_bucket", {"le"})):
        labels = set(run.server.get("labels", **{"match[]": metric})) - {"__name__", "instance", "job"}
        assert labels == {"scenario", "phase", "fault", "operation"} | further


@pytest.mark.parametrize("quantile", [0.5, 0.99])
def test_quantiles_of_prometheus_are_those_of_the_run_to_a_quarter(run, quantile):
    ages = Histogram.decode(run.operations["readings.age"][OutcomeClass.OK].response)
    expression = f"histogram_quantile({quantile}, sum by (le) (fleet_reading_age_seconds_bucket))"
    assert run.count(expression) == pytest.approx(ages.percentile(100 * quantile), rel=0.29)


def test_prometheus_sees_phases_and_faults_while_they_are_under_way(run):
    for what, name, begin_s, end_s in (("phase", "ramp", 0, 6), ("fault", "half-gone", 7, 12)):
        [found] = run.over_time(f'fleet_{what}_active{{{what}="{name}"}} == 1')
        seen_s = float(found["values"][-1][0]) - float(found["values"][0][0])
        # Read once a second, some seconds later than it was: an instant more or less at both ends.
        assert abs(seen_s - (end_s - begin_s)) < 8
        assert len(found["values"]) > 0


# --- the dashboard --------------------------------------------------------------------------------------------------


DOCUMENT: Final[dict[str, Any]] = json.loads(DASHBOARD.read_text())
PANELS: Final = [panel for panel in DOCUMENT["panels"] if panel["type"] != "row"]


def test_each_expression_of_the_dashboard_finds_something_in_a_real_run_and_its_legends_have_their_labels(run):
    asked = [(panel["title"], each["expr"], each["legendFormat"]) for panel in PANELS for each in panel["targets"]]
    asked += [(each["name"], each["expr"], "") for each in DOCUMENT["annotations"]["list"]]
    assert len(asked) > 30
    for title, expression, legend in asked:
        found = run.over_time(expression)
        numbers = [float(value) for series in found for _, value in series["values"]]
        assert not all(map(math.isnan, numbers)), f"{title}: no number in {len(found)} series"
        groups = re.findall(r"\bby \(([^)]*)\)", expression)
        labels = {label.strip() for group in groups for label in group.split(",")} - {"le"}
        labels |= set(re.findall(r"\{\{(\w+)\}\}", legend))
        assert all(series["metric"].get(label) for series in found for label in labels), (title, labels)


def test_the_dashboard_chooses_among_the_scenarios_that_prometheus_knows(run):
    [variable] = [each for each in DOCUMENT["templating"]["list"] if each["name"] == "scenario"]
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()
    assert {series["metric"][label] for series in run.server.ask(metric, run.end_s)} == {"watched"}
