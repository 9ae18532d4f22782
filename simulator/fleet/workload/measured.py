"""Requests of coroutines, each of them measured: for workloads that wait for their answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

from agent.errors import ServiceError
from simulator.fleet.device.answers import judge, outcome_of
from simulator.fleet.engine.pool import HttpPool, NoAnswerInTime
from simulator.fleet.engine.ports import HttpAnswer
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import Attempt, OutcomeClass
from simulator.fleet.target.client import Keyring, TargetClient
from simulator.fleet.target.target import KeyPairFile, read_keys


class MeasuredRequests:
    """Sends requests to one service with keys that take turns, and records each.

    Args:
        base_url: of the service.
        keys: at least one pair.
        connections: that may be open at once.
        timeout_s: for one request.
        ca_file: the authorities that alone are trusted there; None trusts the system's.
        recorder: of the worker.

    Attributes:
        count: how many requests went out.
    """

    def __init__(
        self,
        base_url: str,
        keys: tuple[KeyPairFile, ...],
        connections: int,
        timeout_s: float,
        ca_file: Path | None,
        recorder: Recorder,
    ) -> None:
        self.count = 0
        self._keys = Keyring(read_keys(keys))
        self._pool = HttpPool(base_url, connections=connections, timeout_s=timeout_s, ca_file=ca_file)
        self._recorder = recorder

    def client(self, offers: frozenset[str]) -> TargetClient:
        """For what is asked beside the load, and is not measured."""
        return TargetClient(self._pool, self._keys, offers)

    async def send(
        self,
        operation: str,
        method: str,
        target: str,
        body: bytes | None,
        *,
        due_s: float,
        attempt: Attempt,
        headers: Mapping[str, str] | None = None,
        also_good: int | None = None,
    ) -> HttpAnswer:
        """One request, measured; a run that is over before its answer makes it a timeout.

        Args:
            operation: what it is measured as.
            method: ``GET``, ``POST`` ...
            target: path and query below the base address.
            body: JSON text; None sends none.
            due_s: when it was due, on the monotonic clock.
            attempt: whether it went out before.
            headers: beside the keys.
            also_good: a status that is a good answer, too.

        Raises:
            ServiceError: no answer came, or no good one.
        """
        recorder, sent_s = self._recorder, time.monotonic()
        recorder.intended += 1
        recorder.sent += 1
        self.count += 1
        outcome = OutcomeClass.TRANSPORT
        try:
            all_headers = {**self._keys.headers(self.count), **(headers or {})}
            answer = await self._pool.request(method, target, body=body, headers=all_headers)
            if answer.status != also_good:
                judge(answer)
            outcome = OutcomeClass.OK
        except asyncio.CancelledError:
            outcome = OutcomeClass.TIMEOUT
            recorder.undelivered += 1
            raise
        except ServiceError as error:
            is_late = isinstance(error, NoAnswerInTime)
            outcome = OutcomeClass.TIMEOUT if is_late else outcome_of(error)
            raise
        finally:
            now_s = time.monotonic()
            recorder.record(operation, outcome, intended_s=due_s, sent_s=sent_s, now_s=now_s, attempt=attempt)
        return answer

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close()
