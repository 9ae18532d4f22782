"""Which device next: recently active often, idle seldom, all within a bound, and fair when the quota is short."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.fair_polling import FairIntervals, FairPolling

STEPS = ("add", "remove", "next", "saw", "failed", "active", "connected", "disconnected")
INTERVALS = FairIntervals(fast_s=2.0, idle_s=60.0, reconcile_s=900.0)


def fleet(count: int, now_s: float = 0.0) -> FairPolling:
    polling = FairPolling(INTERVALS)
    for number in range(count):
        polling.add(f"d{number}", now_s)
    return polling


def serve(polling: FairPolling, from_s: float, until_s: float, per_s: float, news=lambda device_id: False):
    """Poll at this rate at most; (time, device) of each poll."""
    seen, steps = [], int((until_s - from_s) * per_s)
    for step in range(steps):
        now_s = from_s + step / per_s
        for device_id in polling.next_due(now_s):
            seen.append((now_s, device_id))
            polling.poll_succeeded(device_id, now_s, news=news(device_id))
    return seen


def gaps(seen, device_id: str) -> list[float]:
    times = [at_s for at_s, each in seen if each == device_id]
    return [later - earlier for earlier, later in itertools.pairwise(times)]


# --- enough quota -----------------------------------------------------------------------------------------------------


def test_a_new_fleet_is_spread_over_the_first_interval():
    seen = serve(fleet(600), 0, 60, 100)
    assert len(seen) == 600
    tenths = Counter(int(at_s / 6) for at_s, _ in seen)
    assert all(30 < tenths[tenth] < 100 for tenth in range(10))


def test_an_idle_device_is_asked_about_once_in_the_idle_interval():
    seen = serve(fleet(10), 0, 1000, 20)
    assert all(gap == pytest.approx(60, abs=0.2) for gap in gaps(seen, "d3"))


def test_activity_makes_it_fast_and_quiet_makes_it_slow_again():
    polling = fleet(1)
    polling.mark_active("d0", 100.0)
    seen = serve(polling, 100, 700, 20)
    between = gaps(seen, "d0")
    assert between[0] == pytest.approx(2, abs=0.1)
    assert between[-1] == pytest.approx(60, abs=0.1)
    assert all(later >= earlier - 0.11 for earlier, later in itertools.pairwise(between))


def test_news_keep_a_device_fast():
    polling = fleet(1)
    seen = serve(polling, 60, 120, 20, news=lambda _: True)
    assert all(gap == pytest.approx(2, abs=0.1) for gap in gaps(seen, "d0"))


def test_a_hint_is_followed_at_once():
    polling = fleet(1000)
    serve(polling, 0, 60, 100)
    polling.mark_active("d7", 60.0)
    assert polling.next_due(60.0) == ["d7"]


def test_a_hint_while_the_device_is_being_asked_about_leads_to_one_more_poll():
    polling = fleet(1)
    assert polling.next_due(60.0) == ["d0"]
    polling.mark_active("d0", 60.1)
    polling.mark_active("d0", 60.2)
    assert polling.next_due(60.3) == []
    polling.poll_succeeded("d0", 60.4, news=False)
    assert polling.next_due(60.4) == ["d0"]
    polling.poll_succeeded("d0", 60.5, news=False)
    assert polling.next_due(60.6) == []


def test_several_hints_before_the_poll_are_one():
    polling = fleet(1)
    for tenth in range(10):
        polling.mark_active("d0", 100 + tenth / 10)
    assert polling.next_due(101.0, limit=5) == ["d0"]


def test_a_failed_poll_comes_again_and_its_hint_is_kept():
    polling = fleet(2)
    polling.mark_active("d0", 1.0)
    assert polling.next_due(1.0) == ["d0"]
    polling.poll_failed("d0", 2.0)
    assert polling.next_due(2.0) == ["d0"]
    polling.poll_succeeded("d0", 2.1, news=False)
    assert polling.next_due(2.1) == []


def test_a_device_is_handed_out_once_until_it_was_seen():
    polling = fleet(3)
    assert sorted(polling.next_due(60.0, limit=10)) == ["d0", "d1", "d2"]
    assert polling.next_due(1000.0, limit=10) == []
    assert polling.next_due_s() is None


def test_removed_and_unknown_devices_do_no_harm():
    polling = fleet(2)
    assert polling.next_due(60.0, limit=1)[0] in {"d0", "d1"}
    for device_id in ("d0", "d1", "nobody"):
        polling.remove(device_id)
        polling.poll_succeeded(device_id, 60.0, news=True)
        polling.poll_failed(device_id, 60.0)
        polling.mark_active(device_id, 60.0)
    assert len(polling) == 0
    assert "d0" not in polling
    assert polling.next_due(1e6, limit=10) == []
    polling.add("d0", 1e6)
    assert polling.next_due(1e6 + 60, limit=10) == ["d0"]


def test_adding_a_device_twice_keeps_its_place():
    polling = fleet(1)
    due_s = polling.next_due_s()
    polling.add("d0", 1000.0)
    assert polling.next_due_s() == due_s


# --- too little quota -------------------------------------------------------------------------------------------------


def test_idle_devices_share_a_short_quota_evenly():
    seen = serve(fleet(600), 0, 1200, 2.0)
    counts = Counter(device_id for _, device_id in seen)
    assert len(counts) == 600
    assert max(counts.values()) - min(counts.values()) <= 1


def test_active_devices_stay_fast_and_idle_ones_do_not_starve():
    polling = fleet(600)
    serve(polling, 0, 300, 2.0)
    seen = serve(polling, 300, 1500, 2.0, news=lambda device_id: device_id == "d5")
    assert max(gaps(seen, "d5")[1:]) <= 5.0
    counts = Counter(device_id for _, device_id in seen)
    assert min(counts[f"d{number}"] for number in range(600)) >= 2
    # A fleet that is active as a whole gets at most a third of the turns from one that is idle.
    idle_worst = max(gap for number in range(100, 600) for gap in gaps(seen, f"d{number}"))
    assert idle_worst <= 1.5 * 600 / 2.0


def test_a_flood_of_hints_leaves_turns_to_the_others():
    polling = fleet(600)
    seen = []
    for step in range(2400):
        now_s = step / 2.0
        polling.mark_active(f"d{step % 300}", now_s)
        polling.mark_active(f"d{(step * 7) % 300}", now_s)
        for device_id in polling.next_due(now_s):
            seen.append(device_id)
            polling.poll_succeeded(device_id, now_s, news=False)
    never_hinted = [device_id for device_id in seen if int(device_id[1:]) >= 300]
    assert len(never_hinted) >= 0.2 * len(seen)
    assert len(set(never_hinted)) == 300


def test_a_lane_that_was_empty_does_not_catch_up():
    polling = fleet(600)
    serve(polling, 0, 1200, 2.0)
    for number in range(100):
        polling.mark_active(f"d{number}", 1200.0)
    lanes = [int(device_id[1:]) < 100 for _, device_id in serve(polling, 1200, 1215, 2.0)]
    assert 10 <= sum(lanes) <= 27


# --- the stream of events ---------------------------------------------------------------------------------------------


def test_while_the_stream_is_connected_each_device_is_seen_once_and_then_only_reconciled():
    polling = fleet(20)
    polling.stream_changed(0.0, is_connected=True)
    seen = serve(polling, 0, 1900, 10)
    assert len([at_s for at_s, _ in seen if at_s <= 60]) == 20
    assert all(gap == pytest.approx(900, abs=1) for number in range(20) for gap in gaps(seen, f"d{number}"))


def test_when_the_stream_ends_all_are_asked_about_within_the_idle_interval():
    polling = fleet(50)
    polling.stream_changed(0.0, is_connected=True)
    serve(polling, 0, 100, 10)
    polling.stream_changed(100.0, is_connected=False)
    polling.stream_changed(100.0, is_connected=False)
    seen = serve(polling, 100, 161, 20)
    assert {device_id for _, device_id in seen} == {f"d{number}" for number in range(50)}
    assert len(seen) <= 55


def test_a_hint_during_the_stream_is_followed_at_once():
    polling = fleet(50)
    polling.stream_changed(0.0, is_connected=True)
    serve(polling, 0, 100, 10)
    polling.mark_active("d9", 100.0)
    assert polling.next_due(100.0) == ["d9"]


# --- whatever happens -------------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 30), per_s=st.floats(0.5, 20))
def test_no_device_waits_longer_than_the_bound_that_the_rate_allows(seed, count, per_s):
    rng = random.Random(seed)
    polling, last, worst = fleet(count), dict.fromkeys(range(count), 0.0), 0.0
    for step in range(int(600 * per_s)):
        now_s = step / per_s
        if rng.random() < 0.1:
            polling.mark_active(f"d{rng.randrange(count)}", now_s)
        for device_id in polling.next_due(now_s):
            number = int(device_id[1:])
            worst, last[number] = max(worst, now_s - last[number]), now_s
            if rng.random() < 0.05:
                polling.poll_failed(device_id, now_s)
            else:
                polling.poll_succeeded(device_id, now_s, news=rng.random() < 0.1)
    worst = max([worst, *(now_s - at_s for at_s in last.values())])
    # 4 of 14 turns are the idle lane's when all three want more; a device changes lanes a few times at most.
    assert worst <= INTERVALS.idle_s + 3 * 14 / 4 * (count + 2) / per_s


@settings(deadline=None)
@given(st.data())
def test_each_device_is_in_the_order_exactly_once(data):
    polling, out, known, now_s = FairPolling(INTERVALS), set(), set(), 0.0
    names = [f"d{number}" for number in range(6)]
    for _ in range(data.draw(st.integers(1, 60))):
        now_s += data.draw(st.sampled_from([0.0, 0.5, 30.0, 1000.0]))
        what, name = data.draw(st.sampled_from(STEPS)), ""
        if what in {"saw", "failed"} and out:
            name = data.draw(st.sampled_from(sorted(out)))
            out.discard(name)
            polling.poll_succeeded(
                name, now_s, news=data.draw(st.booleans())
            ) if what == "saw" else polling.poll_failed(name, now_s)
        elif what == "next":
            handed = polling.next_due(now_s, limit=data.draw(st.integers(1, 6)))
            assert not out.intersection(handed)
            assert known.issuperset(handed)
            out.update(handed)
        elif what in {"connected", "disconnected"}:
            polling.stream_changed(now_s, is_connected=what == "connected")
        else:
            name = data.draw(st.sampled_from(names))
            if what == "add" and name not in out:
                polling.add(name, now_s)
                known.add(name)
            elif what == "remove":
                polling.remove(name)
                known.discard(name)
                out.discard(name)
            else:
                polling.mark_active(name, now_s)
    polling.stream_changed(now_s, is_connected=False)
    for name in sorted(out):
        polling.poll_succeeded(name, now_s, news=False)
    assert sorted(polling.next_due(now_s + 2000.0, limit=100)) == sorted(known)


def test_a_hundred_thousand_devices_take_a_logarithm_of_steps():
    polling = fleet(100_000)
    compared = 0

    class Counted(float):
        def __lt__(self, other: float) -> bool:
            nonlocal compared
            compared += 1
            return float(self) < float(other)

    for number in range(100):
        now_s = Counted(30.0 + number / 1000)
        for device_id in polling.next_due(now_s):
            polling.poll_succeeded(device_id, now_s, news=False)
    assert compared < 100 * 200


def test_a_hint_leaves_nothing_behind_while_the_stream_of_events_runs():
    polling = fleet(10)
    polling.stream_changed(0.0, is_connected=True)
    entries = 0
    for number in range(10_000):
        now_s = 60.0 + number / 1000
        polling.mark_active("d3", now_s)
        for device_id in polling.next_due(now_s):
            polling.poll_succeeded(device_id, now_s, news=True)
        entries = max(entries, sum(map(len, polling._heaps.values())))
    assert entries < 3 * (2 * 10 + 64 + 1)
