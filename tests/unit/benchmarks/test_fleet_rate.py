"""The benchmark of the rate, in small: what the target counted is judged, and the play makes what it was asked for."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.fleet_rate import kept, play


def test_a_rate_is_judged_by_the_middle_of_the_load_as_the_target_counted_it():
    quiet = [(0.0, 5), (1.0, 5)]  # somebody else's requests of before
    load = [(2.0 + second, 5 + 90 + 100 * second) for second in range(10)]
    after = [(12.0, 1005), (13.0, 1005)]
    found = kept([*quiet, *load, *after], 100, 10)
    assert (found.rate, found.error, found.worst) == (pytest.approx(100), pytest.approx(0), pytest.approx(0))
    slow = [(at, count if at < 8 else count - 30) for at, count in [*quiet, *load, *after]]
    found = kept(slow, 100, 10)
    assert found.error == pytest.approx(-30 / 600)
    assert found.worst == pytest.approx(-0.3)
    with pytest.raises(RuntimeError, match="none of them from the middle"):
        kept(quiet, 100, 10)


def test_the_play_counts_what_it_was_asked_for_and_that_nobody_answered(tmp_path):
    async def story() -> dict[str, float]:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        try:
            port = server.sockets[0].getsockname()[1]
            return await play(f"http://127.0.0.1:{port}", 50, 1.0, tmp_path, drain_s=0.1)
        finally:
            server.close()
            await server.wait_closed()

    assert asyncio.run(story()) == {"intended": 50, "sent": 50, "undelivered": 50}
