"""Advancing the service's clock over very many instants."""

from __future__ import annotations

import asyncio

from simulator.service import clock as service_clock
from simulator.service.clock import SettableClock, Timers
from tests.support.service_running import T0_MS, ManualClock


def test_others_go_on_while_the_clock_is_advanced_over_many_instants(monkeypatch):
    monkeypatch.setattr(service_clock, "TURN_S", 0.0)
    clock = SettableClock(ManualClock(T0_MS))
    timers = Timers(clock)
    visited: list[int] = []
    seen: list[int] = []
    timers.add(lambda: T0_MS + 1 + len(visited) if len(visited) < 1000 else None, visited.append)

    async def look_on() -> None:
        while len(visited) < 1000:
            seen.append(clock.now_ms())
            await asyncio.sleep(0)

    async def play() -> None:
        await asyncio.gather(timers.advance(T0_MS + 60_000), look_on())

    asyncio.run(play())
    assert visited == list(range(T0_MS + 1, T0_MS + 1001))
    assert len(seen) > 100, "nobody else had a turn"
    assert seen == sorted(seen)
    assert clock.now_ms() == T0_MS + 60_000
