"""One key's quota: never more than it in a window as the service counts, shares, lending, learning."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.wire.rate_limit import RateLimit
from gateway.core.budget import PROBE_S, Budget, Grant, Kind, Shares, Wait
from tests.unit.gateway.core.key_users import KeyUsers

HUNGRY = (Kind.COMMANDS, Kind.RESULTS, Kind.READINGS)


def announced(remaining: int, reset_s: float, limit: int = 1000) -> RateLimit:
    return RateLimit(remaining, limit, 60.0, reset_s)


def granted(budget: Budget, kind: Kind, now_s: float) -> Grant:
    answer = budget.ask(kind, now_s)
    assert isinstance(answer, Grant)
    return answer


def known(limit: int = 1000, *, remaining: int | None = None, reset_s: float = 60.0) -> Budget:
    """A budget that has had its first answer at 0 s."""
    budget = Budget()
    left = limit - 1 if remaining is None else remaining
    budget.answered(granted(budget, Kind.UPKEEP, 0.0), 0.0, announced(left, reset_s, limit))
    return budget


def burst(budget: Budget, kind: Kind, now_s: float) -> int:
    """How many requests may be made in this instant."""
    count = 0
    while isinstance(budget.ask(kind, now_s), Grant):
        count += 1
        assert count < 100_000
    return count


# --- never more than the quota ----------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    quota=st.integers(1, 150),
    offset_s=st.floats(0, 60),
    slowest_s=st.sampled_from([0.01, 0.3, 2.0, 8.0]),
    lost=st.sampled_from([0.0, 0.05, 0.5]),
    seed=st.integers(0, 2**32),
)
def test_no_window_of_the_service_sees_more_than_the_quota(quota, offset_s, slowest_s, lost, seed):
    rng = random.Random(seed)
    hungry = rng.sample(list(Kind), rng.randint(1, 4))
    users = KeyUsers(
        quota,
        tuple(hungry),
        latency_s=lambda: rng.uniform(0, slowest_s),
        offset_s=offset_s,
        # What the quota is, nobody knows before the first answer.
        loses=lambda: bool(users.answered) and rng.random() < lost,
    )
    users.run(100.0)
    for _ in range(2):
        users.run(users.now_s + rng.uniform(0, 60))
        users.want(rng.choice(HUNGRY), rng.randrange(1, 200))
    users.run(users.now_s + 60)
    assert not users.refused
    assert max(users.counted.values()) <= quota


def test_nearly_all_of_the_quota_is_used_and_spread_over_the_window():
    users = KeyUsers(600).run(300.0)
    minutes = [users.counted[minute] for minute in range(1, 4)]
    assert all(580 <= count <= 600 for count in minutes)
    seconds = Counter(int(at_s) for at_s, _ in users.granted_at if at_s >= 60.0)
    assert max(seconds.values()) <= 3 * 600 / 60
    assert all(seconds[second] >= 3 for second in range(60, 300))


def test_after_a_quiet_half_of_a_window_the_pace_is_at_most_doubled():
    users = KeyUsers(1000, hungry=()).run(1.0)
    users.want(Kind.COMMANDS)
    users.run(30.0)
    users.want_always(Kind.READINGS)
    users.run(42.0)
    assert 12 * 1000 / 60 < users.answered[Kind.READINGS] < 12 * 2 * 1000 / 60 + 60


def test_until_the_first_answer_one_request_is_made_at_a_time():
    budget = Budget()
    first = granted(budget, Kind.COMMANDS, 0.0)
    assert budget.ask(Kind.RESULTS, 0.0) == Wait(PROBE_S)
    budget.lost(first, 5.0)
    second = granted(budget, Kind.RESULTS, 5.0)
    budget.answered(second, 5.1)
    assert all(isinstance(budget.ask(kind, 5.1), Grant) for kind in [*Kind] * 100)


def test_a_service_without_quota_and_without_429_is_not_held_back():
    users = KeyUsers(10**9, headers=False).run(20.0)
    assert sum(users.answered.values()) >= 3 * 20 / 0.02 * 0.95
    assert users.budget.state(20.0).quota is None


# --- shares -----------------------------------------------------------------------------------------------------------


def test_under_pressure_each_kind_gets_its_share():
    users = KeyUsers(300, tuple(Kind)).run(600.0)
    whole = sum(users.answered.values())
    for kind, part in Shares().parts().items():
        assert users.answered[kind] / whole == pytest.approx(part, rel=0.1)


def test_commands_have_more_than_results_and_results_more_than_readings():
    parts = Shares().parts()
    assert parts[Kind.COMMANDS] > parts[Kind.RESULTS] > parts[Kind.READINGS] > parts[Kind.UPKEEP]
    assert sum(parts.values()) == pytest.approx(1)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_kind_that_is_alone_is_lent_everything(kind):
    users = KeyUsers(300, (kind,)).run(300.0)
    assert users.answered[kind] > 0.95 * 5 * 300


@settings(max_examples=20, deadline=None)
@given(
    shares=st.builds(Shares, *[st.floats(0.01, 100)] * 4),
    quota=st.integers(4, 100),
    hungry=st.sets(st.sampled_from(list(Kind)), min_size=2),
)
def test_no_kind_starves_whatever_the_others_want(shares, quota, hungry):
    users = KeyUsers(quota, tuple(hungry), budget=Budget(shares)).run(600.0)
    for kind in hungry:
        guaranteed = shares.parts()[kind] * 0.9 * quota * 10
        assert users.answered[kind] >= 0.8 * guaranteed - 2


def test_a_kind_that_was_silent_need_not_wait_behind_those_who_use_its_share():
    users = KeyUsers(1000, (Kind.COMMANDS, Kind.READINGS)).run(200.0)
    before = len(users.granted_at)
    users.want(Kind.RESULTS, 10)
    users.run(200.2)
    assert sum(1 for _, kind in users.granted_at[before:] if kind is Kind.RESULTS) == 10


def test_a_share_of_nothing_is_refused():
    with pytest.raises(ValueError, match="above 0"):
        Shares(readings=0)


# --- others use the same key ------------------------------------------------------------------------------------------


def test_a_remaining_that_falls_faster_than_we_spend_is_followed():
    budget = known()
    grant = granted(budget, Kind.COMMANDS, 1.0)
    budget.answered(grant, 1.1, announced(3, 59))
    assert sum(burst(budget, kind, 1.1) for kind in Kind) == 3
    answer = budget.ask(Kind.COMMANDS, 1.1)
    assert isinstance(answer, Wait)
    assert 60.0 < answer.until_s <= 62.0


# --- answers and windows ----------------------------------------------------------------------------------------------


def test_requests_under_way_count_as_made():
    budget = known(limit=1000, remaining=10, reset_s=30)
    assert sum(burst(budget, kind, 0.0) for kind in Kind) == 10


def test_answers_that_overtake_each_other_do_not_give_back_what_is_spent():
    budget = known(limit=100, remaining=10)
    first, second = granted(budget, Kind.COMMANDS, 0.0), granted(budget, Kind.COMMANDS, 0.0)
    budget.answered(second, 0.1, announced(3, 60, 100))
    budget.answered(first, 0.2, announced(9, 60, 100))
    assert budget.state(0.2).left == 3


def test_a_late_answer_out_of_the_last_window_changes_nothing():
    budget = known(limit=100, reset_s=1)
    late, first = granted(budget, Kind.COMMANDS, 0.5), granted(budget, Kind.COMMANDS, 1.5)
    budget.answered(first, 1.6, announced(99, 60, 100))
    budget.answered(late, 1.7, announced(40, 1, 100))
    assert budget.state(1.7).left == 99


def test_an_answer_shows_a_new_window_before_our_clock_does():
    budget = known(limit=100, remaining=1, reset_s=50)
    grant = granted(budget, Kind.COMMANDS, 1.0)
    budget.answered(grant, 1.1, announced(99, 60, 100))
    assert budget.state(1.1).left == 99


def test_a_window_that_nobody_confirmed_begins_all_the_same():
    budget = known(limit=100, remaining=0, reset_s=30)
    answer = budget.ask(Kind.COMMANDS, 1.0)
    assert isinstance(answer, Wait)
    assert 30.0 <= answer.until_s <= 32.0
    assert isinstance(budget.ask(Kind.COMMANDS, answer.until_s), Grant)


def test_an_hour_of_silence_leaves_one_window_of_requests():
    budget = known(limit=100)
    assert sum(burst(budget, kind, 3600.0) for kind in Kind) <= 100


def test_a_lost_answer_counts_as_a_request_made():
    budget = known(limit=100, remaining=10)
    grant = granted(budget, Kind.COMMANDS, 0.0)
    budget.lost(grant, 1.0)
    assert budget.state(1.0).left == 9


def test_an_answer_without_headers_counts_too():
    budget = known(limit=100, remaining=10)
    budget.answered(granted(budget, Kind.COMMANDS, 0.0), 1.0)
    assert budget.state(1.0).left == 9


def test_a_grant_that_was_not_used_is_given_back():
    budget = known(limit=100, remaining=10)
    for _ in range(50):
        budget.unused(granted(budget, Kind.COMMANDS, 0.0), 0.0)
    state = budget.state(0.0)
    assert state.left == 10
    assert state.granted[Kind.COMMANDS] == 0


def test_a_request_whose_end_nobody_told_is_forgotten_in_the_end():
    budget = known(limit=2)
    granted(budget, Kind.COMMANDS, 0.0)
    assert budget.state(100.0).left == 1
    assert budget.state(700.0).left == 2


def test_a_service_whose_minute_is_shorter_is_followed():
    # The emulator's clock can run ten times as fast: its "60 seconds" are six of ours.
    budget = known(limit=100, remaining=1, reset_s=60)
    grant = granted(budget, Kind.COMMANDS, 6.0)
    budget.answered(grant, 6.1, announced(99, 60, 100))
    assert budget.state(6.1).left == 99


# --- 429 --------------------------------------------------------------------------------------------------------------


def test_a_quota_that_is_no_longer_told_holds_nobody_back():
    users = KeyUsers(60).run(300.0)
    users.headers = False
    users.become(10**6)
    users.run(600.0)
    assert users.budget.state(600.0).quota is None


@pytest.mark.parametrize("others_per_s", [0.5, 4.0])
def test_what_others_take_is_counted_by_the_headers(others_per_s):
    users = KeyUsers(300, others_per_s=others_per_s).run(900.0)
    assert users.refused_share <= 0.02
    assert sum(users.answered.values()) / 900 >= 0.6 * (300 / 60 - others_per_s)


@pytest.mark.parametrize("retry_after", [True, False])
def test_without_headers_a_429_is_waited_for(retry_after):
    users = KeyUsers(300, headers=False, retry_after=retry_after).run(1200.0)
    assert users.budget.state(1200.0).quota is None
    assert sum(users.counted.values()) >= 0.5 * 20 * 300


def test_after_a_429_nothing_is_asked_for_until_it_is_over():
    budget = known()
    budget.refused(granted(budget, Kind.COMMANDS, 1.0), 1.1, 20.0)
    assert [budget.ask(kind, 5.0) for kind in Kind] == [Wait(21.1)] * 4
    assert budget.state(5.0).blocked_s == pytest.approx(16.1)
    assert isinstance(budget.ask(Kind.COMMANDS, 21.1), Grant)


def test_without_retry_after_the_headers_say_how_long():
    budget = known()
    budget.refused(granted(budget, Kind.COMMANDS, 1.0), 1.0, None, announced(0, 30))
    assert budget.ask(Kind.COMMANDS, 1.0) == Wait(31.0)


def test_a_429_that_says_nothing_doubles_the_silence_up_to_a_window():
    budget, now_s, silences = Budget(), 0.0, []
    for _ in range(9):
        while not isinstance(answer := budget.ask(Kind.COMMANDS, now_s), Grant):
            now_s = answer.until_s
        budget.refused(answer, now_s)
        silences.append(budget.state(now_s).blocked_s)
    assert silences == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_several_429s_at_the_same_time_are_one_failure():
    budget = Budget()
    budget.answered(granted(budget, Kind.COMMANDS, 0.0), 0.0)
    grants = [granted(budget, Kind.COMMANDS, 1.0) for _ in range(20)]
    for grant in grants:
        budget.refused(grant, 1.0)
    answer = budget.ask(Kind.COMMANDS, 1.0)
    assert isinstance(answer, Wait)
    assert answer.until_s <= 3.0


def test_a_retry_after_of_a_month_is_not_believed():
    budget = Budget()
    budget.refused(granted(budget, Kind.COMMANDS, 0.0), 0.0, 1e9)
    answer = budget.ask(Kind.COMMANDS, 0.0)
    assert isinstance(answer, Wait)
    assert answer.until_s <= 3600.0


@pytest.mark.parametrize("headers", [True, False])
def test_a_quota_of_nothing_is_asked_about_once_a_minute_and_every_kind_gets_its_turn(headers):
    users = KeyUsers(0, headers=headers).run(1800.0)
    assert sum(users.refused.values()) <= (32 if headers else 60)
    state = users.budget.state(1800.0)
    assert state.refused == sum(users.refused.values())
    users.become(120)
    users.run(1800.0 + (600.0 if headers else 3600.0))
    assert all(users.answered[kind] > 50 for kind in HUNGRY)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ask", "answer", "refuse", "lose", "drop"]),
            st.sampled_from(list(Kind)),
            st.floats(0, 100),
            st.none()
            | st.builds(RateLimit, *[st.none() | st.integers(0, 10**15)] * 2, *[st.none() | st.floats(0, 86400)] * 2),
        ),
        max_size=60,
    )
)
def test_whatever_a_service_says_the_budget_neither_fails_nor_spins(steps):
    budget, now_s, grants = Budget(), 0.0, []
    for what, kind, later_s, seen in steps:
        now_s += later_s
        if what == "ask" or not grants:
            answer = budget.ask(kind, now_s)
            if isinstance(answer, Grant):
                grants.append(answer)
            else:
                assert now_s < answer.until_s <= now_s + 2 * 86_402
        elif what == "answer":
            budget.answered(grants.pop(), now_s, seen)
        elif what == "refuse":
            budget.refused(grants.pop(0), now_s, later_s, seen)
        elif what == "lose":
            budget.lost(grants.pop(), now_s)
        else:
            budget.unused(grants.pop(), now_s)
        state = budget.state(now_s)
        assert state.left is None or state.left >= 0
