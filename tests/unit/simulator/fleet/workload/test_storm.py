from __future__ import annotations

import pytest

from simulator.fleet.workload.storm import Journey, judge_storm


def gone_through(number: int, *winners: str, raced: bool = False, unsure: bool = False) -> Journey:
    return Journey(number, f"n{number}", raced, list(winners), f"d{number}", unsure)


@pytest.mark.parametrize(
    ("journey", "listed", "kind"),
    [
        (gone_through(1, "a"), [], "lost"),
        (gone_through(1, "a"), [("a", "n1"), ("a", "n1")], "doubled"),
        (gone_through(1, "a"), [("a", "n1"), ("b", "n1")], "doubled"),
        (gone_through(1, "a", "b", raced=True), [("a", "n1")], "doubled"),
        (gone_through(1, "a"), [("b", "n1")], "altered"),
        (gone_through(1), [("a", "n1")], "unknown"),
    ],
)
def test_what_is_listed_wrongly_is_found_with_its_label(journey, listed, kind):
    audit = judge_storm([journey], listed)
    assert getattr(audit.registrations, kind) == 1
    assert [(found.kind, found.name) for found in audit.findings] == [(kind, "n1")]


def test_what_was_never_answered_may_be_either_and_what_nobody_began_is_unknown():
    unsure = gone_through(1, unsure=True)
    for listed in ([("a", "n1")], []):
        audit = judge_storm([unsure], listed).registrations
        assert audit is not None
        assert (audit.ambiguous, audit.lost, audit.unknown) == (1, 0, 0)
    stranger = judge_storm([], [("a", "n9")]).registrations
    assert stranger is not None
    assert stranger.unknown == 1
