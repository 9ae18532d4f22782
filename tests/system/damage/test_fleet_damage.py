"""Every kind of damage to a fleet's run is found, with the exit code that fits and in words; a copy without is good."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.retry import Backoff
from simulator.fleet.target import client
from tests.support.fleet_runs import at_any_speed
from tests.system.damage.given import given_commands, given_readings
from tests.system.damage.run import Kind, Recorded, audit_of, case_of, record, report_of, serving
from tests.system.damage.stored import ledgers, mentioned, stored_commands, stored_readings

pytestmark = pytest.mark.long

KINDS = [
    *stored_readings(),
    *stored_commands(),
    *given_readings(),
    *given_commands(),
    *ledgers(),
    *mentioned(),
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A run that passed, with the data of its service."""
    with pytest.MonkeyPatch.context() as patched:
        at_any_speed(patched)
        return record(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="module")
def served(recorded: Recorded) -> Iterator[str]:
    """Where the undamaged data is served."""
    data = recorded.root / "served"
    shutil.copytree(recorded.service, data)
    with serving(data) as service:
        yield service.base_url


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_BACKOFF", Backoff(base_s=0.001, cap_s=0.002))


def test_an_undamaged_copy_is_good(recorded, served, tmp_path):
    with case_of(recorded, tmp_path) as case:
        code, said = audit_of(case, served)
        assert code == 0, said
        assert re.search(r"readings: (\d+) sent, \1 accepted, \1 given back commands: (\d+) sent", said), said
        case.page = 2
        assert audit_of(case, served)[0] == 0
        assert report_of(case)[0] == 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.place}: {kind.name}")
def test_the_audit_finds(kind: Kind, recorded: Recorded, served: str, tmp_path: Path) -> None:
    with case_of(recorded, tmp_path) as case:
        kind.plant(case)
        code, said = audit_of(case, served)
    assert code == kind.code, said
    assert "Traceback" not in said
    assert not [words for words in kind.words if words not in said], said
