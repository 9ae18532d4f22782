"""The contract suite: each consumer at servers that made their choices otherwise.

A core set is played always; ``make servers`` (``SERVER_CASES=all``) plays every single choice and all pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mosquitto import Mosquitto
from tests.servers.accounts import LocalServer, local_server
from tests.servers.agents import AgentPlay, play_agent
from tests.servers.audit_play import play_audit
from tests.servers.client_play import play_client
from tests.servers.covering import Case
from tests.servers.device_play import play_devices
from tests.servers.expectations import check_elsewhere, expectations_of, shown
from tests.servers.fronts import Fronts
from tests.servers.onboarding_play import play_onboarding
from tests.servers.selection import cases_for, is_killed

pytestmark = pytest.mark.long


@pytest.fixture(name="fronts")
def _fronts() -> Iterator[Fronts]:
    with Fronts() as fronts:
        yield fronts


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module", name="server")
def _server(folder: Path) -> Iterator[LocalServer]:
    with local_server(folder) as server:
        yield server


@pytest.mark.parametrize("case", cases_for("client"), ids=lambda case: case.id)
def test_the_client(case: Case, server: LocalServer, fronts: Fronts) -> None:
    with server.account(case, fronts) as account:
        problems = play_client(account, expectations_of(case)) + check_elsewhere(fronts, account.secret_key)
    assert not problems, shown(problems, case)


@pytest.mark.parametrize("case", cases_for("device"), ids=lambda case: case.id)
def test_a_virtual_device(case: Case, server: LocalServer, fronts: Fronts) -> None:
    with server.account(case, fronts) as account:
        problems = play_devices(account, fronts, expectations_of(case), killed=is_killed(case))
    assert not problems, shown(problems, case)


@pytest.mark.parametrize("case", cases_for("audit"), ids=lambda case: case.id)
def test_the_audit(case: Case, server: LocalServer, fronts: Fronts, tmp_path: Path) -> None:
    with server.account(case, fronts) as account:
        problems = play_audit(account, fronts, tmp_path, expectations_of(case))
    assert not problems, shown(problems, case)


@pytest.mark.parametrize("case", cases_for("onboarding"), ids=lambda case: case.id)
def test_the_onboarding_driver(case: Case, server: LocalServer, fronts: Fronts, tmp_path: Path) -> None:
    with server.account(case, fronts) as account:
        problems = play_onboarding(account, fronts, tmp_path)
    assert not problems, shown(problems, case)


@pytest.mark.parametrize("case", cases_for("agent"), ids=lambda case: case.id)
def test_an_agent_over_http(case: Case, server: LocalServer, fronts: Fronts, tmp_path: Path) -> None:
    with server.account(case, fronts) as account:
        problems = play_agent(AgentPlay(tmp_path, account), fronts, expectations_of(case), killed=is_killed(case))
    assert not problems, shown(problems, case)


@pytest.mark.parametrize("case", cases_for("gateway"), ids=lambda case: case.id)
def test_an_agent_over_mqtt_behind_a_gateway(
    case: Case, server: LocalServer, fronts: Fronts, tmp_path: Path, start_mosquitto: Callable[..., Mosquitto]
) -> None:
    broker = start_mosquitto("allow_anonymous true")
    with server.account(case, fronts) as account:
        play = AgentPlay(tmp_path, account, broker)
        problems = play_agent(play, fronts, expectations_of(case), killed=is_killed(case))
    assert not problems, shown(problems, case)
