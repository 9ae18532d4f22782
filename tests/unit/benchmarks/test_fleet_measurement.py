"""The proof of the fleet's measurement, in small: it runs, and it can fail."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(name="bench", scope="module")
def _bench():
    path = Path(__file__).resolve().parents[3] / "benchmarks" / "fleet_measurement.py"
    spec = importlib.util.spec_from_file_location("fleet_measurement_benchmark", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_in_small_everything_is_within_its_bars(bench, capsys, tmp_path):
    assert bench.main(["--values", "4000", "--records", "300000", "--peers", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "one log, bit for bit: yes" in told
    assert "merge exact" in told
    assert told.count(" ms ") == 20


def test_it_fails_on_a_wrong_percentile_a_wrong_merge_and_growing_memory(bench, capsys, tmp_path, monkeypatch):
    assert not bench.Bars(0.002, is_merge_exact=True, growth_kib=0).are_kept()
    assert not bench.Bars(0.0, is_merge_exact=False, growth_kib=0).are_kept()
    assert not bench.Bars(0.0, is_merge_exact=True, growth_kib=5000).are_kept()
    monkeypatch.setattr(bench, "PERCENTS", (50.0,))
    monkeypatch.setattr(bench, "truth_of", lambda log: [float(log.mean())])
    assert bench.main(["--values", "2000", "--records", "1000", "--peers", str(tmp_path)]) == 1
    assert "NOT REACHED" in capsys.readouterr().out
