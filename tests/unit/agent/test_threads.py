"""Threads whose end is noticed, and that there are no others."""

from __future__ import annotations

import threading

import pytest

from agent.health import WatchedThread

SOON_S = 60.0


@pytest.mark.parametrize("fault", [ValueError("broken"), SystemExit(3), KeyboardInterrupt(), MemoryError()], ids=repr)
def test_whatever_ends_a_thread_is_logged_with_its_traceback_and_reported(fault, caplog):
    crashed: list[tuple[str, str]] = []

    def work():
        raise fault

    thread = WatchedThread(
        work, name="worker", on_crash=lambda name: crashed.append((name, threading.current_thread().name))
    )
    thread.start()
    thread.join(SOON_S)
    assert crashed == [("worker", "worker")]
    assert "thread=worker state=crashed" in caplog.text
    assert "Traceback" in caplog.text


def test_a_thread_that_is_stopped_is_no_crash(caplog):
    stop = threading.Event()
    thread = WatchedThread(stop.wait, name="worker", on_crash=pytest.fail)
    thread.start()
    assert thread.daemon
    stop.set()
    thread.join(SOON_S)
    assert not caplog.text
