"""Every suite of the service's contract runs on SQLite and on PostgreSQL, apart from what no database sees."""

from __future__ import annotations

import pytest

STORAGES = ("sqlite", "postgresql")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test of a ``test_service_*`` module on both databases, and on SQLite alone where it is marked so."""
    if metafunc.module.__name__.rpartition(".")[2].startswith("test_service_"):
        if "storage" not in metafunc.fixturenames:
            metafunc.fixturenames.insert(0, "storage")
        storages = STORAGES[:1] if metafunc.definition.get_closest_marker("one_database") else STORAGES
        metafunc.parametrize("storage", storages, indirect=True, scope="module")
