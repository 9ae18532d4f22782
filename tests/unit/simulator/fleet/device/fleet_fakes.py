"""An engine without sockets on virtual time, and a ledger and an observer that keep what they are told."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from simulator.fleet.audit.ledger import CommandEvent, Ledger, ReadingEvent
from simulator.fleet.device.model import Fleet, Observer
from simulator.fleet.engine.http_answers import Caller
from simulator.fleet.engine.timers import Timers
from simulator.fleet.outcomes import Attempt, OutcomeClass
from tests.support.virtual_clock import VirtualClock

START_S = 1_767_225_600.0

Answer = tuple[int, Mapping[str, str], bytes] | OutcomeClass | None
"""Status, headers, body; or why there is no answer; or None for one that never comes."""


@dataclass
class Request:
    """One request as it went over the wire."""

    device: int
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    sent_s: float
    timeout_s: float

    def json(self) -> Any:
        return json.loads(self.body)


class FakeEngine:
    """Answers each request after ``takes_s`` and ``delay_s``, and never to a device that was cut off meanwhile."""

    def __init__(self, clock: VirtualClock, answer: Callable[[Request], Answer], takes_s: float = 0.01) -> None:
        self._clock = clock
        self._answer = answer
        self._lives: dict[int, int] = {}
        self.takes_s = takes_s
        self.delay_s: Callable[[Request], float] = lambda _request: 0.0
        self.requests: list[Request] = []
        self.cuts: list[int] = []
        self.under_way: dict[int, int] = {}
        self.most_at_once = 0

    def send(self, device: int, message: bytes, caller: Caller, timeout_s: float) -> None:
        request = read_request(device, message, self._clock.time(), timeout_s)
        self.requests.append(request)
        self.under_way[device] = self.under_way.get(device, 0) + 1
        self.most_at_once = max(self.most_at_once, self.under_way[device])
        life = self._lives.get(device, 0)
        takes_s = self.takes_s + self.delay_s(request)
        self._clock.call_at(self._clock.time() + takes_s, lambda: self._end(request, caller, life))

    def cut(self, device: int) -> None:
        self.cuts.append(device)
        self._lives[device] = self._lives.get(device, 0) + 1
        self.under_way[device] = 0

    async def close(self) -> None: ...

    def _end(self, request: Request, caller: Caller, life: int) -> None:
        if life != self._lives.get(request.device, 0):
            return
        answer = self._answer(request)
        if answer is None:
            return
        self.under_way[request.device] -= 1
        if isinstance(answer, OutcomeClass):
            caller.failed(answer, str(answer), request.sent_s, self._clock.time())
            return
        status, headers, body = answer
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        caller.answered(status, raw, body, request.sent_s, self._clock.time())


def read_request(device: int, message: bytes, sent_s: float, timeout_s: float) -> Request:
    """A request out of its bytes, whose length has to be right."""
    head, _, body = message.partition(b"\r\n\r\n")
    line, *lines = head.decode().split("\r\n")
    method, target, version = line.split(" ")
    headers = {name: value for name, _, value in (each.partition(": ") for each in lines)}
    assert version == "HTTP/1.1"
    assert int(headers.get("content-length", 0)) == len(body)
    return Request(device, method, target, headers, body, sent_s, timeout_s)


def a_fleet(clock: VirtualClock, **options: Any) -> Fleet:
    """What the devices of a test have in common."""
    return Fleet(
        **{
            "timers": Timers(clock),
            "offers": frozenset(),
            "seed": 1,
            "run": "run",
            "monotonic": clock.time,
            "wall": lambda: START_S + clock.time(),
            **options,
        }
    )


class RecordingLedger(Ledger):
    """Keeps every event."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def readings(self, event: ReadingEvent, device: int, sequences: Sequence[int], at_s: float) -> None:
        self.calls.append((event, device, tuple(sequences), at_s))

    def command(self, event: CommandEvent, device: int, command_id: str, at_s: float, **_facts: Any) -> None:
        self.calls.append((event, device, command_id, at_s))

    def resent(self) -> list[tuple[tuple[int, ...], bool]]:
        """The readings of each resend, and whether the service may have had them."""
        return [(call[2], call[0] == "resent") for call in self.calls if call[0].startswith("resent")]


class Exchange(NamedTuple):
    """What an observer was told, see :meth:`~simulator.fleet.device.model.Observer.exchanged`."""

    operation: str
    outcome: OutcomeClass
    device: int
    intended_s: float
    ready_s: float
    sent_s: float | None
    now_s: float
    attempt: Attempt = Attempt.FIRST


class RecordingObserver(Observer):
    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.faults: list[tuple[str, int, str]] = []

    def exchanged(self, *exchange: Any) -> None:
        self.exchanges.append(Exchange(*exchange))

    def faulted(self, operation: str, device: int, sentence: str) -> None:
        self.faults.append((operation, device, sentence))
