"""The fleet's HTTP engine as a load generator: a process that makes a body for each request and records each answer.

As in a fleet's worker: the body is made when the request falls due, the recorder takes three times for each exchange,
and its seconds become histograms in a thread beside the loop. Prints one line of JSON.

    python -m benchmarks._fleet_load URL --connections 64 [--per-device] [--seconds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import uvloop

from benchmarks._rig import resident_bytes
from simulator.fleet.engine.addresses import read_origin
from simulator.fleet.engine.http import Http1Engine
from simulator.fleet.engine.http_answers import Headers
from simulator.fleet.engine.preflight import raise_descriptor_limit
from simulator.fleet.engine.timers import LoopClock, Timers
from simulator.fleet.metrics.recorder import Cut, Recorder, Totals
from simulator.fleet.outcomes import OutcomeClass, class_of
from simulator.fleet.report.figures import Figures, percentiles

OPERATION = "http.sensor_data"
TIMEOUT_S = 30.0
WARM_UP_S = 1.0
_RAMP = 200
_SOURCE_SHARE = 20_000
BODY = b'{"device_id":"%b","sensor_data":{"temperature_celsius":%.2f,"humidity_percent":%.1f,"sequence":%d}}'
HEAD = (
    "POST {path} HTTP/1.1\r\nhost: {authority}\r\nx-api-key: mk_benchmark\r\nx-secret-key: msk_benchmark\r\n"
    "accept-encoding: identity\r\ncontent-type: application/json\r\n"
)


class _Run:
    """What the devices share."""

    def __init__(self, engine: Http1Engine, url: str) -> None:
        self.engine = engine
        origin = read_origin(url)
        self.head = HEAD.format(path=origin.prefix or "/", authority=origin.authority).encode()
        self.recorder = Recorder()
        self.is_over = False
        self.open = 0

    async def connect(self, connections: int) -> None:
        """One request on each connection, so that all stand before anything is measured.

        A few at a time: all at once would overflow the queue of connections that wait to be accepted, and under load
        a loop that is always busy would be long in connecting.
        """
        for number in range(connections):
            _Device(self, number, goes_on=False).send(time.monotonic())
            while self.open >= _RAMP or (number == connections - 1 and self.open):  # noqa: ASYNC110
                await asyncio.sleep(0.001)


class _Device:
    """One device: makes its requests, and is told what became of them."""

    is_wanted = True
    __slots__ = ("_goes_on", "_name", "_number", "_run", "_sequence", "intended_s")

    def __init__(self, run: _Run, number: int, *, goes_on: bool = True) -> None:
        self._run = run
        self._goes_on = goes_on
        self._number = number
        self._name = b"019b76da-a800-7000-8000-%012x" % number
        self._sequence = 0
        self.intended_s = 0.0

    def send(self, intended_s: float) -> None:
        """Make a request and send it."""
        run = self._run
        self.intended_s = intended_s
        self._sequence += 1
        number = self._sequence
        body = BODY % (self._name, 18.0 + number % 800 * 0.01, 40.0 + number % 190 * 0.1, number)
        message = b"%bidempotency-key: %b-%d\r\ncontent-length: %d\r\n\r\n%b" % (
            run.head,
            self._name,
            number,
            len(body),
            body,
        )
        run.open += 1
        run.engine.send(self._number, message, self, TIMEOUT_S)

    def answered(self, status: int, headers: Headers, body: bytes, sent_s: float, now_s: float) -> None:
        """The engine: the answer."""
        del headers, body
        self._done(class_of(status), sent_s, now_s)

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """The engine: no answer."""
        if not self._run.is_over:
            print(reason, file=sys.stderr)
        self._done(outcome, sent_s, now_s)

    def _done(self, outcome: OutcomeClass, sent_s: float | None, now_s: float) -> None:
        run = self._run
        run.open -= 1
        run.recorder.record(OPERATION, outcome, intended_s=self.intended_s, sent_s=sent_s, now_s=now_s)
        if self._goes_on and not run.is_over:  # a closed user sends again at once
            self.send(now_s)


async def load(url: str, connections: int, seconds: float, *, per_device: bool) -> dict[str, float]:
    """Load one address with as many users as connections, each of whom sends again when it has its answer.

    Returns:
        ``requests`` that were answered with 2xx, ``failed``, everything else that ended, ``seconds`` measured,
        ``cpu_s`` of the generator in them, percentiles from the intended time, and by how many bytes the process grew
        for each connection.
    """
    sources = tuple(f"127.0.0.{number + 1}" for number in range(connections // _SOURCE_SHARE + 1))
    timers = Timers(LoopClock())
    engine = Http1Engine(read_origin(url), timers, per_device=per_device, pool=connections, sources=sources)
    run, totals, thread = _Run(engine, url), Totals(), ThreadPoolExecutor(1)

    def add(cut: Cut) -> None:
        totals.add(cut.measured())

    async def pass_until(until_s: float) -> None:
        while (left_s := until_s - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, 1.0))
            thread.submit(add, run.recorder.cut(0))

    before_bytes = resident_bytes()
    await run.connect(connections)
    grown_bytes = resident_bytes() - before_bytes
    for number in range(connections):
        _Device(run, number).send(time.monotonic())
    await pass_until(time.monotonic() + WARM_UP_S)
    thread.submit(lambda: None).result()  # behind what was taken out before
    run.recorder.cut(0)
    totals = Totals()
    cpu_s, began_s = time.process_time(), time.monotonic()
    await pass_until(began_s + seconds)
    took_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
    run.is_over = True
    thread.shutdown()
    await engine.close()
    found = Figures.of(OPERATION, totals.operations.get(OPERATION, {}), timed=(OutcomeClass.OK,))
    times = {f"{name}_ms": 1000 * value for name, value in percentiles(found.response).items()}
    counts = {"requests": found.good, "failed": found.total - found.good}
    return {**counts, "seconds": took_s, "cpu_s": cpu_s, "connection_bytes": grown_bytes / connections, **times}


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description="The fleet's HTTP engine as a load generator.")
    parser.add_argument("url")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--per-device", action="store_true", help="each user is a device with a socket of its own")
    parser.add_argument("--seconds", type=float, default=5)
    given = parser.parse_args()
    raise_descriptor_limit()
    print(json.dumps(uvloop.run(load(given.url, given.connections, given.seconds, per_device=given.per_device))))


if __name__ == "__main__":
    main()
