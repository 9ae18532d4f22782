"""A machine's crew answers calls that come twice with the same, and carries orders out once; without Ray."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from simulator.fleet.run.cluster.job_files import JobFiles
from simulator.fleet.run.cluster.node_crew import NodeCrew
from simulator.fleet.run.messages import Begin, Finished, Problem, Ready, Stop
from tests.workers_to_start import talk


@pytest.fixture
def crew(tmp_path, monkeypatch) -> Iterator[NodeCrew]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    crew = NodeCrew(talk, first=4, lease_s=math.inf)
    crew.start(["one"], JobFiles(None, {}))
    yield crew
    crew.close()
    assert list(tmp_path.iterdir()) == []


def test_what_is_asked_for_or_ordered_twice_comes_and_is_obeyed_once(crew):
    taken, messages = 0, []
    while not messages:
        taken, messages = crew.receive(taken)
    assert messages == [Ready(4, 3)]
    assert crew.receive(taken - 1) == (taken, messages), "the answer was lost on its way"
    begin, again, stop = (1, 4, Begin(1.0)), (2, 4, Begin(2.0)), (3, 4, Stop())
    assert crew.send([begin]) == 1
    assert crew.send([begin, again]) == 2
    assert crew.send([begin, again]) == 2
    assert crew.send([stop]) == 3
    said = []
    while not any(isinstance(message, Finished) for message in said):
        taken, messages = crew.receive(taken)
        said += messages
    assert said == [Problem(4, "one at 1"), Problem(4, "one at 2"), Finished(4, "ONE")]
