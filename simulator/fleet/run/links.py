"""The devices' links: an engine in front of the engine, which loses a device's connection and gives it back.

Losing the connection is not losing the power: the device lives on, its requests under way end without an answer, and
new ones do not get through.
"""

from __future__ import annotations

from typing import Final

from simulator.fleet.engine.ports import Caller, HttpEngine
from simulator.fleet.engine.wheel import Clock
from simulator.fleet.metrics.outcomes import OutcomeClass

_DOWN: Final = "the link is down"


class Links:
    """An :class:`~simulator.fleet.engine.ports.HttpEngine` whose devices can lose their connections.

    Args:
        engine: carries what gets through.
        clock: the engine's.
    """

    def __init__(self, engine: HttpEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._down: set[int] = set()
        self._under_way: dict[int, set[_Relay]] = {}

    @property
    def down(self) -> int:
        """How many devices have no connection."""
        return len(self._down)

    def send(self, device: int, message: bytes, caller: Caller, timeout_s: float) -> None:
        """See :class:`~simulator.fleet.engine.ports.HttpEngine`."""
        if device in self._down:
            # Not from within: the caller expects its answer later.
            self._clock.call_at(
                self._clock.time(), lambda: caller.failed(OutcomeClass.TRANSPORT, _DOWN, None, self._clock.time())
            )
            return
        relay = _Relay(self._under_way.setdefault(device, set()), caller)
        self._engine.send(device, message, relay, timeout_s)

    def lose(self, device: int) -> None:
        """The connection goes in this instant: what is under way may have arrived, and no answer comes."""
        if device in self._down:
            return
        self._down.add(device)
        self._engine.cut(device)
        now_s = self._clock.time()
        for relay in list(self._under_way.pop(device, ())):
            relay.lose(now_s)

    def restore(self, device: int) -> None:
        """The device can connect again."""
        self._down.discard(device)

    def cut(self, device: int) -> None:
        """See :class:`~simulator.fleet.engine.ports.HttpEngine`."""
        self._under_way.pop(device, None)
        self._engine.cut(device)

    async def close(self) -> None:
        """See :class:`~simulator.fleet.engine.ports.HttpEngine`."""
        await self._engine.close()


class _Relay:
    """Between a caller and the engine, as long as the link may be lost."""

    __slots__ = ("_caller", "_place")

    def __init__(self, place: set[_Relay], caller: Caller) -> None:
        self._place = place
        self._caller: Caller | None = caller
        place.add(self)

    def answered(
        self, status: int, headers: list[tuple[bytes, bytes]], body: bytes, sent_s: float, now_s: float
    ) -> None:
        """See :class:`~simulator.fleet.engine.ports.Caller`."""
        caller = self._end()
        if caller is not None:
            caller.answered(status, headers, body, sent_s, now_s)

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """See :class:`~simulator.fleet.engine.ports.Caller`."""
        caller = self._end()
        if caller is not None:
            caller.failed(outcome, reason, sent_s, now_s)

    def lose(self, now_s: float) -> None:
        """The link is lost: nobody knows whether the request arrived, so it counts as sent."""
        caller = self._end()
        if caller is not None:
            caller.failed(OutcomeClass.TRANSPORT, _DOWN, now_s, now_s)

    def _end(self) -> Caller | None:
        self._place.discard(self)
        caller, self._caller = self._caller, None
        return caller
