"""Our programs at a server in Express that somebody wrote from the specification alone: address and keys are enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mosquitto import Mosquitto
from tests.servers.agents import AgentPlay, play_agent
from tests.servers.expectations import FOREIGN, shown
from tests.servers.express_running import ExpressAccount, express
from tests.servers.fronts import Fronts


@pytest.fixture(scope="module", name="fronts")
def _fronts() -> Iterator[Fronts]:
    with Fronts() as fronts:
        yield fronts


@pytest.fixture(scope="module", name="account")
def _account(fronts: Fronts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExpressAccount]:
    with express(tmp_path_factory.mktemp("express"), fronts) as account:
        yield account


@pytest.mark.parametrize("killed", [False, True], ids=["ended", "killed"])
def test_an_agent_works_over_http(account: ExpressAccount, fronts: Fronts, tmp_path: Path, *, killed: bool) -> None:
    problems = play_agent(AgentPlay(tmp_path, account), fronts, FOREIGN, killed=killed)
    assert not problems, shown(problems)


def test_an_agent_works_over_mqtt_behind_a_gateway(
    account: ExpressAccount, fronts: Fronts, tmp_path: Path, start_mosquitto: Callable[..., Mosquitto]
) -> None:
    broker = start_mosquitto("allow_anonymous true")
    problems = play_agent(AgentPlay(tmp_path, account, broker), fronts, FOREIGN, killed=True)
    assert not problems, shown(problems)
