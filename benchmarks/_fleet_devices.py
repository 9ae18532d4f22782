"""Virtual devices as a load generator: a process with ``agent.core`` in every device, as a fleet's worker has them.

Every device polls and reads once in a period, each in its own place in it. Prints one line of JSON for each step.

    python -m benchmarks._fleet_devices URL --devices 10000 --period 60 [--steps 1] [--seconds 5] [--per-device]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from uuid import UUID

import uvloop

from agent.core.timekeeping import PollIntervals
from agent.wire.server import IDEMPOTENCY_KEY
from benchmarks._rig import KEYS, pss_bytes
from simulator.fleet.device.driver import HttpDriver
from simulator.fleet.device.model import DeviceModel, Fleet, Member, Observer
from simulator.fleet.engine.addresses import RequestHead, read_origin
from simulator.fleet.engine.http import Http1Engine
from simulator.fleet.engine.preflight import raise_descriptor_limit
from simulator.fleet.engine.timers import LoopClock, Timers
from simulator.fleet.metrics.health import GcFreeze
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import Attempt, OutcomeClass
from simulator.fleet.signals import signals_of_json

SIGNALS = signals_of_json(
    {
        "temperature_celsius": {"kind": "diurnal", "mean": 21.0, "amplitude": 4.0},
        "humidity_percent": {"kind": "diurnal", "mean": 45.0, "amplitude": 9.0, "peak_hour": 5.0},
    }
)
_SOURCE_SHARE = 20_000
_CROWD = 500
"""So many are switched on in one turn of the loop."""
_FIRST_ID = 0x019B76DA_A8007000_80000000_00000000


class Counting(Observer):
    """The observer: counts, records as a worker does, and keeps the lag."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.begin()

    def begin(self) -> None:
        """Count from here."""
        self.ended = self.failed = 0
        self.lag = Histogram()
        self._lags: list[float] = []

    def exchanged(
        self,
        operation: str,
        outcome: OutcomeClass,
        device: int,
        intended_s: float,
        ready_s: float,
        sent_s: float | None,
        now_s: float,
        attempt: Attempt = Attempt.FIRST,
    ) -> None:
        """See :class:`~simulator.fleet.device.model.Observer`."""
        self.ended += 1
        self.failed += outcome is not OutcomeClass.OK
        self._lags.append((now_s if sent_s is None else sent_s) - ready_s)
        self.recorder.record(operation, outcome, intended_s=intended_s, sent_s=sent_s, now_s=now_s, attempt=attempt)

    def faulted(self, operation: str, device: int, sentence: str) -> None:
        """See :class:`~simulator.fleet.device.model.Observer`."""

    def cut(self, second: int) -> None:
        """A second is over."""
        lags, self._lags = self._lags, []
        self.lag.record_many([max(0.0, lag_s) for lag_s in lags])
        self.recorder.cut(second)


def _driver(given: argparse.Namespace, observer: Counting) -> tuple[HttpDriver, Http1Engine]:
    polling = PollIntervals(given.period, given.period, given.period)
    model = DeviceModel(signals=SIGNALS, interval_s=given.period, polling=polling, wait_s=0.0)
    origin, timers, per_device = read_origin(given.url), Timers(LoopClock()), given.per_device
    hosts = given.devices // _SOURCE_SHARE + 1 if per_device else 0
    sources = tuple(f"127.0.0.{number + 1}" for number in range(hosts))
    engine = Http1Engine(origin, timers, per_device=per_device, device_sockets=1, pool=given.pool, sources=sources)
    members = [Member(str(UUID(int=_FIRST_ID + number)), "product", model) for number in range(given.devices)]
    offers = frozenset({IDEMPOTENCY_KEY})
    fleet = Fleet(timers=timers, offers=offers, seed=1, run="benchmark", numbered=True, observer=observer)
    driver = HttpDriver(engine, fleet, members, [RequestHead(origin, KEYS)] * given.devices)
    return driver, engine


async def _perform(given: argparse.Namespace) -> None:
    observer = Counting()
    driver, engine = _driver(given, observer)
    GcFreeze()  # as in a worker
    on = 0
    for step in range(1, given.steps + 1):
        for number in range(on, on := given.devices * step // given.steps):
            driver.switch_on(number)
            if number % _CROWD == 0:
                await asyncio.sleep(0)
        await _pass(observer, given.settle)
        observer.begin()
        began_s, cpu_s = time.monotonic(), time.process_time()
        await _pass(observer, given.seconds)
        seconds, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
        lag = observer.lag
        done = {
            "devices": on,
            "seconds": seconds,
            "intended": on * 2 / given.period * seconds,  # a poll and a reading
            "ended": observer.ended,
            "failed": observer.failed,
            "cpu_s": cpu_s,
            # From when a request could go out to when it did.
            "lag_p99_s": lag.percentile(99) if lag.count else 0.0,
            "pss_bytes": pss_bytes(),
            "connections": engine.connections,
        }
        print(json.dumps(done), flush=True)
        is_full = done["ended"] < 0.97 * done["intended"] or done["lag_p99_s"] > given.until_full
        if given.until_full and is_full:
            break
    for number in range(on):
        driver.switch_off(number)
    await engine.close()


async def _pass(observer: Counting, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        await asyncio.sleep(min(1.0, left_s))
        observer.cut(0)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description="Virtual devices as a load generator.")
    parser.add_argument("url")
    parser.add_argument("--devices", type=int, default=10_000)
    parser.add_argument("--period", type=float, default=60.0, help="each device polls and reads once in it, seconds")
    parser.add_argument("--steps", type=int, default=1, help="the devices come in so many equal crowds")
    parser.add_argument("--settle", type=float, default=1.0, help="before each measurement, seconds")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--pool", type=int, default=128, help="connections that all share")
    parser.add_argument("--per-device", action="store_true", help="a connection for each device instead")
    parser.add_argument("--until-full", type=float, default=0.0, help="end when the 99th percentile of lag is above")
    given = parser.parse_args()
    raise_descriptor_limit()
    uvloop.run(_perform(given))


if __name__ == "__main__":
    main()
