from __future__ import annotations

import pytest

from agent.core.poll_interval import PollIntervals
from agent.core.values import CommandPoll
from agent.errors import Offline, RateLimited, StorageError, TransportError, Unauthorized, UnexpectedAnswer
from agent.runtime.command_poller import CommandPoller
from agent.runtime.controls import IntervalChanged
from agent.runtime.health import Health
from agent.runtime.retry_policy import RetryPolicy
from tests.factories import make_command
from tests.fakes import FakeClock, FakeCommandSource
from tests.threadless import ThreadlessService

QUIET = CommandPoll(pushed=True)


class Bench:
    def __init__(self, *answers, first_s: float = 0.0, wait_s: float = 25.0, is_busy: bool = False) -> None:
        self.clock = FakeClock()
        self.source = FakeCommandSource(answers)
        self.taken: list[CommandPoll] = []
        self.fault: StorageError | None = None
        self.health = Health(self.clock)
        self.times: list[float] = []
        self.intervals = PollIntervals(2.0, 10.0, 60.0)
        self.wait_s = wait_s
        self.service = CommandPoller(
            source=self.source,
            take=self._take,
            intervals=lambda: self.intervals,
            wait_s=lambda: self.wait_s,
            is_busy=lambda: is_busy,
            clock=self.clock,
            retry_policy=RetryPolicy(lambda: 0.5),
            health=self.health,
            on_server_time=self.times.append,
            fraction=lambda: 0.5,
            first_s=first_s,
        )
        self.driven = ThreadlessService(self.service, self.clock)

    def run(self, seconds: float) -> int:
        """Polls within so many seconds, in steps of a tenth."""
        before = len(self.source.waits)
        for _ in range(round(seconds * 10)):
            self.driven.process_all()
            self.clock.advance(0.1)
        return len(self.source.waits) - before

    def _take(self, poll: CommandPoll) -> int:
        if self.fault is not None:
            raise self.fault
        known = {command.id for each in self.taken for command in each.commands}
        self.taken.append(poll)
        return len({command.id for command in poll.commands} - known)


def test_commands_are_taken_and_then_acknowledged():
    bench = Bench(CommandPoll((make_command("c1"),), server_time=5.0))
    bench.driven.process_all()
    assert [command.id for command in bench.taken[0].commands] == ["c1"]
    assert bench.source.acknowledged == ["c1"]
    assert bench.times == [5.0]


def test_what_cannot_be_journaled_is_not_acknowledged_and_asked_for_again(caplog):
    bench = Bench(CommandPoll((make_command("c1"),)))
    bench.fault = StorageError("the disk is full")
    assert bench.run(60) == 12
    assert bench.source.acknowledged == []
    assert caplog.text.count("the disk is full") == 1
    bench.fault = None
    bench.run(10)
    assert "c1" in bench.source.acknowledged


def test_the_first_poll_waits_for_this_devices_moment():
    bench = Bench(first_s=1.5)
    bench.driven.process_all()
    assert bench.source.waits == []
    bench.clock.advance(1.5)
    bench.driven.process_all()
    assert len(bench.source.waits) == 1


def test_without_news_the_polls_become_rare():
    bench = Bench(CommandPoll(), wait_s=0)
    assert bench.run(60) <= 10
    bench.run(600)
    assert bench.run(600) <= 11


def test_a_service_that_never_holds_what_it_promised_makes_no_spin():
    bench = Bench(CommandPoll(unchanged=True, held=True))
    assert bench.run(600) <= 100


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize(("is_busy", "polls_per_minute"), [(False, 6), (True, 31)])
def test_a_list_that_changes_with_every_poll_and_brings_nothing_makes_no_spin(held, is_busy, polls_per_minute):
    # Each answer comes at once and with another version, whatever the agent would wait for.
    bench = Bench(CommandPoll((make_command("c1"),), held=held), is_busy=is_busy)
    bench.run(60)
    assert bench.run(60) <= polls_per_minute


def test_new_commands_without_end_are_bounded_requests():
    lists = [CommandPoll((make_command(f"c{number}"),), held=True) for number in range(1000)]
    assert Bench(*lists).run(60) <= 301
    lists = [CommandPoll((make_command(f"c{number}"),)) for number in range(1000)]
    assert Bench(*lists).run(60) <= 31


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TransportError("cannot connect to http://x"), "commands=unreachable: cannot connect"),
        (UnexpectedAnswer("a web page instead of JSON"), "commands=unexpected_answer: a web page"),
        (RateLimited(429, "too_many", retry_after_s=30.0), "commands=rate_limited: the key's quota"),
        (Unauthorized(401, "bad"), "file that auth names"),
    ],
)
def test_trouble_is_one_clear_line_and_no_storm(caplog, error, words):
    bench = Bench(error)
    polls = bench.run(600)
    assert polls <= 25
    assert caplog.text.count(words) <= 3
    assert words in caplog.text
    assert bench.health.parts()["commands"].state != "ok"


def test_wrong_keys_are_tried_slowly_and_told_hourly(caplog):
    bench = Bench(Unauthorized(401, "invalid_credentials"))
    assert bench.run(3600) < 30
    assert len(caplog.records) == 1


def test_retry_after_is_kept():
    bench = Bench(RateLimited(429, retry_after_s=45.0), CommandPoll())
    bench.driven.process_all()
    assert bench.run(44) == 0
    assert bench.run(20) >= 1


def test_the_end_of_trouble_is_told_once(caplog):
    caplog.set_level("INFO")
    bench = Bench(TransportError("down"), CommandPoll())
    bench.run(120)
    assert caplog.text.count("the service answers again") == 1
    assert bench.health.parts()["commands"].state == "ok"


def test_malformed_commands_are_named_once_and_hide_nothing(caplog):
    sentences = tuple(f"item {number} is skipped" for number in range(10))
    bench = Bench(CommandPoll((make_command("good"),), malformed=sentences))
    bench.run(120)
    assert bench.source.acknowledged[0] == "good"
    assert len(caplog.records) == 4


def test_a_list_that_is_too_long_is_said_hourly_and_when_it_is_over(caplog):
    caplog.set_level("INFO")
    bench = Bench(CommandPoll((make_command("c1"),), omitted=999))
    bench.run(1800)
    assert len([each for each in caplog.records if "of a list of 1000 or more commands only 1" in each.message]) == 1
    bench.source.answers.append(CommandPoll())
    bench.run(60)
    assert "the whole list is looked at again" in caplog.text


def test_a_set_interval_counts_from_now():
    bench = Bench(CommandPoll(), wait_s=0)
    bench.run(600)
    bench.intervals = PollIntervals(1.0, 1.0, 1.0)
    bench.driven.post(IntervalChanged("poll"))
    assert bench.run(20) >= 15


def test_what_a_poll_brings_after_the_stop_is_not_taken():
    bench = Bench()
    bench.source.answers.append(lambda: (bench.service.interrupt(), CommandPoll((make_command("late"),)))[1])
    bench.driven.process_all()
    assert bench.taken == []
    assert bench.source.interrupts == 1


class TestPushes:
    def test_after_a_push_the_next_wait_begins_at_once(self):
        bench = Bench(
            CommandPoll((make_command("c1"),), pushed=True), CommandPoll((make_command("c2"),), pushed=True), QUIET
        )
        bench.driven.process_all()
        assert bench.source.acknowledged == ["c1", "c2"]

    def test_waits_that_bring_nothing_and_last_no_time_do_not_spin(self):
        bench = Bench(QUIET)
        assert bench.run(10) <= 51

    def test_a_missing_connection_is_seen_in_the_status_and_told_by_who_keeps_it(self, caplog):
        bench = Bench(Offline("unreachable", "nobody listens"))
        bench.driven.process_all()
        part = bench.health.parts()["commands"]
        assert (part.state, part.detail) == ("unreachable", "nobody listens")
        assert caplog.text == ""

    def test_a_connection_that_came_up_ends_the_back_off(self):
        bench = Bench(*[Offline("unreachable", "nobody listens")] * 12, QUIET)
        bench.run(600)
        asked = len(bench.source.waits)
        bench.driven.post(CommandPoller.CONNECTED)
        bench.driven.process_all()
        assert len(bench.source.waits) > asked
