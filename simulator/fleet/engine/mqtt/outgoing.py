"""The publishes of one session that are on their way: packet ids, the window, and the queue before it. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from simulator.fleet.engine.mqtt import packets
from simulator.fleet.engine.mqtt.ports import Publisher
from simulator.fleet.engine.wheel import NEVER
from simulator.fleet.outcomes import OutcomeClass

# Who published (None once it was given up), when it was sent, when it is given up.
_Flying = tuple[Publisher | None, float, float]
# Topic, payload, retain, who publishes, when it is given up.
_Waiting = tuple[str, bytes, bool, Publisher, float]

_IDS: Final = 65_535


@dataclass(frozen=True, slots=True)
class Failed:
    """A message that was not acknowledged, and its publisher."""

    publisher: Publisher
    outcome: OutcomeClass
    reason: str
    sent_s: float | None

    def notify(self, now_s: float) -> None:
        """Report to the publisher that its message was not acknowledged, and why."""
        self.publisher.failed(self.outcome, self.reason, self.sent_s, now_s)


class Outgoing:
    """One connection's publishes with QoS 1.

    Args:
        write: to the socket.
        window: so many may be on their way: the broker's receive maximum, or our own bound.
    """

    __slots__ = ("_flying", "_last_id", "_waiting", "_window", "_write", "held_up")

    def __init__(self, write: Callable[[bytes], object], window: int) -> None:
        self._write = write
        self._window = window
        self._flying: dict[int, _Flying] = {}
        self._waiting: deque[_Waiting] | None = None
        self._last_id = packets.SUBSCRIBE_ID
        self.held_up = False
        """The socket is full: whatever comes waits."""

    def publish(
        self, topic: str, payload: bytes, publisher: Publisher, now_s: float, give_up_s: float, *, retain: bool
    ) -> None:
        """Send, or let it wait its turn."""
        if self._waiting or self.held_up or len(self._flying) >= self._window:
            if self._waiting is None:
                self._waiting = deque()
            self._waiting.append((topic, payload, retain, publisher, give_up_s))
            return
        self._write(self._publication(topic, payload, retain=retain))
        self._flying[self._last_id] = (publisher, now_s, give_up_s)

    def _publication(self, topic: str, payload: bytes, *, retain: bool) -> bytes:
        """A PUBLISH with QoS 1 under the next free packet id."""
        self._last_id = self._free_id()
        return packets.publish(topic, payload, self._last_id, retain=retain)

    def _free_id(self) -> int:
        packet_id = self._last_id % _IDS + 1
        while packet_id in self._flying:
            packet_id = packet_id % _IDS + 1
        return packet_id

    def settle(self, packet_id: int, code: int, now_s: float) -> None:
        """PUBACK came; one that nobody waits for is passed over."""
        flown = self._flying.pop(packet_id, None)
        if flown is not None and flown[0] is not None:
            flown[0].acknowledged(code, flown[1], now_s)

    @property
    def waits(self) -> bool:
        """Something waits its turn."""
        return bool(self._waiting)

    def send_waiting(self, now_s: float) -> None:
        """Send what has its turn now."""
        waiting = self._waiting
        while waiting and not self.held_up and len(self._flying) < self._window:
            topic, payload, retain, publisher, give_up_s = waiting.popleft()
            self._write(self._publication(topic, payload, retain=retain))
            self._flying[self._last_id] = (publisher, now_s, give_up_s)

    def next_s(self) -> float:
        """When the next message is to be given up; infinity while nothing is on its way."""
        flying_s = min((each[2] for each in self._flying.values()), default=NEVER)
        return min(flying_s, min((each[4] for each in self._waiting or ()), default=NEVER))

    def late(self, now_s: float) -> list[Failed]:
        """What is given up now. A packet id stays taken until its PUBACK comes, or the connection ends."""
        failed = []
        for packet_id, (publisher, sent_s, give_up_s) in self._flying.items():
            if give_up_s <= now_s and publisher is not None:
                reason = "the broker did not acknowledge it in time"
                failed.append(Failed(publisher, OutcomeClass.TIMEOUT, reason, sent_s))
                self._flying[packet_id] = (None, sent_s, NEVER)
        if self._waiting:
            reason = "it waited for earlier messages all the time"
            unsent = [each for each in self._waiting if each[4] <= now_s]
            failed += [Failed(each[3], OutcomeClass.TIMEOUT, reason, None) for each in unsent]
            self._waiting = deque(each for each in self._waiting if each[4] > now_s)
        return failed

    def all(self, reason: str) -> list[Failed]:
        """Everything that is on its way, since the connection is over."""
        failed = [
            Failed(publisher, OutcomeClass.TRANSPORT, reason, sent_s)
            for publisher, sent_s, _ in self._flying.values()
            if publisher is not None
        ]
        return failed + [Failed(each[3], OutcomeClass.TRANSPORT, reason, None) for each in self._waiting or ()]
