"""What is acknowledged, what is remembered, and what is not run: between a source and the journal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.core.timekeeping import PollIntervals
from agent.core.values import Command, CommandPoll
from agent.runtime.command_poller import CommandPoller
from tests.support.factories import make_command, make_outcome, make_rules
from tests.support.fakes import FakeCommandSource, FakeEngine, StoreInMemory, make_context

DAY_S = 86_400.0


class Bench:
    def __init__(self, *answers: CommandPoll | Callable[[], CommandPoll], has_lists: bool = True) -> None:
        self.store = StoreInMemory()
        self.clock, self.journal = self.store.clock, self.store.journal
        self.source, self.engine = FakeCommandSource(answers), FakeEngine(make_rules())
        self.poller = CommandPoller(
            make_context(self.store),
            self.source,
            self.engine,
            intervals=PollIntervals,
            wait_s=lambda: 0.0,
            has_lists=has_lists,
        )
        self.has_lists = has_lists
        self.poller.take(CommandPoll())  # the first contact

    def ran(self) -> list[str]:
        return [entry.command.id for entry in self.engine.entries]

    def conclude(self, command: Command) -> None:
        """The command comes, and its result is reported."""
        self.poller.take(CommandPoll((command,), pushed=not self.has_lists))
        self.journal.start(command.id, self.clock.now())
        self.journal.finish(command.id, make_outcome(), self.clock.now())
        self.journal.reported([command.id])


def new(name: str, bench: Bench, **members: object) -> Command:
    return make_command(name, created_at=bench.clock.now().wall_s, **members)


def test_what_the_journal_cannot_take_stays_with_the_service_and_is_asked_for_again():
    bench = Bench()
    bench.source.answers.append(CommandPoll((new("c1", bench),)))
    bench.store.broken = "the disk is full"
    bench.poller.step()
    assert (bench.source.acknowledged, bench.ran()) == ([], [])
    bench.store.broken = None
    bench.clock.advance(60)
    bench.poller.step()
    assert (bench.source.acknowledged, bench.ran()) == (["c1"], ["c1"])


@pytest.mark.parametrize(
    ("lists", "is_known"),
    [
        (lambda each: [CommandPoll((each,))], True),
        (lambda each: [CommandPoll(), CommandPoll((each,)), CommandPoll()], True),
        (lambda _each: [CommandPoll(is_whole=False)], True),
        (lambda _each: [CommandPoll(pushed=True)], True),
        (lambda _each: [CommandPoll()], False),
    ],
    ids=["it is listed", "some lists lack it", "pages are missing", "only a push", "a whole day's lists lack it"],
)
def test_a_command_that_is_over_is_remembered_until_every_list_of_a_whole_day_lacks_it(lists, is_known):
    bench = Bench()
    command = new("c1", bench)
    bench.conclude(command)
    answers = lists(command)
    for hour in range(4 * 24):
        bench.clock.advance(3600)
        bench.poller.take(answers[hour % len(answers)])
    assert ("c1" in bench.store.entries()) is is_known


def test_where_commands_are_only_pushed_one_is_remembered_for_longer_than_any_lives():
    bench = Bench(has_lists=False)
    bench.conclude(new("c1", bench))
    for day in range(1, 6):
        bench.clock.advance(DAY_S + 1)
        bench.poller.take(CommandPoll(pushed=True))
        assert ("c1" in bench.store.entries()) is (day < 3)  # two days, and one more


def test_after_a_list_that_was_too_long_nothing_of_unknown_age_runs():
    bench = Bench()
    bench.poller.take(CommandPoll((new("c1", bench),), omitted=1, is_whole=False))
    bench.poller.take(CommandPoll((make_command("from the middle"), new("c2", bench))))
    bench.poller.take(CommandPoll((make_command("called open", status="queued"),)))
    assert bench.ran() == ["c1", "c2", "called open"]
