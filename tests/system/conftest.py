"""A service for a module's agents, and a registered device of each test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.wire.secret import Secret
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.system.agent_bench import API_KEY, SECRET_KEY, AgentBench


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """It keeps everything in a file, and has no quota."""
    config = ServiceConfig(
        data_dir=tmp_path_factory.mktemp("service"),
        api_key=API_KEY,
        secret_key=Secret(SECRET_KEY),
        rate_limit=0,
        log_level="warning",
    )
    with RunningService(config) as running:
        yield running


@pytest.fixture
def bench(service: RunningService, tmp_path: Path) -> Iterator[AgentBench]:
    """A device of that service, with its configuration; the agents that the test starts end with it."""
    made = AgentBench(tmp_path, service.base_url)
    yield made
    made.close()
