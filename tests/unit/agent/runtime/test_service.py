from __future__ import annotations

import threading

import pytest

from agent.runtime.service import Actor, Mailbox, ServiceThread
from tests.fakes import FakeClock
from tests.threadless import ThreadlessService

SOON_S = 60.0


class Counter(Actor):
    """Counts steps and keeps messages; a step every ten seconds."""

    patience_s = 30.0

    def __init__(self, clock: FakeClock) -> None:
        super().__init__("counter")
        self.clock = clock
        self.messages: list[object] = []
        self.steps = 0
        self.seen = threading.Event()
        self.finished = threading.Event()
        self.due_s = clock.now().monotonic_s + 10.0

    def receive(self, message: object) -> None:
        if message == "fail":
            raise RuntimeError("an actor's fault")
        self.messages.append(message)
        self.seen.set()

    def due_at(self) -> float:
        return self.due_s

    def step(self) -> None:
        self.steps += 1
        self.due_s += 10.0

    def finish(self) -> None:
        self.finished.set()


def test_a_jig_does_nothing_until_it_is_told():
    clock = FakeClock()
    driven = ThreadlessService(counter := Counter(clock), clock)
    driven.post("a")
    assert counter.messages == []
    assert driven.process_all() == 1
    assert counter.messages == ["a"]


def test_a_jig_takes_every_step_that_fell_due():
    clock = FakeClock()
    driven = ThreadlessService(counter := Counter(clock), clock)
    clock.advance(35)
    assert driven.process_all() == 3
    assert counter.steps == 3


def test_a_jig_finds_an_actor_that_would_spin():
    class Spinning(Counter):
        def step(self) -> None:
            self.steps += 1

    clock = FakeClock()
    driven = ThreadlessService(Spinning(clock), clock)
    clock.advance(10)
    with pytest.raises(RuntimeError, match="due again and again"):
        driven.process_all()


def test_a_full_mailbox_refuses_and_a_closed_one_too():
    mailbox = Mailbox(2)
    assert mailbox.put(1)
    assert mailbox.put(2)
    assert not mailbox.put(3)
    assert mailbox.take(0) == 1
    mailbox.close()
    assert not mailbox.put(4)
    assert mailbox.take(None) == 2
    assert mailbox.take(None) is None


def test_a_service_works_on_messages_and_ends_when_it_is_stopped():
    clock = FakeClock()
    counter = Counter(clock)
    service = ServiceThread(counter, clock, on_crash=pytest.fail)
    service.start()
    assert service.post("hello")
    assert counter.seen.wait(SOON_S)
    service.stop()
    assert service.join(SOON_S)
    assert counter.messages == ["hello"]
    assert counter.finished.is_set()


def test_an_actor_that_raises_ends_its_service_and_the_crash_is_told(caplog):
    clock = FakeClock()
    crashed: list[str] = []
    counter = Counter(clock)
    service = ServiceThread(counter, clock, on_crash=crashed.append)
    service.start()
    service.post("fail")
    assert service.join(SOON_S)
    assert crashed == ["counter"]
    assert counter.finished.is_set()
    assert "an actor's fault" in caplog.text


def test_a_service_that_was_never_started_is_joined_at_once():
    clock = FakeClock()
    assert ServiceThread(Counter(clock), clock, on_crash=pytest.fail).join(0)


def test_a_service_is_stuck_only_beyond_its_patience():
    clock = FakeClock()
    entered, leave = threading.Event(), threading.Event()

    class Slow(Counter):
        def receive(self, message: object) -> None:
            entered.set()
            leave.wait(SOON_S)

    service = ServiceThread(Slow(clock), clock, on_crash=pytest.fail)
    service.start()
    service.post("work")
    assert entered.wait(SOON_S)
    now_s = clock.now().monotonic_s
    assert service.stuck_for_s(now_s + 29) == 0
    assert service.stuck_for_s(now_s + 40) == pytest.approx(10)
    leave.set()
    service.stop()
    assert service.join(SOON_S)
    assert service.stuck_for_s(now_s + 1000) == 0


def test_a_service_without_patience_is_never_stuck():
    class Patient(Counter):
        patience_s = None

    clock = FakeClock()
    service = ServiceThread(Patient(clock), clock, on_crash=pytest.fail)
    service.start()
    assert service.stuck_for_s(clock.now().monotonic_s + 1e6) == 0
    service.stop()
    assert service.join(SOON_S)
