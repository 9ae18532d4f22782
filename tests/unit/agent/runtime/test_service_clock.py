from __future__ import annotations

from agent.core.timekeeping import BootTime
from agent.runtime.service_clock import ServiceClock
from tests.factories import make_moment
from tests.fakes import START_WALL_S, FakeClock


class Times:
    """Boot times in memory."""

    def __init__(self, **known: BootTime) -> None:
        self.kept: dict[str, BootTime] = {name.replace("_", "-"): time for name, time in known.items()}
        self.writes = 0
        self.commits = 0

    def known(self) -> dict[str, BootTime]:
        return dict(self.kept)

    def learn(self, boot_id: str, time: BootTime) -> None:
        self.kept[boot_id] = time
        self.writes += 1
        self.commits += 1


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


def test_the_machine_is_asked_now_and_then_and_only_while_nobody_has_told_the_time():
    fake, asked = FakeClock(), []
    clock = ServiceClock(fake, is_synchronized=lambda: bool(asked.append(1)))
    assert clock.now() is None
    assert len(asked) == 0, "usually the service tells it within moments"
    fake.advance(11)
    for _ in range(5):
        assert clock.now() is None
    assert len(asked) == 1
    fake.advance(11)
    assert clock.now() is None
    clock.observe(START_WALL_S)
    fake.advance(11)
    assert clock.now() is not None
    assert len(asked) == 2


def test_a_synchronised_machine_knows_the_time_to_a_fifth_of_a_second():
    fake = FakeClock()
    clock = ServiceClock(fake, is_synchronized=lambda: True)
    fake.advance(11)
    now = clock.now()
    assert now is not None
    assert abs(now - fake.now().wall_s) <= 0.1
    assert clock.recorded_at(make_moment(900.0, wall_s=7.0)) is not None


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
