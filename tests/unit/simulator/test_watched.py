"""Whoever starts a thread or a task is told when an error ends it; service and fleet start none in another way."""

from __future__ import annotations

import ast
import asyncio
import threading
from typing import Any, Final

import pytest

from agent.errors import ConfigurationError
from simulator.watched import ENDED, PartEnded, describe, into_loop, make_thread, start_task
from tests.source_search import ROOT, name_of, trees
from tests.sudden_ends import SuddenExit

LOOKED_AT: Final = ("service", "fleet", "gateway", "app.py", "children.py", "watched.py")
STARTS: Final = {
    "Thread", "threading.Timer", "ThreadPoolExecutor", "ProcessPoolExecutor", "ThreadingHTTPServer", "start_new_thread",
    "create_task", "ensure_future", "TaskGroup", "gather", "to_thread", "run_in_executor", "run_coroutine_threadsafe",
    "start_server", "start_http_server", "Process", "Popen",
}  # fmt: skip

AWAITED: Final = "its starter awaits it, and has its error"
POOL: Final = "a pool of the standard library: the error goes to whoever awaits the work, the thread goes on"
STARTED_ELSEWHERE: Final = {
    ("watched.py", "Thread"): "make_thread itself",
    ("watched.py", "create_task"): "start_task itself",
    ("service/service.py", "ThreadPoolExecutor"): POOL,
    ("service/service.py", "run_in_executor"): POOL,
    ("service/service.py", "to_thread"): POOL,
    ("service/passwords.py", "to_thread"): POOL,
    ("service/routes/control.py", "to_thread"): POOL,
    ("service/profile_layer/layer.py", "to_thread"): POOL,
    ("gateway/broker.py", "to_thread"): POOL,
    ("service/waiting.py", "ensure_future"): AWAITED,
    ("service/routes/command_events.py", "ensure_future"): AWAITED,
    ("service/fault_layer/layer.py", "ensure_future"): AWAITED,
    ("service/routes/control_accounts.py", "to_thread"): POOL,
    ("service/logged_requests.py", "to_thread"): POOL,
    ("service/snapshots/folder.py", "ThreadPoolExecutor"): POOL,
    ("service/snapshots/folder.py", "run_in_executor"): POOL,
    (
        "service/exec_command.py",
        "Popen",
    ): "the command that is run: its end is waited for, and ends the program",
    ("fleet/engine/mqtt/engine.py", "create_task"): "the attempts to connect await it, and have its error",
    ("fleet/engine/mqtt/engine.py", "gather"): "waits for what start_task started",
    ("fleet/engine/http/engine.py", "gather"): "waits for what start_task started",
    ("fleet/workload/backfill.py", "gather"): "waits for what start_task started",
    ("fleet/workload/fleet.py", "gather"): "waits for what start_task started",
    ("fleet/workload/storm.py", "gather"): "in a journey, which start_task started: " + AWAITED,
    ("fleet/target/limiter/trial.py", "gather"): AWAITED,
    ("fleet/target/client.py", "TaskGroup"): AWAITED,
    ("fleet/target/client.py", "create_task"): AWAITED,
    ("fleet/audit/readback.py", "TaskGroup"): AWAITED,
    ("fleet/audit/readback.py", "create_task"): AWAITED,
    ("fleet/runner.py", "run_coroutine_threadsafe"): "its caller waits for it, and has its error",
    ("fleet/run/local_workers.py", "Process"): "the coordinator waits for its end, or its silence",
    (
        "fleet/report/prometheus/address.py",
        "ThreadingHTTPServer",
    ): "a request's thread: socketserver prints its error, and whoever reads the figures comes again",
    ("children.py", "Popen"): "fleet-simulator up looks once a second whether it runs; others wait for it",
}
"""What is not started by simulator.watched, and why that is as good."""


def started() -> set[tuple[str, str]]:
    """File and name of every call, or base class, that starts something which runs beside its caller."""
    found = set()
    for path, tree in trees(*(f"simulator/{part}" for part in LOOKED_AT)):
        for node in ast.walk(tree):
            used = [node.func] if isinstance(node, ast.Call) else node.bases if isinstance(node, ast.ClassDef) else []
            for each in used:
                if name_of(each) in STARTS or ast.unparse(each) in STARTS:
                    found.add((path.relative_to(ROOT / "simulator").as_posix(), name_of(each)))
    return found


def test_service_and_fleet_start_nothing_that_nobody_watches():
    assert started() == set(STARTED_ELSEWHERE)


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), SuddenExit(), SystemExit(0)])
def test_the_owner_of_a_thread_is_told_of_any_error(error, caplog):
    told: list[Any] = []

    def run() -> None:
        raise error

    thread = make_thread(run, "worker", lambda *given: told.append((threading.current_thread(), *given)))
    thread.start()
    thread.join(60)
    assert told == [(thread, "worker", error)]
    assert f"worker ended unexpectedly: {describe(error)}" in caplog.text
    assert "Traceback" in caplog.text


def test_a_thread_that_returns_has_ended_as_planned(caplog):
    told: list[Any] = []
    thread = make_thread(lambda: None, "worker", lambda *given: told.append(given))
    thread.start()
    thread.join(60)
    assert (told, caplog.text) == ([], "")


def tasks_told(*stories: Any) -> list[tuple[str, str]]:
    """What the loop's exception handler gets of these coroutines, each a task: name and error."""
    told: list[tuple[str, str]] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: told.append((context[ENDED], describe(context["exception"]))))
        tasks = [start_task(each(), each.__name__) for each in stories]
        await asyncio.sleep(0)
        tasks[-1].cancel()
        await asyncio.wait(tasks)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(story())
    return told


async def fails() -> None:
    raise ConfigurationError(["a fault"], "x")


async def is_canceled_by_what_it_waits_for() -> None:
    waited_for = asyncio.get_running_loop().create_future()
    waited_for.cancel()
    await waited_for


async def returns() -> None:
    await asyncio.sleep(0)


async def is_canceled_by_its_owner() -> None:
    await asyncio.sleep(600)


def test_the_owner_of_a_task_is_told_of_errors_and_of_a_cancellation_that_nobody_asked_for():
    told = tasks_told(fails, is_canceled_by_what_it_waits_for, returns, is_canceled_by_its_owner)
    assert told == [
        ("fails", "ConfigurationError: x: 1 fault(s) - a fault"),
        ("is_canceled_by_what_it_waits_for", "CancelledError: nobody asked for it"),
    ]


def test_a_loop_that_has_ended_is_told_nothing():
    loop = asyncio.new_event_loop()
    loop.close()
    into_loop(loop)("worker", ZeroDivisionError())


def test_of_a_group_of_errors_the_first_is_named():
    group = ExceptionGroup("many", [ExceptionGroup("inner", [ZeroDivisionError("by\nzero")]), ValueError()])
    assert str(PartEnded("x", group)) == "x ended unexpectedly: ZeroDivisionError: by zero"
