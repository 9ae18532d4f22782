"""The long proof of labels, in small: it runs, it covers what it says, and it can fail."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(name="bench", scope="module")
def _bench():
    path = Path(__file__).resolve().parents[3] / "benchmarks" / "labels.py"
    spec = importlib.util.spec_from_file_location("labels_benchmark", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_profile_level_and_version_comes_in_turn_and_the_same_again(bench):
    some = list(bench.payloads(300, 1))
    assert some == list(bench.payloads(300, 1))
    assert some != list(bench.payloads(300, 2))
    assert {each.kind for each in some} == {*bench.PROFILES, bench.PLAIN}
    assert {each.level for each in some} == set("LMQH")
    assert any(not each.text.isascii() for each in some)


def test_the_proof_counts_and_fails_when_a_payload_is_unreadable(bench, capsys, monkeypatch):
    assert bench.proof(24, ("zxing",), 1, 1) == 0
    told = capsys.readouterr().out
    assert "unreadable                   0" in told
    assert "24 payloads" in told

    def unreadable(*given, **named):
        raise bench.UnreadableLabel("no")

    monkeypatch.setattr(bench, "prove", unreadable)
    assert bench.proof(3, ("zxing",), 1, 1) == 1
    assert "unreadable                   3" in capsys.readouterr().out
