"""The benchmark of the signals, in small: it runs, and it can fail."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(name="bench", scope="module")
def _bench():
    path = Path(__file__).resolve().parents[3] / "benchmarks" / "fleet_signals.py"
    spec = importlib.util.spec_from_file_location("fleet_signals_benchmark", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_it_prints_every_kind_and_judges_the_reading(bench, capsys, monkeypatch):
    monkeypatch.setattr(bench, "ROUNDS", 1)
    for bar_us, code in ((1e9, 0), (0.0, 1)):
        monkeypatch.setattr(bench, "BAR_US", bar_us)
        assert bench.main(["--calls", "20"]) == code
    told = capsys.readouterr().out
    for kind in (*bench.KINDS, "gps_route", "walk by halving", "climate reading", "history"):
        assert kind in told
