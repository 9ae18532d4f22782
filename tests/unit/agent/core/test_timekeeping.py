from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from agent.core.timekeeping import (
    BootTime,
    ServiceTime,
    is_plausible,
    service_time_at_least,
    with_true_wall,
)
from agent.runtime.clocks import ServiceClock
from tests.support.factories import make_command, make_moment
from tests.support.fakes import START_WALL_S, FakeClock, StoreInMemory

T0 = START_WALL_S


def test_without_an_observation_nobody_can_say_unless_the_wall_clock_is_trusted():
    moment = make_moment(1.0, wall_s=T0 + 5)
    assert ServiceTime().at(moment) is None
    assert ServiceTime(trust_wall=True).at(moment) == T0 + 5
    assert ServiceTime(trust_wall=True).at(make_moment(1.0, wall_s=5.0)) is None


def test_a_clock_that_the_service_sets_forward_is_followed_at_once():
    time = ServiceTime().observe(T0, make_moment(100.0)).observe(T0 + 3600, make_moment(101.0))
    assert time.at(make_moment(101.0)) == T0 + 3600


def test_a_clock_that_the_service_sets_back_is_followed_once_all_answers_of_a_minute_agree():
    time = ServiceTime().observe(T0, make_moment(100.0))
    for after_s in range(1, 61):
        time = time.observe(T0 - 3600 + after_s, make_moment(100.0 + after_s))
        assert time.at(make_moment(200.0)) == T0 + 100
    time = time.observe(T0 - 3600 + 61, make_moment(161.0))
    assert time.at(make_moment(200.0)) == T0 - 3600 + 100


def test_answers_that_are_late_by_different_times_never_move_the_clock_back():
    time = ServiceTime().observe(T0, make_moment(100.0))
    for after_s in range(1, 200):
        late_s = 10 + 7 * (after_s % 5)
        time = time.observe(T0 + after_s - late_s, make_moment(100.0 + after_s))
    assert time.at(make_moment(300.0)) == T0 + 200


@given(
    st.lists(
        st.tuples(
            st.floats(0.1, 40),  # until the request is sent
            st.floats(0, 2),  # on the way there and back
            st.sampled_from([0.0, 0.0, 0.0, 0.5, 8.0, 30.0, 300.0]),  # the service stands still before it answers
            st.sampled_from([0.0, 0.0, 30.0]),  # the client stands still before it reads
        ),
        min_size=1,
        max_size=40,
    )
)
def test_whoever_stands_still_nobody_believes_that_it_is_earlier_than_it_was_known_to_be(polls):
    """The service makes its ``Date`` once a second, and after a stall still has the one from before it."""
    offset = T0 - 100.0
    now, time, floor = 100.0, ServiceTime(), None
    for gap_s, travel_s, stall_s, nap_s in polls:
        sent = now + gap_s
        stale_date = int(sent + travel_s / 2 + offset)  # from before the stall
        now = sent + travel_s + stall_s + nap_s
        time = time.observe(stale_date, make_moment(now), now - sent)
        at = time.at(make_moment(now))
        assert at is not None
        assert at <= now + offset + 1e-3
        if floor is not None:
            assert at - now >= floor - 1e-1
        floor = at - now


def test_a_right_wall_clock_stamps_a_reading_the_same_way_at_every_resend():
    early = ServiceTime().observe(T0, make_moment(100.0, wall_s=T0 + 0.9))
    later = ServiceTime().observe(T0 + 7, make_moment(107.4, wall_s=T0 + 8.3))
    moment = make_moment(99.0, wall_s=T0 - 0.1)
    assert early.recorded_at(moment) == later.recorded_at(moment) == moment.wall_s


@given(
    st.lists(st.tuples(st.floats(0.1, 60), st.floats(0, 3), st.floats(0, 1)), min_size=1, max_size=40), st.floats(0, 1)
)
def test_the_true_time_is_within_what_is_known_and_more_observations_narrow_that(polls, start):
    true_offset = T0 + start - 100.0
    now, time, narrowest = 100.0, ServiceTime(), float("inf")
    for gap_s, latency_s, age_s in polls:
        now += gap_s + latency_s
        time = time.observe(int(now - latency_s / 2 + true_offset - age_s), make_moment(now), latency_s)
        narrowest = min(narrowest, 2 + latency_s)
    found = time.boot_time
    assert found is not None
    assert found.offset_s - 1e-3 <= true_offset <= found.offset_s + found.within_s + 1e-3
    assert found.within_s <= narrowest + 400e-6 * (now - 100) + 1e-3


@given(st.floats(-1e9, 1e9), st.floats(0, 0.5))
def test_a_wrong_wall_clock_is_corrected_to_within_a_second_by_the_first_quick_answer(wrong_by_s, phase_s):
    true_s = T0 + phase_s
    wall_s = true_s + wrong_by_s
    time = ServiceTime().observe(int(true_s), make_moment(100.0, wall_s=wall_s), 0.05)
    dated_s = time.recorded_at(make_moment(40.0, wall_s=wall_s - 60))
    assert dated_s is not None
    assert abs(dated_s - (true_s - 60)) <= (1.1 if abs(wrong_by_s) > 3 else 2.5)


def test_the_moment_of_a_boot_that_nobody_dated_compares_with_nothing():
    known = {"boot-1": BootTime(T0, 0.0, 0.0)}
    assert with_true_wall(make_moment(5.0, wall_s=9.0), known).wall_s == T0 + 5
    assert not is_plausible(with_true_wall(make_moment(5.0, boot_id="boot-0"), known).wall_s)


def test_a_command_alone_tells_how_late_it_is_at_least():
    command, received = make_command(created_at=T0), make_moment(100.0, wall_s=0.0)
    assert service_time_at_least(command, received, make_moment(160.0, wall_s=0.0)) == T0 + 60
    assert service_time_at_least(command, received, make_moment(160.0, boot_id="boot-2")) is None
    assert service_time_at_least(make_command(), received, make_moment(160.0)) is None


# --- shared by the threads, and kept ----------------------------------------------------------------------------------


def test_what_was_learned_is_known_to_the_next_process_and_only_what_is_better_is_written(monkeypatch):
    fake = FakeClock(wall_s=5.0)
    boots = StoreInMemory(fake).boots
    writes = []
    learn = boots.learn
    monkeypatch.setattr(boots, "learn", lambda *args: writes.append(args) or learn(*args))
    clock = ServiceClock(fake, times=boots)
    clock.observe(START_WALL_S)
    assert len(writes) == 1
    for _ in range(100):
        fake.advance(30.0)
        clock.observe(START_WALL_S + fake.now().monotonic_s - 1000.0 - 0.1)
    assert len(writes) <= 3
    assert abs(ServiceClock(fake, times=boots).now() - clock.now()) < 0.5


def test_whoever_only_asks_for_the_time_is_never_called_back_while_a_lock_is_held():
    """The engine asks under its lock, and what waits for the time takes that lock."""
    lock = threading.Lock()

    def time_is_known() -> None:
        assert lock.acquire(timeout=1.0)
        lock.release()

    fake = FakeClock()
    clock = ServiceClock(fake, is_synchronized=lambda: True)
    clock.on_known = time_is_known
    fake.advance(60.0)
    with lock:
        assert clock.now() is None
        assert clock.recorded_at(fake.now()) is None
    clock.ask_machine()
    assert clock.now() is not None


def test_the_service_wins_where_the_machine_only_believes_that_it_is_right():
    fake = FakeClock(wall_s=START_WALL_S + 3600)
    clock = ServiceClock(fake, is_synchronized=lambda: True)
    clock.ask_machine()
    clock.observe(START_WALL_S)
    assert clock.now() == START_WALL_S


def test_how_wrong_the_clock_is_is_told_in_a_sentence_and_who_waits_for_the_time_is_called_once():
    told: list[tuple[str, str]] = []
    known: list[int] = []
    clock = ServiceClock(FakeClock(wall_s=START_WALL_S - 1_209_600), on_state=lambda *words: told.append(words))
    clock.on_known = lambda: known.append(1)
    assert clock.recorded_at(make_moment(1000.0)) is None
    clock.observe(START_WALL_S)
    clock.observe(START_WALL_S)
    assert [state for state, _ in told] == ["unknown", "ok"]
    assert "1209601 s behind the true time" in told[1][1]
    assert known == [1]
