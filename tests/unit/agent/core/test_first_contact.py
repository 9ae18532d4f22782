"""First contact is decided once, by the journal, whichever way commands come."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import hypothesis
import hypothesis.strategies as st
import pytest

from agent.core.admission import Contact
from agent.core.timekeeping import PollIntervals
from agent.core.values import Command, CommandPoll
from agent.errors import TransportError
from agent.runtime.command_poller import CommandPoller
from agent.transports.mqtt_device import HybridSource
from agent.wire.models import CommandRecord
from tests.support.factories import make_command, make_moment, make_rules
from tests.support.fakes import START_WALL_S, FakeCommandSource, FakeEngine, StoreInMemory, make_context

CONTACT_S = START_WALL_S
DAY_S = 86_400.0


class FakePush(FakeCommandSource):
    def __init__(self, answers: Sequence[object] = ()) -> None:
        super().__init__(answers)
        self.is_up = True


class Device:
    """Journal and receiver of one device; the service's clock is the fake one, known or not."""

    def __init__(self, *, knows_time: bool = True) -> None:
        self.store = StoreInMemory()
        self.clock = self.store.clock
        self.ran: list[str] = []
        self.knows_time = knows_time
        self.start()

    def start(self) -> None:
        """A new process on the same journal."""
        self.engine = FakeEngine(make_rules())
        context = make_context(self.store, time=self)
        self.poller = CommandPoller(
            context, FakeCommandSource(), self.engine, intervals=PollIntervals, wait_s=lambda: 0.0
        )

    def now(self) -> float | None:
        """As :meth:`agent.runtime.clocks.ServiceClock.now`."""
        return self.clock.now().wall_s if self.knows_time else None

    def get(self, *commands: Command, pushed: bool = True) -> None:
        """One answer or one push."""
        before = len(self.engine.entries)
        self.poller.take(CommandPoll(commands, pushed=pushed))
        self.ran += [
            entry.command.id
            for entry in self.engine.entries[before:]
            if entry.command.id not in self.ran  # what waits is dispatched again after a restart, and runs once
        ]


def old(name: str, days: float = 11, **members) -> Command:
    return make_command(name, created_at=CONTACT_S - days * DAY_S, **members)


def new(name: str, after_s: float = 1.0, **members) -> Command:
    return make_command(name, created_at=CONTACT_S + after_s, **members)


def test_a_journal_that_was_wiped_has_its_first_contact_again():
    device = Device()
    device.get()
    device.clock.advance(10 * DAY_S)
    clock, device.store = device.clock, StoreInMemory()
    device.store.clock = clock
    device.start()
    device.get()
    device.get(new("sent-to-the-life-before"))
    device.get(new("new", 10 * DAY_S + 1))
    assert device.ran == ["new"]


def test_after_a_reboot_without_the_time_it_counts_from_when_the_time_is_known():
    pending = Contact(None, 10.0, "boot-1")
    assert pending.dated(make_moment(20.0, boot_id="boot-2"), None) == pending
    assert pending.dated(make_moment(20.0, boot_id="boot-2"), CONTACT_S + 500).at_s == CONTACT_S + 500


def test_a_time_ahead_of_the_clock_is_set_back_with_it():
    now = Contact(CONTACT_S + 365 * DAY_S).dated(make_moment(), CONTACT_S)
    assert now.at_s == CONTACT_S
    assert now.dated(make_moment(), CONTACT_S + 60) == now


@pytest.mark.parametrize(
    ("contact_s", "pushed", "created_s", "runs"),
    [(0.9, True, 0.0, True), (90.0, False, 60.0, True), (90.0, False, 0.0, False)],
)
def test_a_time_in_whole_seconds_or_minutes_does_not_make_a_new_command_old(contact_s, pushed, created_s, runs):
    minute_s = CONTACT_S - CONTACT_S % 60
    device = Device()
    device.clock.advance(minute_s + contact_s - CONTACT_S)
    device.get(pushed=pushed)
    device.get(make_command("c", created_at=minute_s + created_s), pushed=pushed)
    assert device.ran == (["c"] if runs else [])


def test_the_records_of_a_gateway_say_when_it_saw_the_command():
    record = CommandRecord.receive({"id": "c", "command_payload": {}, "listed_at": "2026-01-01T00:00:00Z"})
    command = record.to_command("d1")
    assert command.listed_at == START_WALL_S


class BothWays:
    """A device with a broker and a list behind one source; what is pushed comes until it is acknowledged.

    Attributes:
        listed: by a server that lists everything for ever.
        pushed: what waits at the gateway.
        new: what was sent after the first contact.
    """

    def __init__(self) -> None:
        self.device = Device()
        self.listed = [old("listed-0"), old("listed-1", status="nonsense")]
        self.pushed: list[Command] = []
        self.new: list[str] = []
        self.lists = True
        self.push_is_up = True
        self.start()

    def start(self) -> None:
        """A new process on the same journal."""
        self.device.start()
        self.push = FakePush([lambda: CommandPoll(tuple(self.pushed), pushed=True)])
        self.push.is_up = self.push_is_up
        self.source = HybridSource(
            self.push,
            FakeCommandSource([self.list_now]),
            clock=self.device.clock,
            list_every_s=60.0,
            is_first_contact=self.device.store.journal.is_empty,
        )

    def list_now(self) -> CommandPoll:
        if not self.lists:
            raise TransportError("no network")
        return CommandPoll(tuple(self.listed))

    def send(self, number: int, *, by_push: bool, age_s: float) -> None:
        now_s = self.device.clock.now().wall_s
        is_new = age_s == 0 and not self.device.store.journal.is_empty()
        age_s = age_s if is_new else max(age_s, 10.0)
        name = f"{'new' if is_new else 'history'}-{number}"
        self.new += [name] if is_new else []
        # The gateway dates what has no time of its own.
        at = {"created_at" if number % 2 else "listed_at": now_s - age_s}
        command = make_command(name, **at)
        (self.pushed if by_push else self.listed).append(command)

    def poll(self) -> None:
        with contextlib.suppress(TransportError):
            poll = self.source.poll(25)
            self.device.get(*poll.commands, pushed=poll.pushed)
            self.source.acknowledge([command.id for command in poll.commands])
            if poll.pushed:
                self.pushed.clear()
        self.device.clock.advance(1)
        self.device.knows_time = True


STEPS = ("push old", "push new", "list old", "list new", "list fails", "list works", "push down", "push up", "restart")


@hypothesis.given(
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.booleans()), max_size=40), knows_time=st.booleans()
)
@hypothesis.settings(deadline=None)
def test_over_both_ways_no_history_runs_and_what_is_new_runs_once(steps, knows_time):
    both = BothWays()
    both.device.knows_time = knows_time
    for number, (step, polls) in enumerate(steps):
        what, _, which = step.partition(" ")
        if which in {"old", "new"}:
            both.send(number, by_push=what == "push", age_s=DAY_S if which == "old" else 0.0)
        elif what == "list":
            both.lists = which == "works"
        elif what == "push":
            both.push_is_up = both.push.is_up = which == "up"
        else:
            both.start()
        if polls:
            both.poll()
    both.lists = both.push_is_up = both.push.is_up = True
    for _ in range(200):
        both.poll()
    assert sorted(both.device.ran) == sorted(both.new)
