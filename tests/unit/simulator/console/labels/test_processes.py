"""Tests for label work in processes of its own: bounded in time and in number, and never in the service's loop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from simulator.console.labels.orders import LabelOrder
from simulator.console.labels.processes import LabelProcess
from simulator.service.errors import Invalid, Unavailable

DRAW = {"do": "draw", "text": "hello"}
TOO_LONG = "This took too long."


@asynccontextmanager
async def working(waiting_max: int = 4, idle_s: float = 300.0) -> AsyncIterator[LabelProcess]:
    process = LabelProcess(waiting_max=waiting_max, idle_s=idle_s)
    try:
        yield process
    finally:
        await process.close()


async def draw(process: LabelProcess, limit_s: float = 60.0) -> bytes:
    _, svg = await process.do(DRAW, limit_s=limit_s, too_long=TOO_LONG)
    return svg


def is_there(pid: int | None) -> bool:
    return Path(f"/proc/{pid}").exists()


def environment_of(pid: int | None) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def play(story: Callable[[LabelProcess], Awaitable[None]], **settings: float) -> None:
    async def run() -> None:
        async with working(**settings) as process:  # type: ignore[arg-type]
            await story(process)

    asyncio.run(run())


def test_one_process_does_one_job_after_the_other() -> None:
    async def story(process: LabelProcess) -> None:
        assert process.pid is None
        first = await draw(process)
        pid = process.pid
        assert first.startswith(b"<?xml")
        assert await draw(process) == first
        assert process.pid == pid

    play(story)


def test_a_job_that_takes_too_long_is_ended_with_its_process_and_the_next_one_is_done() -> None:
    async def story(process: LabelProcess) -> None:
        await draw(process)
        pid = process.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(Invalid, match=TOO_LONG) as refused:
            await draw(process, limit_s=0.1)
        assert refused.value.error == "label_work_too_long"
        assert not is_there(pid)
        assert await draw(process)

    play(story)


def test_a_process_that_crashes_costs_one_job() -> None:
    async def story(process: LabelProcess) -> None:
        await draw(process)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        job = asyncio.create_task(draw(process))
        await asyncio.sleep(0)
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(Unavailable, match="ended its process"):
            await job
        assert await draw(process)

    play(story)


def test_more_jobs_than_may_wait_are_refused_at_once() -> None:
    async def story(process: LabelProcess) -> None:
        jobs = [asyncio.create_task(draw(process)) for _ in range(4)]
        results = await asyncio.gather(*jobs, return_exceptions=True)
        refused = [one for one in results if isinstance(one, Unavailable)]
        assert [one.error for one in refused] == ["label_work_busy"] * 2
        assert [one.retry_after_s for one in refused] == [2, 2]
        assert len([one for one in results if isinstance(one, bytes)]) == 2

    play(story, waiting_max=1)


def test_a_caller_that_is_gone_leaves_no_answer_for_the_next_one() -> None:
    async def story(process: LabelProcess) -> None:
        await draw(process)
        gone = asyncio.create_task(process.do({"do": "draw", "text": "other"}, limit_s=60, too_long=TOO_LONG))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert b"<title>hello</title>" in await draw(process)

    play(story)


def test_a_process_without_work_is_let_go() -> None:
    async def story(process: LabelProcess) -> None:
        await draw(process)
        pid = process.pid
        while process.pid is not None:  # noqa: ASYNC110 - a timer of the loop, and then the operating system
            await asyncio.sleep(0.01)
        assert await draw(process)
        assert process.pid != pid

    play(story, idle_s=0.01)


def test_closing_ends_the_process_and_no_other_one_is_started() -> None:
    async def story(process: LabelProcess) -> None:
        await draw(process)
        pid = process.pid
        await process.close()
        assert not is_there(pid)
        with pytest.raises(Unavailable, match="about to end"):
            await draw(process)

    play(story)


def test_no_key_of_the_environment_reaches_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_SIMULATOR_SECRET_KEY", "msk_not_for_decoders")

    async def story(process: LabelProcess) -> None:
        await draw(process)
        assert b"msk_not_for_decoders" not in environment_of(process.pid)

    play(story)


def test_what_cannot_be_worked_on_is_a_sentence_and_keeps_the_process() -> None:
    async def story(process: LabelProcess) -> None:
        with pytest.raises(Invalid, match="empty") as refused:
            await process.do({"do": "decode", "quick": True, "patience_s": 1}, b"", limit_s=60, too_long=TOO_LONG)
        assert refused.value.error == "not_a_picture"
        assert process.pid is not None

    play(story)


def test_a_failure_in_the_process_is_logged_and_keeps_it(caplog: pytest.LogCaptureFixture) -> None:
    async def story(process: LabelProcess) -> None:
        with pytest.raises(Unavailable, match="its log says why"):
            await process.do({"do": "draw"}, limit_s=60, too_long=TOO_LONG)
        assert "KeyError: 'text'" in caplog.text
        assert await draw(process)

    play(story)


def test_a_message_about_a_very_long_value_is_short() -> None:
    async def story(process: LabelProcess) -> None:
        order = LabelOrder(product_id="p", template="x" * 100_000).model_dump()
        with pytest.raises(Invalid) as refused:
            await process.do({"do": "make", "order": order, "label_key": None}, limit_s=60, too_long=TOO_LONG)
        assert len(refused.value.message) < 5000

    play(story)
