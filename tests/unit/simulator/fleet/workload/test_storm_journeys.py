from __future__ import annotations

import pytest

from simulator.fleet.record import StreamAudit
from simulator.fleet.workload.storm_journeys import Journey, JourneyPlan, judge_storm, plan_course


def gone_through(number: int, *winners: str, removals: int = 0, raced: bool = False, unsure: bool = False) -> Journey:
    course = JourneyPlan(number, f"n{number}", raced=raced, removed=removals > 0)
    return Journey(course, True, list(winners), f"d{number}", removals, unsure)


def test_a_course_is_a_function_of_seed_and_number_and_keeps_to_the_shares():
    courses = [plan_course(1, number, f"n{number}", races=0.1, remove=0.2) for number in range(4000)]
    assert courses == [plan_course(1, number, f"n{number}", races=0.1, remove=0.2) for number in range(4000)]
    assert sum(course.raced for course in courses) == pytest.approx(400, abs=60)
    assert sum(course.removed for course in courses) == pytest.approx(800, abs=80)
    assert not plan_course(1, 5, "n5", races=0.0, remove=0.0).raced


def test_a_storm_in_which_all_is_well():
    journeys = [gone_through(1, "a"), gone_through(2, "b", raced=True), gone_through(3, "a", removals=1)]
    tally = judge_storm(journeys, {"a": ["n1"], "b": ["n2"]})
    assert tally.audit.registrations == StreamAudit(
        sent=3, accepted=3, stored=2, lost=0, doubled=0, reordered=0, altered=0, late=0, unknown=0
    )
    assert (tally.races, tally.races_decided, tally.removed, tally.audit.findings) == (1, 1, 1, ())


@pytest.mark.parametrize(
    ("journey", "listed", "kind"),
    [
        (gone_through(1, "a"), {"a": []}, "lost"),
        (gone_through(1, "a"), {"a": ["n1", "n1"]}, "doubled"),
        (gone_through(1, "a"), {"a": ["n1"], "b": ["n1"]}, "doubled"),
        (gone_through(1, "a", "b", raced=True), {"a": ["n1"]}, "doubled"),
        (gone_through(1, "a"), {"a": [], "b": ["n1"]}, "altered"),
        (gone_through(1, "a", removals=1), {"a": ["n1"]}, "unknown"),
        (gone_through(1), {"a": ["n1"]}, "unknown"),
    ],
)
def test_what_is_listed_wrongly_is_found_with_its_label(journey, listed, kind):
    tally = judge_storm([journey], listed)
    assert tally.audit.registrations is not None
    assert getattr(tally.audit.registrations, kind) == 1
    assert [(found.kind, found.name) for found in tally.audit.findings] == [(kind, "n1")]


def test_what_was_never_answered_may_be_either_and_what_nobody_began_is_unknown():
    unsure = gone_through(1, unsure=True)
    for listed in (["n1"], []):
        audit = judge_storm([unsure], {"a": listed}).audit.registrations
        assert audit is not None
        assert (audit.ambiguous, audit.lost, audit.unknown) == (1, 0, 0)
    stranger = judge_storm([], {"a": ["n9"]}).audit.registrations
    assert stranger is not None
    assert stranger.unknown == 1
