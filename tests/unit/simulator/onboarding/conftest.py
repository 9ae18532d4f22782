"""An account of the local service for each test of this folder; faults make it the server that a test wants."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from simulator.pytest_plugin.account import Account
from simulator.pytest_plugin.service import DeviceService, running_service


@pytest.fixture(scope="module")
def service() -> Iterator[DeviceService]:
    """A service for the tests of one file."""
    with running_service() as service:
        yield service


@pytest.fixture
def account(service: DeviceService) -> Iterator[Account]:
    """A fresh account; the faults of its test end with it."""
    with service.account() as account:
        yield account
    service.tidy_up()


@pytest.fixture
def key_file(account: Account, tmp_path: Path) -> Path:
    """Where the account's secret key stands."""
    path = tmp_path / "secret.key"
    path.write_text(f"{account.secret_key.reveal()}\n")
    return path


@pytest.fixture
def way(account: Account, key_file: Path) -> list[str]:
    """The options that lead to the account."""
    return ["--base-url", account.base_url, "--api-key", account.api_key, "--secret-key-file", str(key_file)]
