"""A service that a program with an event loop of its own starts, as asynchronous tests do."""

from __future__ import annotations

import asyncio

import httpx

from tests.service_running import running


def test_a_service_is_started_used_and_ended_within_somebody_elses_loop():
    async def program() -> int:
        with running() as bench:
            bench.add_user("ada@example.com", "made-up-password")
            bench.product()
            keys = bench.http.headers
            async with httpx.AsyncClient(base_url=bench.service.base_url, headers=keys, trust_env=False) as http:
                return len((await http.get("/products")).json()["data"])

    assert asyncio.run(program()) == 1
