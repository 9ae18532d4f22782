"""The devices' network links, where a scenario's faults cut them, slow them down, or lose messages.

A device without a link keeps running: its requests under way end without an answer, and new ones fail. Only runs with
faults send through this object.

HTTP: a fault hits single requests. MQTT: a lost message or a wrong token closes the session; reconnects fail until the
fault ends. A slow link delays either.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from agent.errors import LockedOut, Offline
from simulator.fleet.device.model import Fleet
from simulator.fleet.engine.http import Http1Engine
from simulator.fleet.engine.http_answers import Caller, Headers
from simulator.fleet.faults import FREE, ActiveFaults, Fate, Passage
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.signals import DeviceRandom

DOWN: Final = "the link is down"
_SECRET: Final = re.compile(rb"(?im)^(x-secret-key|authorization):[^\r\n]*")
_WRONG: Final = rb"\1: msk_not_the_one"
SESSION_ENDS: Final = {
    Fate.WRONG_KEY: (
        LockedOut("unauthorized", "the broker does not accept this device's token: Not authorized (0x87)"),
        OutcomeClass.REFUSED,
    ),
    Fate.LOST: (Offline("unreachable", "the link loses what is sent: no answer came"), OutcomeClass.TIMEOUT),
    Fate.DOWN: (Offline("unreachable", DOWN), OutcomeClass.TRANSPORT),
}
"""Fate of an MQTT message: (error that ends the session, outcome recorded)."""


class Links:
    """Which devices have a link, and what faults do to what is sent over it.

    Args:
        fleet: whose links.
        has_faults: the scenario has faults; without any, nothing needs to be sent through here.

    Attributes:
        on_lost: called with the index of a device that loses its link.
        faults: applied to everything that is sent; None for none.
        down: devices without a link.
    """

    def __init__(self, fleet: Fleet, *, has_faults: bool = False) -> None:
        self.has_faults = has_faults
        self.on_lost: Callable[[int], None] = lambda _device: None
        self.faults: ActiveFaults | None = None
        self.down: set[int] = set()
        self._fleet = fleet
        self._numbers: Counter[int] = Counter()  # of messages, by device

    def lose(self, device: int) -> None:
        """Cut the device's connection; until :meth:`restore` it can make no other."""
        self.down.add(device)
        self.on_lost(device)

    def restore(self, device: int) -> None:
        self.down.discard(device)

    def has_fault(self, device: int) -> bool:
        """Whether the device's link, and not the generator, is the reason that it cannot send now."""
        random = DeviceRandom(self._fleet.seed, device)
        now_s = self._fleet.monotonic()
        return device in self.down or (self.faults is not None and self.faults.has_link_fault(random, now_s))

    def passage(self, device: int, size_bytes: int) -> Passage:
        """The fate and delay of the device's next message, of this size."""
        if device in self.down:
            return Passage(Fate.DOWN)
        if self.faults is None:
            return FREE
        self._numbers[device] += 1
        random = DeviceRandom(self._fleet.seed, device)
        return self.faults.passage(random, self._numbers[device], self._fleet.monotonic(), size_bytes)

    def send(self, engine: Http1Engine, device: int, message: bytes, caller: Caller, timeout_s: float) -> None:
        """Send a request through the device's link; arguments as of the engine's own ``send``."""
        now_s, passage = self._fleet.monotonic(), self.passage(device, len(message))
        if passage.fate is Fate.DOWN:
            # Through a timer: a caller expects its answer after ``send`` has returned.
            self._call_at(now_s, caller, partial(caller.failed, OutcomeClass.TRANSPORT, DOWN, None, now_s))
        elif passage.fate is Fate.LOST:
            end_s, reason = now_s + timeout_s, f"no answer within {timeout_s:g} s"
            self._call_at(end_s, caller, partial(caller.failed, OutcomeClass.TIMEOUT, reason, now_s, end_s))
        else:
            if passage.fate is Fate.WRONG_KEY:
                message = _SECRET.sub(_WRONG, message, count=1)
            if passage.delay_s:
                relay = _Relay(caller, now_s)
                self._call_at(now_s + passage.delay_s, caller, partial(engine.send, device, message, relay, timeout_s))
            else:
                engine.send(device, message, caller, timeout_s)

    def _call_at(self, at_s: float, caller: Caller, call: Callable[[], object]) -> None:
        """Call at ``at_s``, if the caller still wants an answer."""
        self._fleet.timers.at(at_s, lambda: call() if caller.is_wanted else None)


class _Relay:
    """The caller of a delayed request: reports the time at which the request left the device, before the delay."""

    __slots__ = ("_caller", "_sent_s")

    def __init__(self, caller: Caller, sent_s: float) -> None:
        self._caller = caller
        self._sent_s = sent_s

    @property
    def is_wanted(self) -> bool:
        return self._caller.is_wanted

    def answered(self, status: int, headers: Headers, body: bytes, _sent_s: float, now_s: float) -> None:
        self._caller.answered(status, headers, body, self._sent_s, now_s)

    def failed(self, outcome: OutcomeClass, reason: str, _sent_s: float | None, now_s: float) -> None:
        self._caller.failed(outcome, reason, self._sent_s, now_s)
