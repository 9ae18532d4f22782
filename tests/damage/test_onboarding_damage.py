"""Every kind of damage to an onboarding's answers is found; without any it is good."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.onboarding import campaign, retrying
from tests.damage.kinds import ONBOARDED
from tests.damage.onboarding import OnboardCase, onboarded
from tests.damage.run import Kind

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "_BASE_S", 0.001)
    monkeypatch.setattr(campaign, "_CAP_S", 0.002)
    monkeypatch.setattr(retrying, "_CAP_S", 0.002)


@pytest.mark.parametrize("command", ["campaign", "labels"])
def test_without_damage_it_is_good(command, tmp_path):
    case = OnboardCase(tmp_path, command)
    code, said = onboarded(case)
    assert code == 0, said


@pytest.mark.parametrize("kind", ONBOARDED.kinds, ids=lambda kind: f"{kind.place}: {kind.name}")
def test_it_is_found(kind: Kind, tmp_path: Path) -> None:
    case = OnboardCase(tmp_path)
    kind.plant(case)
    code, said = onboarded(case)
    assert code == kind.code, said
    assert "Traceback" not in said
    assert not [words for words in kind.words if words not in said], said
