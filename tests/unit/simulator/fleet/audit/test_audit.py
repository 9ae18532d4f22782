from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simulator.fleet.audit.readings import DeviceReadings, ReadingFact, audit_readings


def facts(*keys: int) -> tuple[ReadingFact, ...]:
    return tuple(ReadingFact(key, {"t": key / 10}) for key in keys)


def test_both_sides_alike_is_clean_in_any_order():
    found = audit_readings(DeviceReadings("d", facts(1, 2, 3), facts(3, 1, 2)))
    assert found.clean
    assert found.sentences() == ()


def test_lost_doubled_altered_and_unknown_are_told_apart():
    stored = (*facts(2, 2, 9), ReadingFact(3, {"t": 99.0}))
    found = audit_readings(DeviceReadings("d", facts(1, 2, 3), stored))
    assert (found.lost, found.doubled, found.altered, found.unknown) == ((1,), (2,), (3,), (9,))
    assert found.sentences() == (
        "d: 1 lost (1)",
        "d: 1 doubled (2)",
        "d: 1 altered (3)",
        "d: 1 unknown (9)",
    )


def test_an_unsure_reading_may_be_stored_or_not_but_never_twice():
    assert audit_readings(DeviceReadings("d", facts(1), facts(1, 5), frozenset({5}))).clean
    assert audit_readings(DeviceReadings("d", facts(1), facts(1), frozenset({5}))).clean
    assert audit_readings(DeviceReadings("d", facts(1), facts(1, 5, 5), frozenset({5}))).doubled == (5,)


def test_an_unsure_reading_counts_as_accepted_when_it_is_stored():
    """Or whoever reads the numbers misses one that nobody promised."""
    caught, arrived = facts(1, 2), facts(1, 2, 3)
    for stored in (caught, arrived):
        found = audit_readings(DeviceReadings("d", facts(1, 2, 3), stored, frozenset({3})))
        assert found.clean
        assert found.accepted == found.stored == len(stored)


def test_a_missing_name_in_a_reading_is_an_alteration():
    accepted = (ReadingFact(1, {"t": 1.0, "h": 2.0}),)
    assert audit_readings(DeviceReadings("d", accepted, (ReadingFact(1, {"t": 1.0}),))).altered == (1,)


@given(st.sets(st.integers(0, 500), min_size=4, max_size=60), st.data())
def test_every_planted_fault_is_found_and_nothing_else(keys, data):
    chosen = data.draw(st.lists(st.sampled_from(sorted(keys)), min_size=3, max_size=3, unique=True))
    lost, doubled, altered = chosen
    stored = [fact for fact in facts(*keys) if fact.key not in {lost, altered}]
    stored += [*facts(doubled), ReadingFact(altered, {"t": -1.0}), *facts(1000)]
    found = audit_readings(DeviceReadings("d", facts(*keys), tuple(data.draw(st.permutations(stored)))))
    assert (found.lost, found.doubled, found.altered, found.unknown) == ((lost,), (doubled,), (altered,), (1000,))
