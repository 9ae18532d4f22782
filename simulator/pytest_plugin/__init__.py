"""Fixtures for pytest: a device service, an account for each test, devices, labels. ``docs/testing.md`` shows how.

pytest imports this module in every project that has ``device-agent`` installed, so it imports nothing but pytest: what
a fixture needs is imported when a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from simulator.pytest_plugin.account import Account
    from simulator.pytest_plugin.devices import AgentProcesses, VirtualDevices
    from simulator.pytest_plugin.labels import Labels
    from simulator.pytest_plugin.service import DeviceService

_SERVICE: Final = pytest.StashKey["DeviceService"]()
_MISSING: Final = "is missing: the fixtures of device-agent need pip install '.[simulator]' in a clone of device-agent"


@pytest.fixture(scope="session")
def device_service(pytestconfig: pytest.Config) -> Iterator[DeviceService]:
    """A device service of this test process: on loopback, on a free port, keeping nothing.

    Faults, scripts and a moved clock last until the end of the test that asked for them.
    """
    try:
        from simulator.pytest_plugin.service import running_service
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] in {"simulator", "agent", "gateway"}:
            raise
        raise pytest.UsageError(f"the package {error.name!r} {_MISSING}") from None
    with running_service() as service:
        pytestconfig.stash[_SERVICE] = service
        yield service
        del pytestconfig.stash[_SERVICE]


@pytest.fixture
def account(device_service: DeviceService) -> Iterator[Account]:
    """An account with keys of its own, empty, for this test alone."""
    with device_service.account() as made:
        yield made


@pytest.fixture
def virtual_device(account: Account) -> Iterator[VirtualDevices]:
    """Starts virtual devices in the test's account: ``virtual_device()`` registers and switches one on.

    A virtual device decides with the agent's own core. All of them end with the test.
    """
    from simulator.pytest_plugin.devices import VirtualDevices

    with ExitStack() as ends:
        yield VirtualDevices(account, ends)


@pytest.fixture
def agent_process(account: Account, tmp_path: Path) -> Iterator[AgentProcesses]:
    """Starts real agents in the test's account: ``agent_process()`` registers a device and runs its agent.

    Each has a folder of its own for its state. All of them end with the test.
    """
    from simulator.pytest_plugin.devices import AgentProcesses

    with ExitStack() as ends:
        yield AgentProcesses(account, tmp_path, ends)


@pytest.fixture
def labels(account: Account, tmp_path: Path) -> Labels:
    """Makes QR labels for products of the test's account: ``labels(product_id, "SN-000001")``."""
    from simulator.pytest_plugin.labels import Labels

    return Labels(account, tmp_path)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Put the service back after a test that has set faults, scripts or the clock."""
    service = item.config.stash.get(_SERVICE, None)
    if service is not None:
        service.tidy_up()
