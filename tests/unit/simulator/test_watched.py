"""Whoever starts a thread or a task is told when an error ends it; service and fleet start none in another way."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from agent.errors import ConfigurationError
from simulator.watched import ENDED, PartEnded, describe, into_loop, make_thread, start_task
from tests.support.sudden_ends import SuddenExit


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
