"""The devices' links: an engine in front of the engine, where connections are lost, slow, or somebody else's.

Losing the connection is not losing the power: the device lives on, what it has under way ends without an answer, and
what is new does not get through. Only runs that take links away, or do something to them, have this engine in between.

A request over HTTP meets a fault of the network by itself; over MQTT a device's connection does: what gets lost, a
portal answers or a wrong token would not be taken for **ends the connection** at the device's next message, and every
further attempt to connect ends the same way until the fault is over. What is slow comes later.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Final

from agent.errors import LockedOut, Offline
from simulator.fleet.engine.mqtt import Arrival, Established, Failure, MqttEngine, Opening, Publisher, SessionListener
from simulator.fleet.engine.ports import Caller, Headers, HttpEngine
from simulator.fleet.engine.wheel import Clock, Wheel
from simulator.fleet.faults import FREE, ActiveFaults, Passage
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.signals import DeviceRandom

_DOWN: Final = "the link is down"
_SECRET: Final = re.compile(rb"(?im)^(x-secret-key|authorization):[^\r\n]*")
_WRONG: Final = rb"\1: msk_not_the_one"
_PORTAL: Final = (
    (b"location", b"http://portal.example/sign-in"),
    (b"content-type", b"text/html"),
    (b"content-length", b"0"),
)
_CONNECT_BYTES: Final = 400
"""CONNECT with a will and SUBSCRIBE, about."""
_ROUND_TRIPS: Final = 3
"""Of a connection over MQTT: TCP, CONNECT, SUBSCRIBE."""
_NOT_TAKEN: Final = "the broker does not accept this device's token: Not authorized (0x87)"
_OTHER: Final = "somebody else answers in the broker's place: HTTP/1.1 302"


class LinkFaults:
    """Which devices have a link, and what faults do to it.

    Args:
        clock: the engine's.
        wheel: for what is late.
        seed: of the run, for faults.

    Attributes:
        faults: these do something to everything that is sent; None for none.
    """

    def __init__(self, clock: Clock, wheel: Wheel, seed: int) -> None:
        self.faults: ActiveFaults | None = None
        self._clock = clock
        self._wheel = wheel
        self._seed = seed
        self._causes: Counter[int] = Counter()  # of being down, by device
        self._numbers: Counter[int] = Counter()

    @property
    def down(self) -> int:
        """How many devices have no link."""
        return len(self._causes)

    def restore(self, device: int) -> None:
        """One cause of being down is over; the device can connect again when it was the last."""
        self._causes[device] -= 1
        if self._causes[device] <= 0:
            del self._causes[device]

    def has_link_fault(self, device: int) -> bool:
        """Whether what this device does not get out is the link's doing, and not the generator's."""
        if device in self._causes:
            return True
        random = DeviceRandom.at(self._seed, device)
        return self.faults is not None and self.faults.has_link_fault(random, self._clock.time())

    def _take_down(self, device: int) -> bool:
        """One more cause of being down; whether it is the first."""
        self._causes[device] += 1
        return self._causes[device] == 1

    def _passage(self, device: int, size_bytes: int) -> Passage:
        """How the device's next message of this size gets through."""
        if self.faults is None:
            return FREE
        self._numbers[device] += 1
        random = DeviceRandom.at(self._seed, device)
        return self.faults.passage(random, self._numbers[device], self._clock.time(), size_bytes)


# --- HTTP -------------------------------------------------------------------------------------------------------------


class Links(LinkFaults):
    """An :class:`~simulator.fleet.engine.ports.HttpEngine` whose devices can lose their connections.

    Args:
        engine: carries what gets through.
        clock: the engine's.
        wheel: for what is late.
        seed: of the run, for faults.
    """

    def __init__(self, engine: HttpEngine, clock: Clock, wheel: Wheel, seed: int = 0) -> None:
        super().__init__(clock, wheel, seed)
        self._engine = engine
        self._under_way: defaultdict[int, set[_Relay]] = defaultdict(set)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self._engine.connections

    def send(self, device: int, message: bytes, caller: Caller, timeout_s: float) -> None:
        """Send one whole request, as far as the device's link lets it."""
        now_s = self._clock.time()
        if device in self._causes:
            # Not from within: the caller expects its answer later.
            self._clock.call_at(now_s, lambda: caller.failed(OutcomeClass.TRANSPORT, _DOWN, None, self._clock.time()))
            return
        passage = self._passage(device, len(message))
        relay = _Relay(self, self._under_way[device], caller, passage.back_s)
        if passage == FREE:
            self._engine.send(device, message, relay, timeout_s)
            return
        relay.sent_s = now_s
        if passage.wrong_key:
            message = _SECRET.sub(_WRONG, message, count=1)
        if passage.is_lost:
            reason = f"no answer within {timeout_s:g} s"
            self.later(timeout_s, lambda: relay.failed(OutcomeClass.TIMEOUT, reason, now_s, now_s + timeout_s))
        elif passage.portal:
            self.later(passage.out_s, lambda: relay.answered(302, _PORTAL, b"", now_s, now_s + passage.out_s))
        elif passage.out_s > 0:
            self.later(passage.out_s, lambda: self._go(device, message, relay, timeout_s))
        else:
            self._engine.send(device, message, relay, timeout_s)

    def lose(self, device: int) -> None:
        """The connection goes in this instant: what is under way may have arrived, and no answer comes."""
        if not self._take_down(device):
            return
        self._engine.cut(device)
        now_s = self._clock.time()
        for relay in list(self._under_way.pop(device, ())):
            relay.failed(OutcomeClass.TRANSPORT, _DOWN, now_s, now_s)  # it counts as sent

    def cut(self, device: int) -> None:
        """The device's power goes: its requests are forgotten, its callers are not called, its own socket is reset."""
        for relay in list(self._under_way.pop(device, ())):
            relay.end()
        self._engine.cut(device)

    async def close(self) -> None:
        """Close every connection; what was lost on the way ends now, too."""
        await self._engine.close()
        now_s = self._clock.time()
        for relay in [relay for relays in self._under_way.values() for relay in relays]:
            relay.failed(OutcomeClass.TIMEOUT, "the engine was closed", relay.sent_s, now_s)

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call it after a while."""
        self._wheel.at(self._clock.time() + delay_s, call)

    def _go(self, device: int, message: bytes, relay: _Relay, timeout_s: float) -> None:
        if relay.is_wanted:
            self._engine.send(device, message, relay, timeout_s)


class _Relay:
    """Between a caller and the engine, as long as the link may be lost."""

    __slots__ = ("_back_s", "_links", "_relays", "caller", "sent_s")

    def __init__(self, links: Links, relays: set[_Relay], caller: Caller, back_s: float) -> None:
        self._links = links
        self._relays = relays
        self._back_s = back_s
        self.caller = caller
        self.sent_s: float | None = None
        relays.add(self)

    @property
    def is_wanted(self) -> bool:
        """Until it is over, or its caller does not want the answer any more."""
        return self in self._relays and self.caller.is_wanted

    def answered(self, status: int, headers: Headers, body: bytes, sent_s: float, now_s: float) -> None:
        """The answer came, and is as long on its way back as the link says."""
        back_s, self._back_s = self._back_s, 0.0
        if back_s > 0 and self.is_wanted:
            late = partial(self.answered, status, headers, body, sent_s, now_s + back_s)
            self._links.later(back_s, late)
        elif self.end():
            self.caller.answered(status, headers, body, sent_s if self.sent_s is None else self.sent_s, now_s)

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """No answer comes."""
        if self.end():
            self.caller.failed(outcome, reason, sent_s, now_s)

    def end(self) -> bool:
        """It is over; whether its caller is still to be told."""
        is_wanted = self.is_wanted
        self._relays.discard(self)
        return is_wanted


# --- MQTT -------------------------------------------------------------------------------------------------------------


class MqttLinks(LinkFaults):
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
        super().__init__(clock, wheel, seed)
        self._engine = engine
        self._connect_timeout_s = connect_timeout_s
        self._listeners: dict[int, SessionListener] = {}  # of sessions, and of attempts
        self._connections: Counter[int] = Counter()  # of each device: what is late for an earlier one is void
        self.recovering: set[int] = set()
        """Devices whose session ended by their link, until they have another."""

    def has_link_fault(self, device: int) -> bool:
        """Whether what this device does not get out is the link's doing, also until it has a session again."""
        return device in self.recovering or super().has_link_fault(device)

    def lose(self, device: int) -> None:
        """Cut the connection in this instant: what is under way may have arrived, and no answer comes."""
        if self._take_down(device) and device in self._listeners:
            self._break(device, (Offline("closed", _DOWN), OutcomeClass.TRANSPORT))

    def open(self, device: int, opening: Opening, listener: SessionListener) -> None:
        """Connect, and subscribe. A session that this device still has is cut first."""
        if device in self._listeners:
            self.cut(device)
        self._connections[device] += 1
        self._listeners[device] = listener
        now_s = self._clock.time()
        passage = self._passage(device, _CONNECT_BYTES)
        failure = self._failure(device, passage)
        if failure is not None:
            delay_s = self._connect_timeout_s if passage.is_lost else passage.out_s
            began_s = None if device in self._causes else now_s
            self._later(device, delay_s, partial(self._end, device, failure, began_s))
            return
        late_s = _ROUND_TRIPS * (passage.out_s + passage.back_s)
        go = partial(self._engine.open, device, opening, _Listener(self, device, now_s, listener))
        self._later(device, late_s, go) if late_s else go()

    def publish(
        self, device: int, topic: str, payload: bytes, publisher: Publisher, timeout_s: float, *, retain: bool = False
    ) -> None:
        """Publish with QoS 1, within ``timeout_s``."""
        passage = self._passage(device, len(topic) + len(payload))
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
        self.ended(device)
        self._connections[device] += 1
        self._engine.cut(device)

    async def close(self) -> None:
        """Cut every session."""
        for device in list(self._listeners):
            self.cut(device)
        await self._engine.close()

    def ended(self, device: int) -> None:
        """A session ended by itself."""
        self._listeners.pop(device, None)

    def _failure(self, device: int, passage: Passage) -> Failure | None:
        """Why there can be no connection over such a link; None where there can."""
        if device in self._causes:
            return Offline("unreachable", _DOWN), OutcomeClass.TRANSPORT
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
        self.recovering.add(device)
        if listener is not None:
            listener.lost(*failure, began_s, self._clock.time())

    def _later(self, device: int, delay_s: float, call: Callable[[], None]) -> None:
        """Call it after a while, and never from within, unless the connection is another one by then."""
        number = self._connections[device]

        def come() -> None:
            if self._connections[device] == number:
                call()

        self._wheel.at(self._clock.time() + delay_s, come)


class _Listener:
    """Listens to a session in the device's place: once it is up, the link has recovered."""

    __slots__ = ("_began_s", "_device", "_links", "_listener")

    def __init__(self, links: MqttLinks, device: int, began_s: float, listener: SessionListener) -> None:
        self._links = links
        self._device = device
        self._began_s = began_s
        self._listener = listener

    def connected(self, established: Established, now_s: float) -> None:
        """The broker took the device, and the subscriptions are acknowledged."""
        self._links.recovering.discard(self._device)
        self._listener.connected(Established(established.kept, self._began_s, established.max_packet_bytes), now_s)

    def arrived(self, arrival: Arrival, now_s: float) -> None:
        """A message came."""
        self._listener.arrived(arrival, now_s)

    def lost(self, error: Offline, outcome: OutcomeClass, began_s: float | None, now_s: float) -> None:
        """There is no connection any more, or none was made."""
        self._links.ended(self._device)
        self._listener.lost(error, outcome, self._began_s if began_s is not None else None, now_s)
