from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.core.gaps import CODES, LONGEST_S, Gap, gaps_of
from agent.core.outbox import DropReason, StoredItem
from agent.core.values import Priority
from tests.factories import make_moment


def gap(since_s: float, until_s: float, rows: int = 1, reason: DropReason = DropReason.ROWS) -> Gap:
    return Gap(reason, rows, make_moment(since_s), make_moment(until_s))


def test_every_reason_has_a_number_of_its_own():
    assert set(CODES) == set(DropReason)
    assert len(set(CODES.values())) == len(CODES)


def test_a_record_is_numbers_only_and_taken_when_the_last_reading_was():
    record = gap(1000.0, 1090.5, 91).record()
    assert record.values == {"agent_gap_rows": 91, "agent_gap_seconds": 90.5, "agent_gap_reason": 2}
    assert record.at == make_moment(1090.5)
    assert record.priority is Priority.GAP


def test_how_long_it_lasted_is_left_out_where_no_clock_can_say():
    unset = Gap(DropReason.AGE, 2, make_moment(5.0, wall_s=5.0, boot_id="boot-0"), make_moment(7.0, wall_s=7.0))
    assert unset.record().values == {"agent_gap_rows": 2, "agent_gap_reason": 1}


def test_an_episode_is_over_when_there_is_room_again_and_told_in_parts_when_it_is_long():
    assert gap(1000.0, 1000.0).is_over(pressure_is_over=True)
    assert not gap(1000.0, 1000.0 + LONGEST_S - 1).is_over(pressure_is_over=False)
    assert gap(1000.0, 1000.0 + LONGEST_S).is_over(pressure_is_over=False)


DROPPED = st.lists(st.tuples(st.floats(0, 5000), st.sampled_from(list(DropReason))))


@given(DROPPED, DROPPED)
def test_no_reading_is_counted_twice_or_not_at_all_and_the_ends_are_the_ends(first, second):
    parts = [[(StoredItem(0, 1, make_moment(at)), reason) for at, reason in part] for part in (first, second)]
    joined: dict[DropReason, Gap] = {}
    for part in parts:
        for each in gaps_of(part):
            joined[each.reason] = joined[each.reason].joined(each) if each.reason in joined else each
    for reason in DropReason:
        moments = [at for at, why in first + second if why is reason]
        assert (reason in joined) == bool(moments)
        if moments:
            found = joined[reason]
            assert found.rows == len(moments)
            assert (found.since.monotonic_s, found.until.monotonic_s) == (min(moments), max(moments))
