"""The devices' links over MQTT: an engine in front of the engine, where sessions are lost, slow, or somebody else's.

A request over HTTP meets a fault of the network by itself; over MQTT a device's connection does: what gets lost, a
portal answers or a wrong token would not be taken for **ends the connection** at the device's next message, and every
further attempt to connect ends the same way until the fault is over. What is slow comes later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from agent.errors import LockedOut, Offline
from simulator.fleet.device.links import DOWN, LinkState
from simulator.fleet.engine.mqtt import Arrival, Established, Failure, MqttEngine, Opening, Publisher, SessionListener
from simulator.fleet.engine.wheel import Clock, Wheel
from simulator.fleet.faults import Passage
from simulator.fleet.outcomes import OutcomeClass

_CONNECT_BYTES: Final = 400
"""CONNECT with a will and SUBSCRIBE, about."""
_ROUND_TRIPS: Final = 3
"""Of a connection: TCP, CONNECT, SUBSCRIBE."""
_NOT_TAKEN: Final = "the broker does not accept this device's token: Not authorized (0x87)"
_OTHER: Final = "somebody else answers in the broker's place: HTTP/1.1 302"


class MqttLinks:
    """An :class:`~simulator.fleet.engine.mqtt.MqttEngine` whose devices can lose their connections.

    Args:
        engine: carries what gets through.
        clock: the engine's.
        wheel: for what is late.
        connect_timeout_s: how long a device waits for a connection.
        seed: of the run, for faults.
    """

    def __init__(
        self, engine: MqttEngine, clock: Clock, wheel: Wheel, *, connect_timeout_s: float = 10.0, seed: int = 0
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._wheel = wheel
        self._connect_timeout_s = connect_timeout_s
        self._listeners: dict[int, SessionListener] = {}  # of sessions, and of attempts
        self._connections: Counter[int] = Counter()  # of each device: what is late for an earlier one is void
        self._recovering: set[int] = set()
        self.state = LinkState(clock, seed)
        """Which devices have a link, and what faults do to it."""

    def has_link_fault(self, device: int) -> bool:
        """Whether what this device does not get out is the link's doing, also until it has a session again."""
        return device in self._recovering or self.state.has_link_fault(device)

    def lose(self, device: int) -> None:
        """Cut the connection in this instant: what is under way may have arrived, and no answer comes."""
        if self.state.lose(device) and device in self._listeners:
            self._break(device, (Offline("closed", DOWN), OutcomeClass.TRANSPORT))

    def open(self, device: int, opening: Opening, listener: SessionListener) -> None:
        """Connect, and subscribe. A session that this device still has is cut first."""
        if device in self._listeners:
            self.cut(device)
        self._connections[device] += 1
        self._listeners[device] = listener
        now_s = self._clock.time()
        passage = self.state.passage(device, _CONNECT_BYTES)
        failure = self._failure(device, passage)
        if failure is not None:
            delay_s = self._connect_timeout_s if passage.is_lost else passage.out_s
            began_s = None if self.state.is_down(device) else now_s
            self._later(device, delay_s, partial(self._end, device, failure, began_s))
            return
        late_s = _ROUND_TRIPS * (passage.out_s + passage.back_s)
        go = partial(self._engine.open, device, opening, _Told(self, device, now_s, listener))
        self._later(device, late_s, go) if late_s else go()

    def publish(
        self, device: int, topic: str, payload: bytes, publisher: Publisher, timeout_s: float, *, retain: bool = False
    ) -> None:
        """Publish with QoS 1, within ``timeout_s``."""
        passage = self.state.passage(device, len(topic) + len(payload))
        failure = self._failure(device, passage) if device in self._listeners else None
        go = partial(self._engine.publish, device, topic, payload, publisher, timeout_s, retain=retain)
        if failure is not None:
            self._later(device, 0.0, partial(self._break, device, failure))
        elif delay_s := passage.out_s + passage.back_s:
            self._later(device, delay_s, go)
        else:
            go()

    def acknowledge(self, device: int, arrival: Arrival) -> None:
        """The message is safe: PUBACK."""
        self._engine.acknowledge(device, arrival)

    def cut(self, device: int) -> None:
        """The device's power goes. Nobody is called then."""
        self._connections[device] += 1
        self._listeners.pop(device, None)
        self._engine.cut(device)

    async def close(self) -> None:
        """Cut every session."""
        for device in list(self._listeners):
            self.cut(device)
        await self._engine.close()

    def stood(self, device: int) -> None:
        """Whatever the link did to this device is over and done with."""
        self._recovering.discard(device)

    def ended(self, device: int) -> None:
        """A session ended by itself."""
        self._listeners.pop(device, None)

    def _failure(self, device: int, passage: Passage) -> Failure | None:
        """Why there can be no connection over such a link; None where there can."""
        if self.state.is_down(device):
            return Offline("unreachable", DOWN), OutcomeClass.TRANSPORT
        if passage.is_lost:
            return Offline("unreachable", "the link loses what is sent: no answer came"), OutcomeClass.TIMEOUT
        if passage.portal:
            return Offline("closed", _OTHER), OutcomeClass.UNEXPECTED
        return (LockedOut("unauthorized", _NOT_TAKEN), OutcomeClass.REFUSED) if passage.wrong_key else None

    def _break(self, device: int, failure: Failure) -> None:
        self._engine.cut(device)
        self._end(device, failure, self._clock.time())

    def _end(self, device: int, failure: Failure, began_s: float | None) -> None:
        listener = self._listeners.pop(device, None)
        self._connections[device] += 1
        self._recovering.add(device)
        if listener is not None:
            listener.lost(*failure, began_s, self._clock.time())

    def _later(self, device: int, delay_s: float, call: Callable[[], None]) -> None:
        """Call it after a while, and never from within, unless the connection is another one by then."""
        number = self._connections[device]

        def come() -> None:
            if self._connections[device] == number:
                call()

        self._wheel.at(self._clock.time() + delay_s, come)


class _Told:
    """Listens to a session in the device's place: when it stands the link has recovered."""

    __slots__ = ("_began_s", "_device", "_links", "_listener")

    def __init__(self, links: MqttLinks, device: int, began_s: float, listener: SessionListener) -> None:
        self._links = links
        self._device = device
        self._began_s = began_s
        self._listener = listener

    def connected(self, standing: Established, now_s: float) -> None:
        """The broker took the device, and the subscriptions stand."""
        self._links.stood(self._device)
        self._listener.connected(Established(standing.kept, self._began_s, standing.max_packet_bytes), now_s)

    def arrived(self, arrival: Arrival, now_s: float) -> None:
        """A message came."""
        self._listener.arrived(arrival, now_s)

    def lost(self, error: Offline, outcome: OutcomeClass, began_s: float | None, now_s: float) -> None:
        """There is no connection any more, or none was made."""
        self._links.ended(self._device)
        self._listener.lost(error, outcome, self._began_s if began_s is not None else None, now_s)
