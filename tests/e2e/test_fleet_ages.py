"""The headline of a run that met an outage, against the log of a proxy between fleet and service."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from agent.wire.secret import Secret
from simulator.fleet.metrics.ages import READING_AGE
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.saturation import Limits, Saturation
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.report.live import SilentView
from simulator.fleet.report.making import make_reports
from simulator.fleet.run import performing
from simulator.fleet.run.hall import Hall
from simulator.fleet.run.performing import Stage, perform
from simulator.fleet.scenario.reading import read_scenario_file
from simulator.fleet.target.safety import permit
from simulator.fleet.target.way import TargetOptions, find_way
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.arrival_proxy import ArrivalProxy, arrival_proxy

API_KEY, SECRET_KEY = "mk_fleet_ages", "msk_fleet_ages_0123456789"
ANSWER_S = 0.1
"""What lies between the proxy's answer and the device, on a machine that does something else as well."""


@pytest.fixture(autouse=True)
def _at_any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(strained_share=1.0)
    monkeypatch.setattr(performing, "Hall", lambda *given: Hall(*given, saturation=Saturation(limits)))


@pytest.fixture
def proxy() -> Iterator[ArrivalProxy]:
    config = ServiceConfig(port=0, api_key=API_KEY, secret_key=Secret(SECRET_KEY), rate_limit=0)
    with RunningService(config) as service:
        port = httpx.URL(service.base_url).port
        assert port is not None
        with arrival_proxy(port, away=(2.0, 4.0), frozen=(6.0, 8.0)) as found:
            yield found


CORE = {"level": "core", "fleet": {"devices": 20, "models": [{"telemetry": {"every_s": 0.5}}]}}
WIRE = {"level": "wire", "fleet": {"devices": 20}, "arrivals": [{"kind": "open", "rate_per_s": 40}]}


@pytest.mark.parametrize("level", [CORE, WIRE], ids=["core", "wire"])
def test_the_age_of_readings_is_what_a_log_between_fleet_and_service_says(proxy, tmp_path, level):
    document = {
        "scenario": "ages",
        "workers": 1,
        "target": {"transport": "http_poll", "pool": 64},
        "phases": [{"name": "hold", "kind": "hold", "duration_s": 10}],
        "drain_s": 60,
        "thresholds": ["readings.age.p99 < 1s", "readings.rate > 1/s"],
        **level,
    }
    path, secret = tmp_path / "ages.yaml", tmp_path / "secret"
    path.write_text(yaml.safe_dump(document))
    secret.write_text(SECRET_KEY)
    secret.chmod(0o600)
    way = find_way(TargetOptions(proxy.url, API_KEY, secret))
    file, permission = read_scenario_file(path), permit(way.base_url, (), owned=False)
    record = perform(Stage(file, way, tmp_path / "run", (permission,)), lambda _head: SilentView())
    tally = record.ages[READING_AGE][OutcomeClass.OK]
    truth = sorted(proxy.ages_s)
    assert tally.count == len(truth) > 150
    ages = Histogram.decode(tally.response)
    for percent in (50.0, 90.0, 95.0, 99.0, 99.9):
        true_s = truth[math.ceil(len(truth) * percent / 100) - 1]
        assert ages.percentile(percent) == pytest.approx(true_s, rel=0.02, abs=ANSWER_S), percent
    # Half of the time was an outage: a threshold on ages says so.
    assert [result.held for result in record.thresholds] == [False, True]
    assert record.thresholds[0].observed is not None
    assert record.thresholds[0].observed > 1.5
    assert record.audit is not None
    assert record.audit.readings is not None
    assert (record.audit.readings.lost, record.audit.readings.accepted) == (0, len(truth))
    made = make_reports(tmp_path / "run")
    assert made.record.ages == record.ages
    summary = json.loads((Path(made.page).parent / "summary.json").read_text())
    assert summary["ages"][READING_AGE]["ok"]["count"] == len(truth)
