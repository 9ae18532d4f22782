"""A Ray cluster of several nodes on this machine. Without Ray (``make test``) nothing of this folder is collected."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

import pytest

from agent.wire.secret import Secret
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.cluster_running import RunningCluster, running_cluster
from tests.cluster_runs import API_KEY, SECRET_KEY, Program, start_run

collect_ignore_glob = [] if find_spec("ray") else ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def temporary_files() -> Iterator[None]:
    """What nodes and workers write has a folder of its own: other clusters of this machine leave files, too."""
    with (
        tempfile.TemporaryDirectory(prefix="fc-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as env,
    ):
        env.setenv("TMPDIR", folder)
        yield


@pytest.fixture(scope="session")
def cluster() -> Iterator[RunningCluster]:
    """Two nodes with two cores each."""
    with running_cluster(2, 2) as running:
        yield running


@pytest.fixture(scope="session")
def service() -> Iterator[RunningService]:
    config = ServiceConfig(port=0, api_key=API_KEY, secret_key=Secret(SECRET_KEY), rate_limit=0)
    with RunningService(config) as running:
        yield running


@pytest.fixture
def start(service, tmp_path) -> Callable[..., Program]:
    """Start ``fleet-simulator run``; its folder is ``tmp_path/NAME``."""

    def start(name: str, address: str | None, prefix: str = "", base_url: str = "", **changes: Any) -> Program:
        # Devices of each run's own: a run that was killed leaves orders that nobody answers.
        own = prefix or f"{name}-{uuid4().hex[:8]}"
        return start_run(tmp_path, name, base_url or service.base_url, cluster=address, prefix=own, **changes)

    return start
