"""The devices' links, where a scenario takes them away or makes them bad: lost or slow.

Losing the connection is not losing the power: the device lives on, what it has under way ends without an answer, and
what is new does not get through. Only runs that do something to links send through this object.

A request over HTTP meets a fault of the network by itself; over MQTT a device's connection does: what gets lost, or
would not be taken for its token, **ends the connection**, and every further attempt to connect ends the same way until
the fault is over. What is slow comes later.
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
"""Why a session with a broker ends, or does not begin, when this becomes of a message; and as what it counts."""


class Links:
    """Which devices have a link, and what faults do to it.

    Args:
        fleet: whose links.
        are_touched: something may be done to them in this run; else nothing is to be sent through here.

    Attributes:
        on_lost: called with the index of a device whose connection goes in this instant.
        faults: these do something to everything that is sent; None for none.
        down: devices without a link.
    """

    def __init__(self, fleet: Fleet, *, are_touched: bool = False) -> None:
        self.are_touched = are_touched
        self.on_lost: Callable[[int], None] = lambda _device: None
        self.faults: ActiveFaults | None = None
        self.down: set[int] = set()
        self._fleet = fleet
        self._numbers: Counter[int] = Counter()  # of messages, by device

    def lose(self, device: int) -> None:
        """The connection goes in this instant, and no other can be made."""
        self.down.add(device)
        self.on_lost(device)

    def restore(self, device: int) -> None:
        """Let the device connect again."""
        self.down.discard(device)

    def has_fault(self, device: int) -> bool:
        """Whether what this device does not get out is the link's doing, and not the generator's."""
        random = DeviceRandom(self._fleet.seed, device)
        now_s = self._fleet.monotonic()
        return device in self.down or (self.faults is not None and self.faults.has_link_fault(random, now_s))

    def passage(self, device: int, size_bytes: int) -> Passage:
        """How the device's next message of this size gets through."""
        if device in self.down:
            return Passage(Fate.DOWN)
        if self.faults is None:
            return FREE
        self._numbers[device] += 1
        random = DeviceRandom(self._fleet.seed, device)
        return self.faults.passage(random, self._numbers[device], self._fleet.monotonic(), size_bytes)

    def send(self, engine: Http1Engine, device: int, message: bytes, caller: Caller, timeout_s: float) -> None:
        """Send one whole request, as far as the device's link lets it; arguments as of the engine's own ``send``."""
        now_s, passage = self._fleet.monotonic(), self.passage(device, len(message))
        if passage.fate is Fate.DOWN:
            # Not from within: the caller expects its answer later.
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
        """Call it then, if the caller still wants an answer."""
        self._fleet.timers.at(at_s, lambda: call() if caller.is_wanted else None)


class _Relay:
    """Between a caller and the engine, where the link is slow: the request left the device earlier."""

    __slots__ = ("_caller", "_sent_s")

    def __init__(self, caller: Caller, sent_s: float) -> None:
        self._caller = caller
        self._sent_s = sent_s

    @property
    def is_wanted(self) -> bool:
        """As the caller says."""
        return self._caller.is_wanted

    def answered(self, status: int, headers: Headers, body: bytes, _sent_s: float, now_s: float) -> None:
        """The answer came."""
        self._caller.answered(status, headers, body, self._sent_s, now_s)

    def failed(self, outcome: OutcomeClass, reason: str, _sent_s: float | None, now_s: float) -> None:
        """No answer comes."""
        self._caller.failed(outcome, reason, self._sent_s, now_s)
