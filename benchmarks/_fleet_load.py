"""The fleet's HTTP engine as a load generator: a process that makes a body for each request and records each answer.

As in a fleet's worker: the body is made when the request falls due, the recorder takes three times for each exchange,
and its seconds become histograms in a thread beside the loop.

    python benchmarks/_fleet_load.py URL --connections 64 [--per-device] [--seconds 5] [--core 1]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import uvloop

from simulator.fleet.engine.addresses import read_origin
from simulator.fleet.engine.http import Http1Engine
from simulator.fleet.engine.http_answers import Headers
from simulator.fleet.engine.preflight import raise_descriptor_limit
from simulator.fleet.engine.timers import LoopClock, Timers
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.recorder import Cut, Recorder
from simulator.fleet.outcomes import OutcomeClass, class_of

OPERATION = "http.sensor_data"
TIMEOUT_S = 30.0
_RAMP = 200
_SOURCE_SHARE = 20_000
BODY = b'{"device_id":"%b","sensor_data":{"temperature_celsius":%.2f,"humidity_percent":%.1f,"sequence":%d}}'
HEAD = (
    "POST {path} HTTP/1.1\r\nhost: {authority}\r\nx-api-key: mk_benchmark\r\nx-secret-key: msk_benchmark\r\n"
    "accept-encoding: identity\r\ncontent-type: application/json\r\n"
)


@dataclass(frozen=True, slots=True)
class Load:
    """What a generator did.

    Attributes:
        requests: answered with 2xx within the measured time.
        failed: everything else that ended.
        seconds: measured.
        cpu_s: CPU time of the generator in them.
        response_ms: percentiles from the intended time, by name (``p50``).
        service_ms: percentiles from the sent time.
        connection_bytes: by which the process grew for each connection.
    """

    requests: int
    failed: int
    seconds: float
    cpu_s: float
    response_ms: dict[str, float]
    service_ms: dict[str, float]
    connection_bytes: float = 0.0


class _Run:
    """What the devices share."""

    def __init__(self, engine: Http1Engine, timers: Timers, url: str) -> None:
        self.engine = engine
        self.timers = timers
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
            _First(self, number).send(time.monotonic())
            while self.open >= _RAMP or (number == connections - 1 and self.open):  # noqa: ASYNC110
                await asyncio.sleep(0.001)


class _Device:
    """One device: makes its requests, and is told what became of them."""

    is_wanted = True
    __slots__ = ("_name", "_number", "_run", "_sequence", "intended_s")

    def __init__(self, run: _Run, number: int) -> None:
        self._run = run
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
        self.next(now_s)

    def next(self, now_s: float) -> None:
        """A closed user sends again at once."""
        if not self._run.is_over:
            self.send(now_s)


class _First(_Device):
    """One request that opens a connection; nothing follows it."""

    __slots__ = ()

    def next(self, now_s: float) -> None:
        """Nothing follows."""
        del now_s


class _Meter:
    """The recorder's seconds, made into histograms beside the loop and added up; and the CPU time."""

    def __init__(self, run: _Run) -> None:
        self._recorder = run.recorder
        self._thread = ThreadPoolExecutor(1)
        self.restart()

    def restart(self) -> None:
        """Count from now on."""
        self._thread.submit(self._recorder.cut, 0).result()  # behind what was taken out before
        self._response, self._service = Histogram(), Histogram()
        self._good = self._failed = 0
        self._cpu_s, self.began_s = time.process_time(), time.monotonic()

    async def until(self, until_s: float) -> None:
        """Let time pass; take out what was recorded once a second."""
        while (left_s := until_s - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, 1.0))
            self.take()

    def take(self) -> None:
        """Take out what was recorded since the last time."""
        self._thread.submit(self._fold, self._recorder.cut(0))

    def _fold(self, cut: Cut) -> None:
        for outcome, tally in cut.measured().operations.get(OPERATION, {}).items():
            if outcome is OutcomeClass.OK:
                self._good += tally.count
                self._response.add_encoded(tally.response)
                self._service.add_encoded(tally.service)
            else:
                self._failed += tally.count

    def stop(self) -> tuple[float, float]:
        """Seconds measured, and CPU time in them."""
        return time.monotonic() - self.began_s, time.process_time() - self._cpu_s

    def load(self, seconds: float, cpu_s: float) -> Load:
        """What came of it."""
        self._thread.shutdown()
        response, service = _milliseconds(self._response), _milliseconds(self._service)
        return Load(self._good, self._failed, seconds, cpu_s, response, service)


async def run_closed(url: str, *, connections: int, per_device: bool, seconds: float, warm_up_s: float = 1.0) -> Load:
    """Load one address with as many users as connections, each of whom sends again when it has its answer."""
    engine, run = _start(url, connections, per_device=per_device)
    meter = _Meter(run)
    before_bytes = _resident_bytes()
    await run.connect(connections)
    grown_bytes = _resident_bytes() - before_bytes
    for number in range(connections):
        _Device(run, number).send(time.monotonic())
    await meter.until(time.monotonic() + warm_up_s)
    meter.restart()
    await meter.until(meter.began_s + seconds)
    measured = meter.stop()
    run.is_over = True
    await engine.close()
    return replace(meter.load(*measured), connection_bytes=grown_bytes / connections)


def _start(url: str, connections: int, *, per_device: bool) -> tuple[Http1Engine, _Run]:
    sources = tuple(f"127.0.0.{number + 1}" for number in range(connections // _SOURCE_SHARE + 1))
    timers = Timers(LoopClock())
    engine = Http1Engine(read_origin(url), timers, per_device=per_device, pool=connections, sources=sources)
    return engine, _Run(engine, timers, url)


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        return 0


def _milliseconds(histogram: Histogram) -> dict[str, float]:
    if not histogram.count:
        return {}
    return {f"p{percent:g}": histogram.percentile(percent) * 1000 for percent in (50, 90, 99, 99.9)}


def main() -> None:
    """The program: one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("url")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--per-device", action="store_true", help="each user is a device with a socket of its own")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--core", type=int, help="run on this core alone")
    given = parser.parse_args()
    if given.core is not None:
        os.sched_setaffinity(0, {given.core})
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        story = run_closed(given.url, connections=given.connections, per_device=given.per_device, seconds=given.seconds)
        load = runner.run(story)
    print(json.dumps(asdict(load)))


if __name__ == "__main__":
    main()
