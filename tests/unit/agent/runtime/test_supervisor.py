from __future__ import annotations

import os
import signal
import threading

import pytest

from agent.exit_codes import EXIT_CRASHED, EXIT_RESTART, EXIT_STOPPED
from agent.runtime.supervisor import Supervisor
from tests.fakes import FakeClock, FakeNotifier


@pytest.fixture(autouse=True)
def _pipes_are_closed(monkeypatch):
    """Every supervisor of a test is closed after it."""
    made: list[Supervisor] = []
    begin = Supervisor.__init__

    def note(self, *arguments, **members) -> None:
        begin(self, *arguments, **members)
        made.append(self)

    monkeypatch.setattr(Supervisor, "__init__", note)
    yield
    for supervisor in made:
        supervisor.close()


def make(notifier: FakeNotifier, **members) -> Supervisor:
    return Supervisor(notifier, FakeClock(), on_change=lambda: "all is well", **members)


def test_ready_and_status_are_told_before_the_first_wait():
    notifier = FakeNotifier()
    supervisor = make(notifier)
    supervisor.end("done", EXIT_STOPPED)
    assert supervisor.run().exit_code == EXIT_STOPPED
    assert notifier.told == ["READY=1", "STATUS=all is well", "WATCHDOG=1"]


def test_the_first_end_counts():
    supervisor = make(FakeNotifier())
    supervisor.crashed("readings")
    supervisor.end("later", EXIT_STOPPED)
    ending = supervisor.run()
    assert ending.exit_code == EXIT_CRASHED
    assert ending.reason == "service readings crashed"


def test_sigterm_ends_it_in_order_and_the_old_handlers_come_back():
    before = signal.getsignal(signal.SIGTERM)
    supervisor = make(FakeNotifier())
    with supervisor.signals():
        os.kill(os.getpid(), signal.SIGTERM)
        assert supervisor.run().reason == "SIGTERM received"
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_watchdog_is_not_fed_while_a_part_makes_no_progress(caplog):
    notifier = FakeNotifier(watchdog_s=0.01)
    stuck: list[str | None] = ["the store does not answer"]
    supervisor = make(notifier, probes=[lambda now_s: stuck[0]])
    turns: list[int] = []

    def probe(now_s: float) -> None:
        turns.append(1)
        if len(turns) == 3:
            stuck[0] = None
        if len(turns) == 4:
            supervisor.end("enough", EXIT_RESTART)

    supervisor.watch(probe)
    assert supervisor.run().exit_code == EXIT_RESTART
    assert notifier.told.count("WATCHDOG=1") == 1
    assert caplog.text.count("the store does not answer") == 1


def test_many_changes_at_once_are_written_down_once():
    notifier = FakeNotifier()
    supervisor = make(notifier)
    for _ in range(100):
        supervisor.changed()
    supervisor.end("done", EXIT_STOPPED)
    supervisor.run()
    assert [line for line in notifier.told if line.startswith("STATUS=")] == ["STATUS=all is well"] * 2


def test_waiting_before_the_start_ends_when_a_signal_comes():
    clock = FakeClock()
    supervisor = Supervisor(FakeNotifier(), clock, on_change=str)
    threading.Timer(0.01, supervisor.end, ["stop", EXIT_STOPPED]).start()
    ending = supervisor.wait(60)
    assert ending is not None
    assert ending.reason == "stop"


def test_after_a_suspend_everybody_is_woken_and_the_sleep_is_no_fault(caplog):
    notifier = FakeNotifier(watchdog_s=0.01)
    asleep_s, woken = [5.0], []
    supervisor = make(notifier, probes=[lambda now_s: "it slept"], asleep_s=lambda: asleep_s[0])

    def wake() -> None:
        woken.append(asleep_s[0])
        supervisor.end("enough", EXIT_STOPPED)

    supervisor.on_resumed_from_sleep(wake)
    asleep_s[0] += 8 * 3600
    supervisor.run()
    assert woken == [5.0 + 8 * 3600]
    assert notifier.told.count("WATCHDOG=1") == 1
    assert "watchdog" not in caplog.text


def test_what_is_scheduled_is_called_in_the_main_thread_when_its_time_has_come():
    clock = FakeClock()
    supervisor = Supervisor(FakeNotifier(), clock, on_change=lambda: "")
    called: list[tuple[str, str]] = []

    def note(name: str) -> None:
        called.append((name, threading.current_thread().name))
        if name == "second":
            supervisor.end("done", EXIT_STOPPED)

    schedule = threading.Thread(target=lambda: supervisor.schedule(20.0, lambda: note("second")))
    schedule.start()
    schedule.join()
    supervisor.schedule(10.0, lambda: note("first"))
    supervisor.schedule(30.0, lambda: note("never"))
    clock.advance(25.0)
    assert supervisor.run().reason == "done"
    assert called == [("first", "MainThread"), ("second", "MainThread")]


def test_what_is_watched_may_grow_while_the_probes_are_asked():
    asked: list[int] = []

    def probe(_now_s: float) -> str | None:
        # As a lane that starts meanwhile does: each look adds one to what is watched.
        supervisor.watch(lambda _now_s: asked.append(1))
        supervisor.on_resumed_from_sleep(asked.clear)
        if len(asked) >= 2:
            supervisor.end("enough", EXIT_STOPPED)
        supervisor.changed()
        return None

    supervisor = make(FakeNotifier(), probes=[probe])
    assert supervisor.run().reason == "enough"


def test_a_crash_is_told_in_the_health_before_the_process_ends():
    seen: list[str] = []
    supervisor = make(FakeNotifier(), on_crash=seen.append)
    supervisor.crashed("mqtt-receipts")
    ending = supervisor.run()
    assert (ending.reason, ending.exit_code) == ("service mqtt-receipts crashed", EXIT_CRASHED)
    assert seen == ["mqtt-receipts"]
