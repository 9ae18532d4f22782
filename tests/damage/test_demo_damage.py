"""Every kind of damage to what a demo left is found by its proofs; without any all of them hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.damage.demo import DemoCase, Played, play, proved
from tests.damage.kinds import PROVED
from tests.damage.run import Kind

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A demo that held, with the data of its service."""
    return play(tmp_path_factory.mktemp("played") / "demo")


def test_without_damage_every_proof_holds(played, tmp_path):
    assert proved(DemoCase(played, tmp_path)) == (0, "")


@pytest.mark.parametrize("kind", PROVED.kinds, ids=lambda kind: f"{kind.place}: {kind.name}")
def test_the_proofs_find(kind: Kind, played: Played, tmp_path: Path) -> None:
    case = DemoCase(played, tmp_path)
    kind.plant(case)
    code, said = proved(case)
    assert code == kind.code, said
    assert not [words for words in kind.words if words not in said], said
