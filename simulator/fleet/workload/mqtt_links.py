"""The devices' links over MQTT: an engine in front of the engine, where sessions are lost, slow, or somebody else's.

A request over HTTP meets a fault of the network by itself; over MQTT a device's connection does, and stays with it:

- what gets lost, a portal answers or a broker does not take any more **ends the connection** at the device's next word,
  and every further attempt to connect ends the same way, until the fault is over;
- what is slow comes later, both ways, in its order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from agent.errors import LockedOut, Offline
from agent.wire.secret import Secret
from simulator.fleet.engine.mqtt.ports import (
    Arrival,
    Established,
    MqttEngine,
    Opening,
    Publisher,
    SessionListener,
)
from simulator.fleet.engine.wheel import Clock, Wheel
from simulator.fleet.faults import FREE, ActiveFaults, Passage
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.workload.link_state import DOWN, LinkState

_WRONG: Final = Secret("dat_not_the_one")
_CONNECT_BYTES: Final = 400
"""CONNECT with a will and SUBSCRIBE, about."""
_ROUND_TRIPS: Final = 2
"""Of a connection before the last one: TCP, then CONNECT; SUBSCRIBE is the last."""
_ACKNOWLEDGEMENT_BYTES: Final = 4
_TIMED_OUT: Final = "no answer within {:g} s"
_NOT_TAKEN: Final = "the broker does not accept this device's token: Not authorized (0x87)"
_DEAD: Final = "the connection died of what the link lost"
_OTHER: Final = "somebody else answers in the broker's place: HTTP/1.1 302"


class MqttLinks:
    """An :class:`~simulator.fleet.engine.mqtt.ports.MqttEngine` whose devices can lose their connections.

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
        self.engine = engine
        self.connect_timeout_s = connect_timeout_s
        self.state = LinkState(clock, seed)
        """Which devices have a link, and what faults do to it."""
        self._clock = clock
        self._wheel = wheel
        self._lines: dict[int, _Line] = {}
        self._recovering: set[int] = set()

    def has_link_fault(self, device: int) -> bool:
        """Whether what this device does not get out is the link's doing, and not the generator's.

        See :meth:`LinkState.has_link_fault`; also until a session stands again that the link's doing has ended.
        """
        return device in self._recovering or self.state.has_link_fault(device)

    def lose(self, device: int) -> None:
        """Cut the connection in this instant: what is under way may have arrived, and no answer comes."""
        line = self._lines.get(device)
        if self.state.lose(device) and line is not None:
            self.engine.cut(device)
            line.end(Offline("closed", DOWN), OutcomeClass.TRANSPORT)

    def apply_link_faults(self, faults: ActiveFaults | None) -> None:
        """Apply these faults to everything that is sent from now on."""
        self.state.apply_link_faults(faults)

    def open(self, device: int, opening: Opening, listener: SessionListener) -> None:
        """Connect, and subscribe. A session that this device still has is cut first. See :meth:`MqttEngine.open`."""
        if device in self._lines:
            self.cut(device)
        line = self._lines[device] = _Line(self, device, listener)
        if self.state.is_down(device):
            self.later(0.0, partial(line.end, Offline("unreachable", DOWN), OutcomeClass.TRANSPORT, sent=False))
            return
        passage = FREE if self.state.is_plain else self.state.passage(device, _CONNECT_BYTES)
        if passage == FREE:
            self.engine.open(device, opening, line)
        else:
            line.connect(opening, passage)

    def publish(
        self, device: int, topic: str, payload: bytes, publisher: Publisher, timeout_s: float, *, retain: bool = False
    ) -> None:
        """Publish with QoS 1; it waits its turn when the broker's receive maximum is reached."""
        line = self._lines.get(device)
        if line is None:
            self.engine.publish(device, topic, payload, publisher, timeout_s, retain=retain)
            return
        message = _Message(line, publisher)
        go = partial(self.engine.publish, device, topic, payload, message, timeout_s, retain=retain)
        line.say(len(topic) + len(payload), go, message)

    def acknowledge(self, device: int, arrival: Arrival) -> None:
        """The message is safe: PUBACK. Void once its connection has ended, since the broker sends it again then."""
        line = self._lines.get(device)
        if line is not None:
            line.say(_ACKNOWLEDGEMENT_BYTES, partial(self.engine.acknowledge, device, arrival), None)

    def cut(self, device: int) -> None:
        """The device's power goes: the connection is reset, the broker publishes the will. Nobody is called then."""
        self._forget(device)
        self.engine.cut(device)

    async def close(self) -> None:
        """Cut every session. See :meth:`MqttEngine.close`."""
        for device in list(self._lines):
            self._forget(device)
        await self.engine.close()

    # --- for the lines ------------------------------------------------------------------------------------------------

    def now(self) -> float:
        """This instant on the engine's clock."""
        return self._clock.time()

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call it after a while, and never from within."""
        self._clock.call_at(self.now(), call) if delay_s <= 0 else self._wheel.at(self.now() + delay_s, call)

    def stands(self, device: int) -> None:
        """Whatever the link did to this device is over and done with."""
        self._recovering.discard(device)

    def over(self, line: _Line, *, is_our_doing: bool) -> None:
        """This line has ended, by the link or by the broker."""
        if is_our_doing:
            self._recovering.add(line.device)
        if self._lines.get(line.device) is line:
            del self._lines[line.device]

    def _forget(self, device: int) -> None:
        line = self._lines.pop(device, None)
        if line is not None:
            line.forget()


class _Line:
    """One connection of one device, as far as the link lets it: the engine's listener in the device's place."""

    __slots__ = ("_began_s", "_in", "_is_over", "_links", "_listener", "_messages", "_out", "device")

    def __init__(self, links: MqttLinks, device: int, listener: SessionListener) -> None:
        self.device = device
        self._links = links
        self._listener = listener
        self._messages: dict[_Message, None] = {}
        self._began_s = links.now()
        self._is_over = False
        self._out: _Delays | None = None
        self._in: _Delays | None = None

    # --- the device's words -------------------------------------------------------------------------------------------

    def connect(self, opening: Opening, passage: Passage) -> None:
        """Connect through a link that has something wrong with it."""
        links = self._links
        if passage.is_lost:
            timeout_s = links.connect_timeout_s
            self._end_later(timeout_s, Offline("unreachable", _TIMED_OUT.format(timeout_s)), OutcomeClass.TIMEOUT)
        elif passage.portal:
            delay_s = passage.out_s + passage.back_s
            self._end_later(delay_s, Offline("closed", _OTHER), OutcomeClass.UNEXPECTED)
        elif passage.wrong_key:
            listener = _WrongTokenListener(self)
            links.engine.open(self.device, replace(opening, password=_WRONG), listener)
        else:
            delay_s = passage.out_s + _ROUND_TRIPS * (passage.out_s + passage.back_s)
            links.later(delay_s, lambda: None if self._is_over else links.engine.open(self.device, opening, self))

    def say(self, size_bytes: int, go: Callable[[], None], message: _Message | None) -> None:
        """Send something, as far as the link lets it through.

        Args:
            size_bytes: of it.
            go: hands it to the engine.
            message: who waits for what comes of it; None for nobody.
        """
        if self._is_over:
            return  # its end is on its way
        if message is not None:
            self._messages[message] = None
        passage = self._passage(size_bytes)
        if passage.is_lost or passage.portal or passage.wrong_key:
            self._break_off(passage, message)
            return
        if message is not None and passage != FREE:
            message.sent_s = self._links.now()
        if self._out is None and passage.out_s > 0:
            self._out = _Delays(self._links)
        if self._out is not None:
            self._out.add(passage.out_s, lambda: None if self._is_over else go())
        else:
            go()

    # --- what comes (SessionListener) ---------------------------------------------------------------------------------

    def connected(self, standing: Established, now_s: float) -> None:
        """The broker took the device, and the subscriptions stand."""
        del now_s
        accepted = replace(standing, began_s=self._began_s)
        self._links.stands(self.device)
        self._receive(_CONNECT_BYTES, lambda: self._listener.connected(accepted, self._links.now()))

    def arrived(self, arrival: Arrival, now_s: float) -> None:
        """A message came. QoS 1: :meth:`MqttEngine.acknowledge` it once it is safe, or it comes again."""
        del now_s
        self._receive(len(arrival.payload), lambda: self._listener.arrived(arrival, self._links.now()))

    def lost(self, error: Offline, outcome: OutcomeClass, began_s: float | None, now_s: float) -> None:
        """Note that there is no connection any more, or that it was never made."""
        del began_s, now_s
        self.end(error, outcome, is_our_doing=False)

    def acknowledged(self, message: _Message, code: int, sent_s: float) -> None:
        """PUBACK came, for a message of this line."""
        at_s = sent_s if message.sent_s is None else message.sent_s
        self._receive(_ACKNOWLEDGEMENT_BYTES, lambda: message.succeed(code, at_s))

    def _passage(self, size_bytes: int) -> Passage:
        state = self._links.state
        return FREE if state.is_plain else state.passage(self.device, size_bytes)

    def _receive(self, size_bytes: int, deliver: Callable[[], None]) -> None:
        passage = self._passage(size_bytes)
        if self._is_over:
            return
        if passage.is_lost:
            self._break_off(passage, None)
            return
        if self._in is None and passage.back_s > 0:
            self._in = _Delays(self._links)
        if self._in is None:
            deliver()
        else:
            self._in.add(passage.back_s, lambda: None if self._is_over else deliver())

    # --- its end ------------------------------------------------------------------------------------------------------

    def settled(self, message: _Message) -> None:
        """Forget a message that has come to its end."""
        self._messages.pop(message, None)

    def end(self, error: Offline, outcome: OutcomeClass, *, sent: bool = True, is_our_doing: bool = True) -> None:
        """End it: the messages under way and the listener get the error, once."""
        if self._is_over:
            return
        self._is_over = True
        self._links.over(self, is_our_doing=is_our_doing)
        now_s = self._links.now()
        for message in list(self._messages):
            message.fail(OutcomeClass.TRANSPORT, str(error), message.begun_s)
        self._listener.lost(error, outcome, self._began_s if sent else None, now_s)

    def forget(self) -> None:
        """End it without an error to anybody."""
        self._is_over = True
        self._messages.clear()

    def refuse(self) -> None:
        """The token is not taken."""
        self._links.engine.cut(self.device)
        self.end(LockedOut("unauthorized", _NOT_TAKEN), OutcomeClass.REFUSED)

    def _break_off(self, passage: Passage, message: _Message | None) -> None:
        """End the connection at this message; messages under way end with it."""
        if message is not None and not passage.is_lost:
            message.begun_s = None  # it is not sent
        self._links.engine.cut(self.device)
        if passage.wrong_key:
            error: Offline = LockedOut("unauthorized", _NOT_TAKEN)
        elif passage.portal:
            error = Offline("closed", _OTHER)
        else:
            error = Offline("closed", _DEAD)
        self._end_later(0.0, error, OutcomeClass.TRANSPORT)

    def _end_later(self, delay_s: float, error: Offline, outcome: OutcomeClass, *, sent: bool = True) -> None:
        self._links.later(delay_s, partial(self.end, error, outcome, sent=sent))

    def now(self) -> float:
        """This instant on the engine's clock."""
        return self._links.now()


class _Message:
    """A message under way: the engine's publisher in the device's place."""

    __slots__ = ("_line", "_publisher", "begun_s", "sent_s")

    def __init__(self, line: _Line, publisher: Publisher) -> None:
        self._line = line
        self._publisher: Publisher | None = publisher
        self.begun_s: float | None = line.now()  # None once it is known that it never gets out
        self.sent_s: float | None = None  # where the link has it before the engine has

    def acknowledged(self, code: int, sent_s: float, now_s: float) -> None:
        """PUBACK came. See :class:`~simulator.fleet.engine.mqtt.ports.Publisher`."""
        del now_s
        self._line.acknowledged(self, code, sent_s)

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """No acknowledgement. See :class:`~simulator.fleet.engine.mqtt.ports.Publisher`."""
        del now_s
        self.fail(outcome, reason, sent_s if self.sent_s is None else self.sent_s)

    def succeed(self, code: int, sent_s: float) -> None:
        """Report to the device that the broker has the message."""
        publisher = self._take()
        if publisher is not None:
            publisher.acknowledged(code, sent_s, self._line.now())

    def fail(self, outcome: OutcomeClass, reason: str, sent_s: float | None) -> None:
        """Report to the device that the message failed, or that its fate is not known."""
        publisher = self._take()
        if publisher is not None:
            publisher.failed(outcome, reason, sent_s, self._line.now())

    def _take(self) -> Publisher | None:
        self._line.settled(self)
        publisher, self._publisher = self._publisher, None
        return publisher


class _WrongTokenListener:
    """A session with a token that is not valid. A broker that takes everybody takes it: the refusal is made here."""

    __slots__ = ("_line",)

    def __init__(self, line: _Line) -> None:
        self._line = line

    def connected(self, standing: Established, now_s: float) -> None:
        """The broker took the device, and the subscriptions stand."""
        del standing, now_s
        self._line.refuse()

    def arrived(self, arrival: Arrival, now_s: float) -> None:
        """A message came. QoS 1: :meth:`MqttEngine.acknowledge` it once it is safe, or it comes again.

        See :class:`~simulator.fleet.engine.mqtt.ports.SessionListener`: not meant for it, and not acknowledged.
        """

    def lost(self, error: Offline, outcome: OutcomeClass, began_s: float | None, now_s: float) -> None:
        """Note that there is no connection any more, or that it was never made."""
        self._line.lost(error, outcome, began_s, now_s)


class _Delays:
    """One direction of a slow link: everything comes later, and nothing overtakes."""

    __slots__ = ("_last_s", "_links", "_waiting")

    def __init__(self, links: MqttLinks) -> None:
        self._links = links
        self._last_s = 0.0
        self._waiting: deque[tuple[float, Callable[[], None]]] = deque()

    def add(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call it after a delay, but not before what was added earlier."""
        now_s = self._links.now()
        due_s = self._last_s = max(self._last_s, now_s + delay_s)
        if due_s <= now_s and not self._waiting:
            call()
            return
        self._waiting.append((due_s, call))
        if len(self._waiting) == 1:
            self._links.later(due_s - now_s, self._come)

    def _come(self) -> None:
        now_s = self._links.now()
        while self._waiting and self._waiting[0][0] <= now_s:
            self._waiting.popleft()[1]()
        if self._waiting:
            self._links.later(self._waiting[0][0] - now_s, self._come)
