"""Two runs held against each other: what is said to be better or worse, and what is not judged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.errors import ConfigurationError
from simulator.cli import program
from simulator.fleet.record import ThresholdResult, Verdict, VerdictStatus
from simulator.fleet.report.compare import BETTER, NOT_JUDGED, SAME, WORSE, compare_runs
from tests.support.fleet_runs import Shape, a_run, kept

SHAPE = Shape(duration_s=40, rate_per_s=60, good=True, seed=1)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return kept(tmp_path / "a", *a_run(SHAPE))


def findings(found) -> dict[tuple[str, str], str]:
    return {(each["operation"], each["name"]): each["finding"] for each in found["differences"]}


def compared(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(program, ["compare", *map(str, arguments)])
    return result.exit_code, " ".join(result.output.split())


def test_the_same_plan_with_other_chances_is_not_worse(base, tmp_path):
    found = compare_runs(base, kept(tmp_path / "b", *a_run(replace(SHAPE, seed=2))))
    assert found["compared"] == ["hold", "storm"]
    assert findings(found)["http.poll", "ok per second"] == SAME
    assert findings(found)["http.poll", "p50"] == SAME


def test_a_slower_run_is_worse_and_the_other_way_round_better(base, tmp_path):
    slower = kept(tmp_path / "b", *a_run(replace(SHAPE, slower=1.9)))
    assert findings(compare_runs(base, slower))["http.poll", "p50"] == WORSE
    assert findings(compare_runs(slower, base))["http.poll", "p50"] == BETTER
    code, said = compared(base, slower)
    assert code == 1
    assert "B is worse in" in said
    code, said = compared(base, slower, "--json")
    document = json.loads(said)
    assert (code, document["worse"] > 0, document["a"]["verdict"]) == (1, True, "passed")
    assert compared(base, base)[0] == 0


def test_a_threshold_that_no_longer_holds_is_worse_and_nothing_is_better_of_a_run_that_lost_data(base, tmp_path):
    record, seconds = a_run(replace(SHAPE, slower=0.5))
    held = ThresholdResult("http.poll.p99 < 1s", held=True, observed=0.1)
    one = kept(tmp_path / "one", replace(record, thresholds=(held,)), seconds)
    lost = Verdict(VerdictStatus.LOST, 4, ("2 lost",))
    other = kept(tmp_path / "other", replace(record, thresholds=(replace(held, held=False),), verdict=lost), seconds)
    assert compare_runs(one, other)["broken"] == [
        "B lost or changed data, and A did not",
        "the threshold http.poll.p99 < 1s held in A, and does not in B",
    ]
    assert BETTER not in findings(compare_runs(base, other)).values()


def test_a_run_that_proves_nothing_is_not_judged(base, tmp_path):
    record, seconds = a_run(replace(SHAPE, slower=1.9))
    verdict = Verdict(VerdictStatus.INCONCLUSIVE, 3, ("the generator stood still for 8.0 s",))
    other = kept(tmp_path / "b", replace(record, verdict=verdict), seconds)
    assert set(findings(compare_runs(base, other)).values()) == {NOT_JUDGED}
    code, said = compared(base, other)
    assert code == 3
    assert "nothing is judged: B is inconclusive: the generator stood still" in said


def test_what_cannot_be_compared_is_refused(base, tmp_path):
    record, seconds = a_run(SHAPE)
    one, another = ("scenario: steady", "scenario: steady\nkind: requests")
    other = kept(tmp_path / "b", replace(record, digest="another", scenario_text=another), seconds)
    base = kept(tmp_path / "one", replace(record, scenario_text=one), seconds)
    with pytest.raises(ConfigurationError, match="are runs of different scenarios"):
        compare_runs(base, other)
    assert compared(base, tmp_path / "nothing")[0] == 2
