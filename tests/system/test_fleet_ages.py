"""The headlines of a run that met an outage, against the log of a proxy between fleet and target."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from simulator.fleet.metrics.ages import COMMAND_AGE, READING_AGE, shown_ages
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import RunRecord, Tally
from simulator.fleet.run.fleet_run import perform_run
from simulator.fleet.scenario.reading import read_scenario_file
from simulator.fleet.target.target import Target, running_local
from tests.conftest import require_program
from tests.support.fleet_runs import at_any_speed
from tests.support.mosquitto import find_mosquitto
from tests.system.arrival_proxy import Log, arrival_proxy

pytestmark = pytest.mark.long

ANSWER_S = 0.05
"""What lies between the socket and the device's clock; what lies between the proxy and the socket is in the log."""
AWAY, FROZEN = (2.0, 6.0), (8.0, 12.0)
PING, REFUSED = 5.0, 1.0
COMMANDS = [
    {"payload": {"command": "ping"}, "rate_per_s": PING},
    {"payload": {"command": "read_sensors", "names": ["thermostat"]}, "rate_per_s": REFUSED, "expect": "rejected"},
]


@dataclass(frozen=True)
class Combination:
    """A kind and a transport; devices that carry commands out also lose their power now and then."""

    kind: str
    transport: str

    def scenario(self) -> dict[str, Any]:
        polls = {"poll": {"every_s": "1s"}} if self.transport == "http_poll" else {}
        model = {"telemetry": {"every_s": 0.5}, **polls}
        core = {
            "fleet": {"devices": 20, "models": [model], "prefix": f"{self}-"},
            "commands": COMMANDS,
            "faults": [{"kind": "reboot_loop", "at_s": 0, "duration_s": 15, "up_s": 9, "down_s": 1}],
            "thresholds": [
                "readings.age.p99 < 1s",
                "readings.rate > 1/s",
                "commands.age.p90 < 1s",
                "commands.rate > 1/s",
            ],
        }
        wire = {
            "fleet": {"devices": 20, "prefix": f"{self}-"},
            "arrivals": [{"rate_per_s": 40}],
            "thresholds": ["readings.age.p90 < 1s", "readings.rate > 1/s"],
        }
        target = {"transport": self.transport} if self.kind == "devices" else {"connections": 64}
        return {
            "scenario": str(self),
            "kind": self.kind,
            "workers": 1,
            "target": target,
            "phases": [{"name": "hold", "kind": "hold", "duration_s": 15}],
            "drain_s": 60,
            **(core if self.kind == "devices" else wire),
        }

    def __str__(self) -> str:
        return f"{self.kind}-{self.transport.replace('_', '-')}"


COMBINATIONS = [
    Combination("devices", "http_poll"),
    Combination("devices", "http_long_poll"),
    Combination("devices", "mqtt"),
    Combination("requests", "http_poll"),
]
"""Each kind and each transport."""


@pytest.fixture(autouse=True)
def _at_any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    at_any_speed(monkeypatch)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with running_local(tmp_path_factory.mktemp("up"), rate_limit=0, gateway=find_mosquitto() is not None) as standing:
        yield standing


def play(
    document: dict[str, Any],
    local: Target,
    folder: Path,
) -> tuple[RunRecord, Log]:
    """Run a scenario through a proxy before everything that the fleet speaks to."""
    folder.mkdir(exist_ok=True)
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(document))
    urls = {url: httpx.URL(url).port for url in (local.base_url, local.gateway_url) if url}
    broker_port = httpx.URL(local.broker_url or "").port
    brokers = [broker_port] if broker_port else []
    with arrival_proxy([port for port in urls.values() if port], brokers, away=AWAY, frozen=FROZEN) as proxy:
        through = {url: url.replace(f":{port}", f":{proxy.ports[port]}") for url, port in urls.items() if port}
        way = replace(
            local,
            base_url=through[local.base_url],
            gateway_url=through.get(local.gateway_url or ""),
            broker_url=f"mqtt://127.0.0.1:{proxy.ports[broker_port]}" if broker_port else None,
        )
        record = perform_run(read_scenario_file(path), way, folder / "run")
    return record, proxy.log


def agree(tally: Tally, truth: Sequence[tuple[float, float]]) -> None:
    """The percentiles of a histogram are those of the log: where each age is in its range, so is each percentile."""
    ages, least, most = Histogram.decode(tally.response), *(sorted(each) for each in zip(*truth, strict=True))
    assert tally.count == len(truth)
    for percent in (50.0, 90.0, 95.0, 99.0, 99.9):
        rank = math.ceil(len(truth) * percent / 100) - 1
        age_s, least_s, most_s = ages.percentile(percent), least[rank], most[rank]
        within_s = min(max(age_s, least_s), most_s)
        assert age_s == pytest.approx(within_s, rel=0.02, abs=ANSWER_S), (percent, least_s, most_s)


def agree_on_readings(record: RunRecord, log: Log) -> None:
    """Every reading that the log has as accepted has its age, and none is lost."""
    agree(record.operations[READING_AGE][OutcomeClass.OK], log.readings())
    assert len(log.readings()) > 150
    assert record.audit is not None
    assert record.audit.readings is not None
    assert (record.audit.readings.lost, record.audit.readings.accepted) == (0, len(log.readings()))


def agree_on_commands(record: RunRecord, log: Log, ordered: int) -> None:
    """Every command that was ordered has ended, and stands by its name and by its end state."""
    ended, shown = list(log.commands([PING, REFUSED])), shown_ages(record.operations)
    assert len(ended) == ordered, record.commands
    agree(shown[COMMAND_AGE][OutcomeClass.OK], [age_s for _, _, age_s in ended])
    for name, state in {each[:2] for each in ended}:
        one = shown[f"{COMMAND_AGE}[{name}].{state}"]
        agree(one[OutcomeClass.OK], [age_s for *kind, age_s in ended if kind == [name, state]])
    assert {state for _, state, _ in ended} >= {"succeeded", "rejected"}


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_the_ages_of_readings_and_commands_are_what_a_log_between_fleet_and_target_says(combination, local, tmp_path):
    if combination.transport == "mqtt" and local.broker_url is None:
        require_program("mosquitto")
    record, log = play(combination.scenario(), local, tmp_path)
    agree_on_readings(record, log)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["ages"][READING_AGE]["ok"]["count"] == len(log.readings())
    # Half of the time was an outage: a threshold on ages says so.
    assert [result.held for result in record.thresholds][:2] == [False, True]
    if combination.kind == "devices":
        agree_on_commands(record, log, round(15 * (PING + REFUSED)))
        assert summary["ages"][COMMAND_AGE]["ok"]["count"] == len(log.ended)
        assert [result.held for result in record.thresholds][2:] == [False, True]
