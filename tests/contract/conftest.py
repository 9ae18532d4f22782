"""Every suite of the service's contract runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import pytest

STORAGES = ("sqlite", "postgresql")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test of a ``test_service_*`` module on both databases."""
    if metafunc.module.__name__.rpartition(".")[2].startswith("test_service_"):
        if "storage" not in metafunc.fixturenames:
            metafunc.fixturenames.insert(0, "storage")
        metafunc.parametrize("storage", STORAGES, indirect=True, scope="module")
