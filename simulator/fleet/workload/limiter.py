"""The limiter's test as a worker plays it: one test, however many devices the scenario has."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.errors import TransportError
from agent.wire.extensions import NONE
from simulator.fleet.engine.pool import HttpPool
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import CHECKS
from simulator.fleet.target.limiter.client import OPERATION, LimiterClient
from simulator.fleet.target.limiter.trial import RateLimiterTest, TimeSource
from simulator.fleet.target.limiter.values import CheckOutcome, CheckResult, LimiterRules
from simulator.fleet.target.target import KeyPairFile, read_keys
from simulator.fleet.workload.base import Leftover, WorkloadSummary
from simulator.watched import start_task

_CONNECTIONS: Final = 64


@dataclass(frozen=True, slots=True)
class LimiterJob:
    """What the test needs, pickled.

    Attributes:
        keys: one of them storms, the others stay below their quota meanwhile.
        offers: the service's extensions.
        ca_file: the authorities that alone are trusted there; None trusts the system's.
    """

    base_url: str
    keys: tuple[KeyPairFile, ...]
    rules: LimiterRules
    timeout_s: float
    offers: frozenset[str] = NONE
    ca_file: Path | None = None

    def make(self, recorder: Recorder) -> LimiterWorkload:
        """Build everything; called in the running loop. Nothing is sent yet."""
        return LimiterWorkload(self, recorder)


class LimiterWorkload:
    """Plays a ``limiter`` scenario: asks for more than the quota and watches what is let through.

    Args:
        job: what is to be tested.
        recorder: of the worker.
        pace: time; the machine's by default.
    """

    def __init__(self, job: LimiterJob, recorder: Recorder, pace: TimeSource | None = None) -> None:
        self._pace = pace or TimeSource(time.monotonic, time.time, asyncio.sleep)
        self._job = job
        self._recorder = recorder
        self._pool = HttpPool(job.base_url, connections=_CONNECTIONS, timeout_s=job.timeout_s, ca_file=job.ca_file)
        self._task: asyncio.Task[tuple[CheckResult, ...]] | None = None
        self._step = ""
        self._problems: list[str] = []

    @property
    def devices(self) -> int:
        """None: the test needs keys only."""
        return 0

    def begin(self, at_s: float) -> None:
        """Begin the test of the rate limiter."""
        del at_s
        keys = read_keys(self._job.keys)
        client = LimiterClient(self._pool, keys, self._pace.now, self._measure, offers=self._job.offers)
        trial = RateLimiterTest(client.ask, len(keys), self._job.rules, self._pace, self._note_step)
        self._task = start_task(self._run(trial), "limiter")

    def enter_phase(self, index: int, at_s: float) -> None:
        """Phases are windows here; the test finds its own."""

    def gauges(self) -> Mapping[str, float]:
        """None: the test has no gauges."""
        return {}

    async def drain(self, from_s: float, until_s: float) -> Leftover:
        """Wait for the test's end."""
        del from_s
        if self._task is not None:
            await asyncio.wait([self._task], timeout=max(0.0, until_s - time.monotonic()))
        unfinished = self._task is not None and not self._task.done()
        return Leftover((self._step,), 1) if unfinished else Leftover()

    async def close(self) -> WorkloadSummary:
        """What the checks came to."""
        results: tuple[CheckResult, ...] = ()
        failures: list[str] = []
        if self._task is None or not self._task.done():
            least_s = 4 * self._job.rules.window_s
            failures.append(
                f"the limiter's test did not come to its end ({self._step or 'not begun'}): it takes four windows, "
                f"so let the phases last {least_s:g} s"
            )
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                results = await self._task
            failures += self._problems
        await self._pool.close()
        failures += [result.sentence for result in results if result.outcome is CheckOutcome.BROKEN]
        checks = {
            result.name: {"outcome": str(result.outcome), "expected": result.expected, "observed": result.observed}
            for result in results
        }
        return WorkloadSummary(failures=tuple(failures), extras={CHECKS: checks}, held=_held(results))

    async def _run(self, trial: RateLimiterTest) -> tuple[CheckResult, ...]:
        try:
            return await trial.run()
        except TransportError as error:
            self._problems.append(f"the limiter's test ended: {error}")
            return ()

    def _note_step(self, step: str) -> None:
        self._step = step

    def _measure(self, outcome: OutcomeClass, sent_s: float, now_s: float) -> None:
        self._recorder.intended += 1
        self._recorder.sent += 1
        self._recorder.record(OPERATION, outcome, intended_s=sent_s, sent_s=sent_s, now_s=now_s)


def _held(results: Sequence[CheckResult]) -> str:
    held = sum(result.outcome is CheckOutcome.HELD for result in results)
    left = [result.sentence for result in results if result.outcome is CheckOutcome.SKIPPED]
    return "; ".join([f"{held} of {len(results)} checks of the limiter held", *left]) if results else ""
