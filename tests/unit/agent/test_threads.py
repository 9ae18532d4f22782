"""Threads whose end is noticed, and that there are no others."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

import agent
import gateway
from agent.threads import WatchedThread

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


UNWATCHED = {
    "threads.py": "the one way itself",
    "doctor/examination.py": "a command that ends: each look is waited for, and one that gives no answer is a finding",
    "runtime/jobs.py": "runs one handler once: whatever that raises ends its command, and its lane waits for the end",
    "gateway/http/app.py": "decodes for one request, which waits for it and gets what is raised",
    "gateway/http/enrollment.py": "registers for one request, which waits for it and gets what is raised",
    "adapters/metrics_server.py": "ends the server at the stop, waited for",
}
_MAKES_THREADS = re.compile(
    r"threading\.Thread(?:\(|\):)|\bTimer\(|PoolExecutor|loop_start\(|create_task\(|run_in_executor|to_thread\(|"
    r"TaskGroup|start_http_server|Threading\w*(?:Server|MixIn)"
)


def test_every_other_place_that_makes_a_thread_is_known_with_its_reason():
    agent_root, gateway_root = Path(agent.__file__).parent, Path(gateway.__file__).parent
    names = {path: str(path.relative_to(agent_root)) for path in agent_root.rglob("*.py")}
    names |= {path: f"gateway/{path.relative_to(gateway_root)}" for path in gateway_root.rglob("*.py")}
    found = {name for path, name in names.items() if _MAKES_THREADS.search(path.read_text("utf-8"))}
    assert found - {"threads.py"} == UNWATCHED.keys() - {"threads.py"}
