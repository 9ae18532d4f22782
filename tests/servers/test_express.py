"""Our programs at a server in Express that somebody wrote from the specification alone: address and keys are enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from simulator.fleet.metrics.saturation import Limits, Saturation
from simulator.fleet.record import VerdictStatus
from simulator.fleet.report.live import SilentView
from simulator.fleet.run import fleet_run
from simulator.fleet.run.fleet_run import RunOptions, perform_run
from simulator.fleet.run.reporter import RunReporter
from simulator.fleet.scenario.reading import read_scenario_file
from simulator.fleet.target.safety import permit
from simulator.fleet.target.target import TargetOptions, find_target
from tests.mosquitto import Mosquitto
from tests.servers.agents import AgentPlay, play_agent
from tests.servers.expectations import Expectations, shown
from tests.servers.express_running import ExpressAccount, express
from tests.servers.fronts import Fronts
from tests.servers.onboarding_play import play_onboarding
from tests.servers.server_words import Words

pytestmark = pytest.mark.long

EXPRESS = Expectations(
    words=Words(
        frozenset(
            {
                "offers no extensions (a plain server)",
                "has no place for results (404 Table not found)",
                "takes no recorded_at",
            }
        )
    )
)
"""Nothing beyond the specification, and no table of results."""
SCENARIO = """\
scenario: short
seed: 5
workers: 1
target: {transport: http_poll, pool: 16}
fleet:
  devices: 4
  models:
    - signals: {temperature_celsius: {kind: random_walk, start: 21, step: 0.1}}
      telemetry: {every_s: 1}
      poll: {every_s: 500ms}
commands:
  - {rate_per_s: 4, payload: {command: ping}}
phases:
  - {name: ramp, kind: ramp, duration_s: 1}
  - {name: hold, kind: hold, duration_s: 3}
drain_s: 30
thresholds: ["audit.lost == 0"]
"""


@pytest.fixture(autouse=True)
def _at_any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """How busy this machine is with other tests is not what is tested here."""
    limits = Limits(strained_share=1.0, stood_still_s=float("inf"))
    monkeypatch.setattr(fleet_run, "RunReporter", lambda *given: RunReporter(*given, saturation=Saturation(limits)))


@pytest.fixture(scope="module", name="fronts")
def _fronts() -> Iterator[Fronts]:
    with Fronts() as fronts:
        yield fronts


@pytest.fixture(scope="module", name="account")
def _account(fronts: Fronts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExpressAccount]:
    with express(tmp_path_factory.mktemp("express"), fronts) as account:
        yield account


def test_an_agent_works_over_http(account: ExpressAccount, fronts: Fronts, tmp_path: Path) -> None:
    problems = play_agent(AgentPlay(tmp_path, account), fronts, EXPRESS, killed=True)
    assert not problems, shown(problems)


def test_an_agent_works_over_mqtt_behind_a_gateway(
    account: ExpressAccount, fronts: Fronts, tmp_path: Path, start_mosquitto: Callable[..., Mosquitto]
) -> None:
    broker = start_mosquitto("allow_anonymous true")
    problems = play_agent(AgentPlay(tmp_path, account, broker), fronts, EXPRESS, killed=True)
    assert not problems, shown(problems)


def test_the_onboarding_driver_finds_nothing_wrong(account: ExpressAccount, fronts: Fronts, tmp_path: Path) -> None:
    problems = play_onboarding(account, fronts, tmp_path)
    assert not problems, shown(problems)


def test_a_fleet_runs_and_its_audit_finds_every_reading_and_command(account: ExpressAccount, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text(account.secret_key)
    scenario = tmp_path / "short.yaml"
    scenario.write_text(SCENARIO)
    way = find_target(TargetOptions(account.front.url, account.api_key, secret))
    stage = RunOptions(read_scenario_file(scenario), way, tmp_path / "run", (permit(way.base_url, (), owned=False),))
    record = perform_run(stage, lambda _head: SilentView())
    assert record.verdict.word is VerdictStatus.PASSED, record.verdict
    assert record.audit is not None
    readings = record.audit.readings
    assert readings is not None
    assert readings.sent == readings.accepted == readings.stored > 0
    commands = record.audit.commands
    assert commands is not None
    assert commands.sent == commands.accepted > 0
    assert (commands.lost, commands.doubled, commands.late) == (0, 0, 0)
