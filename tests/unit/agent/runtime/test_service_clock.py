from __future__ import annotations

import threading

from agent.core.timekeeping import BootTime
from agent.runtime.clocks import ServiceClock
from tests.support.factories import make_moment
from tests.support.fakes import START_WALL_S, FakeClock


class Times:
    """Boot times in memory."""

    def __init__(self, **known: BootTime) -> None:
        self.kept: dict[str, BootTime] = {name.replace("_", "-"): time for name, time in known.items()}
        self.writes = 0

    def known(self) -> dict[str, BootTime]:
        return dict(self.kept)

    def learn(self, boot_id: str, time: BootTime) -> None:
        self.kept[boot_id] = time
        self.writes += 1


def test_what_an_earlier_process_of_this_boot_learned_is_known_from_the_start():
    true_s = START_WALL_S + 100
    times = Times(boot_1=BootTime(true_s - 1000.0, 0.0, 1000.0))
    clock = ServiceClock(FakeClock(wall_s=5.0), times=times)
    assert clock.now() == true_s


def test_the_first_answer_is_written_down_and_then_only_what_is_better():
    fake, times = FakeClock(wall_s=5.0), Times()
    clock = ServiceClock(fake, times=times)
    clock.observe(START_WALL_S)
    assert times.writes == 1
    for _ in range(100):
        fake.advance(30.0)
        clock.observe(START_WALL_S + fake.now().monotonic_s - 1000.0 - 0.1)
    assert times.writes <= 3
    fake.advance(3600.0)
    clock.observe(START_WALL_S + fake.now().monotonic_s - 1000.0 - 0.1)
    assert times.writes > 1


def test_the_machine_is_asked_only_while_nobody_has_told_the_time():
    asked = []
    clock = ServiceClock(FakeClock(), is_synchronized=lambda: bool(asked.append(1)))
    clock.ask_machine()
    clock.observe(START_WALL_S)
    clock.ask_machine()
    assert len(asked) == 1


def test_a_synchronised_machine_knows_the_time():
    fake = FakeClock()
    clock = ServiceClock(fake, is_synchronized=lambda: True)
    clock.ask_machine()
    assert clock.now() == fake.now().wall_s
    assert clock.recorded_at(make_moment(900.0, wall_s=7.0)) is not None


def test_whoever_only_asks_for_the_time_is_never_called_back_while_a_lock_is_held():
    """The engine asks under its lock, and what waits for the time takes that lock."""
    lock = threading.Lock()

    def time_is_known() -> None:
        assert lock.acquire(timeout=1.0)
        lock.release()

    fake = FakeClock()
    clock = ServiceClock(fake, is_synchronized=lambda: True)
    clock.on_time_known(time_is_known)
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
    clock.on_time_known(lambda: known.append(1))
    assert clock.recorded_at(make_moment(1000.0)) is None
    clock.observe(START_WALL_S)
    clock.observe(START_WALL_S)
    assert [state for state, _ in told] == ["unknown", "ok"]
    assert "1209601 s behind the true time" in told[1][1]
    assert known == [1]
