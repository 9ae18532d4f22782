"""The devices' links: an engine in front of the engine, where connections are lost, slow, or somebody else's.

Losing the connection is not losing the power: the device lives on, its requests under way end without an answer, and
new ones do not get through. Only runs that take links away, or do something to them, have this engine in between.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from simulator.fleet.engine.ports import Caller, Headers, HttpEngine
from simulator.fleet.engine.wheel import Clock, Wheel
from simulator.fleet.faults import FREE, ActiveFaults, Passage
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.signals import DeviceRandom

DOWN: Final = "the link is down"
_CLOSED: Final = "the engine was closed"
_TIMED_OUT: Final = "no answer within {:g} s"
_SECRET: Final = re.compile(rb"(?im)^(x-secret-key|authorization):[^\r\n]*")
_WRONG: Final = rb"\1: msk_not_the_one"
_PORTAL: Final = (
    (b"location", b"http://portal.example/sign-in"),
    (b"content-type", b"text/html"),
    (b"content-length", b"0"),
)


class LinkState:
    """The links of a worker's devices.

    Args:
        clock: the engine's.
        seed: of the run.
    """

    def __init__(self, clock: Clock, seed: int) -> None:
        self._clock = clock
        self._seed = seed
        self._down: Counter[int] = Counter()
        self._faults: ActiveFaults | None = None
        self._numbers: Counter[int] = Counter()

    @property
    def down(self) -> int:
        """How many devices have no link."""
        return len(self._down)

    @property
    def is_plain(self) -> bool:
        """Nothing is done to what gets through."""
        return self._faults is None

    def is_down(self, device: int) -> bool:
        """Whether this device has no link."""
        return device in self._down

    def lose(self, device: int) -> bool:
        """One more cause of being down; whether it is the first."""
        self._down[device] += 1
        return self._down[device] == 1

    def restore(self, device: int) -> None:
        """One cause of being down is over; the device can connect again when it was the last."""
        self._down[device] -= 1
        if self._down[device] <= 0:
            del self._down[device]

    def apply_link_faults(self, faults: ActiveFaults | None) -> None:
        """These do something to everything that is sent from now on; None ends it."""
        self._faults = faults

    def passage(self, device: int, size_bytes: int) -> Passage:
        """How the device's next message of this size gets through."""
        if self._faults is None:
            return FREE
        self._numbers[device] += 1
        who = DeviceRandom.at(self._seed, device)
        return self._faults.passage(who, self._numbers[device], self._clock.time(), size_bytes)

    def has_link_fault(self, device: int) -> bool:
        """Whether what this device does not get out is the link's doing, and not the generator's."""
        if device in self._down:
            return True
        faults = self._faults
        return faults is not None and faults.has_link_fault(DeviceRandom.at(self._seed, device), self._clock.time())


class Links:
    """An :class:`~simulator.fleet.engine.ports.HttpEngine` whose devices can lose their connections.

    Args:
        engine: carries what gets through.
        clock: the engine's.
        wheel: for what is late.
        seed: of the run, for faults.
    """

    def __init__(self, engine: HttpEngine, clock: Clock, wheel: Wheel, seed: int = 0) -> None:
        self._engine = engine
        self._clock = clock
        self._wheel = wheel
        self._under_way: dict[int, set[_Relay]] = {}
        self.state = LinkState(clock, seed)
        """Which devices have a link, and what faults do to it."""

    def send(self, device: int, message: bytes, caller: Caller, timeout_s: float) -> None:
        """Send one whole request (head and body, ready for the wire); it waits its turn where no connection is free."""
        state = self.state
        if state.is_down(device):
            # Not from within: the caller expects its answer later.
            now_s = self._clock.time()
            self._clock.call_at(now_s, lambda: caller.failed(OutcomeClass.TRANSPORT, DOWN, None, self._clock.time()))
            return
        relay = _Relay(self, self._under_way.setdefault(device, set()), caller)
        passage = FREE if state.is_plain else state.passage(device, len(message))
        if passage == FREE:
            self._engine.send(device, message, relay, timeout_s)
        else:
            self._pass(device, message, relay, timeout_s, passage)

    def lose(self, device: int) -> None:
        """The connection goes in this instant: what is under way may have arrived, and no answer comes."""
        if not self.state.lose(device):
            return
        self._engine.cut(device)
        now_s = self._clock.time()
        for relay in list(self._under_way.pop(device, ())):
            relay.lose(OutcomeClass.TRANSPORT, DOWN, now_s)

    def cut(self, device: int) -> None:
        """The device's power goes: its requests are forgotten, its callers are not called, its own socket is reset."""
        for relay in list(self._under_way.pop(device, ())):
            relay.forget()
        self._engine.cut(device)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self._engine.connections

    def has_link_fault(self, device: int) -> bool:
        """Whether what this device does not get out is the link's doing, and not the generator's."""
        return self.state.has_link_fault(device)

    async def close(self) -> None:
        """Close every connection; open requests end as ``TRANSPORT``.

        See :class:`~simulator.fleet.engine.ports.HttpEngine`; what was lost on the way ends with it.
        """
        await self._engine.close()
        for relay in [relay for place in self._under_way.values() for relay in place]:
            relay.give_up(_CLOSED)

    def now(self) -> float:
        """This instant on the engine's clock."""
        return self._clock.time()

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call it after a while."""
        self._wheel.at(self._clock.time() + delay_s, call)

    def _pass(self, device: int, message: bytes, relay: _Relay, timeout_s: float, passage: Passage) -> None:
        now_s = self._clock.time()
        relay.slow_down(now_s, passage)
        if passage.is_lost:
            self.later(timeout_s, partial(relay.give_up, _TIMED_OUT.format(timeout_s)))
            return
        if passage.portal:
            answer = partial(relay.answered, 302, _PORTAL, b"", now_s)
            self.later(passage.out_s, lambda: answer(self._clock.time()))
            return
        if passage.wrong_key:
            message = _SECRET.sub(_WRONG, message, count=1)
        go = partial(self._go, device, message, relay, timeout_s)
        if passage.out_s > 0:
            self.later(passage.out_s, go)
        else:
            go()

    def _go(self, device: int, message: bytes, relay: _Relay, timeout_s: float) -> None:
        if relay.is_wanted:
            self._engine.send(device, message, relay, timeout_s)


class _Relay:
    """Between a caller and the engine, as long as the link may be lost."""

    __slots__ = ("_links", "_passage", "_place", "_sent_s", "caller", "is_wanted")

    def __init__(self, links: Links, place: set[_Relay], caller: Caller) -> None:
        self._links = links
        self._place = place
        self._passage: Passage = FREE
        self._sent_s: float | None = None
        self.caller = caller
        self.is_wanted = True
        place.add(self)

    def slow_down(self, now_s: float, passage: Passage) -> None:
        """Note when the request goes out, and what the link does to it."""
        self._sent_s = now_s
        self._passage = passage

    def answered(self, status: int, headers: Headers, body: bytes, sent_s: float, now_s: float) -> None:
        """The answer came. See :class:`~simulator.fleet.engine.ports.Caller`."""
        if self._passage.back_s > 0 and self.is_wanted:
            delay_s = self._passage.back_s
            self._passage = FREE
            late = partial(self.answered, status, headers, body, sent_s)
            self._links.later(delay_s, lambda: late(now_s + delay_s))
        elif self._end():
            self.caller.answered(status, headers, body, sent_s if self._sent_s is None else self._sent_s, now_s)

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """No answer. See :class:`~simulator.fleet.engine.ports.Caller`."""
        if self._end():
            self.caller.failed(outcome, reason, sent_s, now_s)

    def give_up(self, reason: str) -> None:
        """Report that no answer came in time."""
        if self._end():
            self.caller.failed(OutcomeClass.TIMEOUT, reason, self._sent_s, self._links.now())

    def lose(self, outcome: OutcomeClass, reason: str, now_s: float) -> None:
        """End the request with its link: whether it arrived is not known, so it counts as sent."""
        if self._end():
            self.caller.failed(outcome, reason, now_s, now_s)

    def forget(self) -> None:
        """End it without an answer: its device is gone."""
        self._end()

    def _end(self) -> bool:
        self._place.discard(self)
        wanted, self.is_wanted = self.is_wanted, False
        return wanted
