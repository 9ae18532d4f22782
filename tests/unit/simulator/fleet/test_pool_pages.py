"""Answers to what is asked of a target over a pool: its own web pages are believed after a proof."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from agent.errors import UnexpectedAnswer
from simulator.fleet.engine.ports import HttpAnswer
from simulator.fleet.target.pool_pages import PoolPages

PAGE = HttpAnswer(200, [(b"content-type", b"text/html")], b"<html>Created</html>")


class Pool:
    """Answers every request alike, after a turn of the loop."""

    def __init__(self, answer: HttpAnswer) -> None:
        self.answer = answer
        self.asked: Counter[str] = Counter()

    async def request(self, method: str, target: str, **_other: object) -> HttpAnswer:
        self.asked[f"{method} {target}"] += 1
        await asyncio.sleep(0)
        return self.answer


async def judged(pool: Pool, times: int = 5) -> list[object]:
    pages = PoolPages(pool, dict, lambda: 100.0)
    judging = [pages.judge("POST", "/products", PAGE) for _ in range(times)]
    return await asyncio.gather(*judging, return_exceptions=True)


def test_one_proof_is_asked_for_all_that_wait():
    pool = Pool(HttpAnswer(200, [(b"content-type", b"application/json")], b"[]"))
    found = asyncio.run(judged(pool))
    assert [getattr(answer, "status", None) for answer in found] == [200] * 5
    assert pool.asked == {"GET /devices": 1}


def test_without_the_proof_a_page_is_no_answer():
    pool = Pool(HttpAnswer(200, [(b"content-type", b"text/html")], b"<html>Sign in</html>"))
    found = asyncio.run(judged(pool))
    assert {type(answer) for answer in found} == {UnexpectedAnswer}
    assert pool.asked == {"GET /devices": 1}


def test_a_page_where_json_came_before_is_no_answer():
    async def play() -> None:
        pool = Pool(PAGE)
        pages = PoolPages(pool, dict, lambda: 100.0)
        await pages.judge("POST", "/products", HttpAnswer(201, [(b"content-type", b"application/json")], b"{}"))
        with pytest.raises(UnexpectedAnswer, match="captive portal"):
            await pages.judge("POST", "/products", PAGE)
        assert not pool.asked

    asyncio.run(play())
