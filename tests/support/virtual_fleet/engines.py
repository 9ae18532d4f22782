"""Both engines without sockets: what is sent reaches the service of the tests, and its answer comes a moment later."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agent.errors import Offline
from agent.wire import topics
from simulator.fleet.engine.http_answers import Caller
from simulator.fleet.engine.mqtt import NOBODY_LISTENS, OnAcknowledged, Opening, SessionListener
from simulator.fleet.outcomes import OutcomeClass
from tests.support.virtual_fleet.service import CUT, CUT_LATE, NOBODY, UNREACHABLE, Service
from tests.unit.simulator.fleet.device.fleet_fakes import read_request

TAKES_S = 0.01
LIMITED = 429


@dataclass
class Engines:
    """Makes engines that reach the service of the tests."""

    service: Service
    sessions: list[VirtualMqtt] = field(default_factory=list)

    def http(self, _origin: Any, _timers: Any = None, **_options: Any) -> VirtualHttp:
        """In the place of the class of the HTTP engine."""
        return VirtualHttp(self)

    def mqtt(self, _broker: Any, _timers: Any = None, **_options: Any) -> VirtualMqtt:
        """In the place of the class of the MQTT engine."""
        self.sessions.append(VirtualMqtt(self.service))
        return self.sessions[-1]

    def deliver(self, device_id: str, record: dict[str, Any]) -> None:
        for engine in self.sessions:
            engine.deliver(device_id, topics.command(device_id, record["id"]), json.dumps(record).encode())


class VirtualHttp:
    """See :class:`~simulator.fleet.engine.http.Http1Engine`."""

    connections = 1

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._under_way: dict[object, tuple[Caller, float]] = {}  # with the time of sending
        self._loop = asyncio.get_running_loop()

    def send(self, device: int, message: bytes, caller: Caller, timeout_s: float) -> None:
        request = read_request(device, message, self._loop.time(), timeout_s)
        service, sending = self._engines.service, object()
        self._under_way[sending] = caller, self._loop.time()
        self._loop.call_later(timeout_s, self._fail, sending, OutcomeClass.TIMEOUT, f"no answer in {timeout_s:g} s")

        def reply(status: int, body: Any) -> None:
            if (status, body) == UNREACHABLE:
                self._loop.call_later(TAKES_S, self._fail, sending, OutcomeClass.TRANSPORT, "nobody listens", False)
                return
            text = b"" if body is None else json.dumps(body).encode()
            self._loop.call_later(TAKES_S, self._answered, sending, status, text)

        wait_s = service.take(request, reply)
        if wait_s:
            self._loop.call_later(wait_s, service.release, request.target.split("/")[2], reply)

    def cut(self, device: int) -> None:
        """Whoever loses power does not want an answer any more."""

    async def close(self) -> None:
        for sending in list(self._under_way):
            self._fail(sending, OutcomeClass.TRANSPORT, "the engine was closed")

    def _answered(self, sending: object, status: int, body: bytes) -> None:
        if found := self._end(sending):
            headers = [(b"Date", self._engines.service.date().encode())]
            if status == LIMITED:
                headers.append((b"Retry-After", b"30"))
            if body:
                headers.append((b"Content-Type", b"application/json"))
            caller, sent_s = found
            caller.answered(status, headers, body, sent_s, self._loop.time())

    def _fail(self, sending: object, outcome: OutcomeClass, reason: str, has_left: bool = True) -> None:
        if found := self._end(sending):
            caller, sent_s = found
            caller.failed(outcome, reason, sent_s if has_left else None, self._loop.time())

    def _end(self, sending: object) -> tuple[Caller, float] | None:
        """Who sent it, and when; None where nobody waits for it any more."""
        found = self._under_way.pop(sending, None)
        return found if found is not None and found[0].is_wanted else None


class VirtualMqtt:
    """See :class:`~simulator.fleet.engine.mqtt.MqttSessions`; the broker keeps what a device did not take."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.kept: dict[str, dict[str, bytes]] = defaultdict(dict)
        self._sessions: dict[int, VirtualSession] = {}

    def open(self, device: int, opening: Opening, listener: SessionListener) -> VirtualSession:
        self.cut(device)
        session = self._sessions[device] = VirtualSession(self, device, opening.client_id, listener)
        session.later(TAKES_S, session.stand)
        return session

    def deliver(self, device_id: str, topic: str, payload: bytes) -> None:
        """A message for a device, of which it is to have one."""
        self.kept[device_id][topic] = payload
        for session in self._sessions.values():
            if session.device_id == device_id and session.is_up:
                session.later(TAKES_S, session.arrive, topic, payload)

    def cut(self, device: int) -> None:
        session = self._sessions.pop(device, None)
        if session is not None:
            session.is_over = True

    async def close(self) -> None:
        for device in list(self._sessions):
            self.cut(device)


@dataclass(eq=False)
class VirtualSession:
    """See :class:`~simulator.fleet.engine.mqtt.Session`."""

    broker: VirtualMqtt
    device: int
    device_id: str
    listener: SessionListener
    is_up: bool = False
    is_over: bool = False

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def publish(self, topic: str, payload: bytes, on_acknowledged: OnAcknowledged, *, retain: bool = False) -> None:
        if not self.is_up:
            return
        trouble, receipt = self.broker.service.message(self.device, topic, payload)
        if trouble in {CUT, CUT_LATE}:
            self.later(TAKES_S, self.lose)
            return
        now_s, code = self._loop.time(), NOBODY_LISTENS if trouble == NOBODY else 0
        self.later(TAKES_S, on_acknowledged, code, now_s, now_s + TAKES_S)
        if receipt is not None:
            self.later(2 * TAKES_S, self.arrive, topics.receipts(self.device_id), receipt)

    def stand(self) -> None:
        self.is_up = True
        self.listener.connected(self._loop.time())
        for topic, payload in self.broker.kept[self.device_id].items():
            self.later(TAKES_S, self.arrive, topic, payload)

    def lose(self) -> None:
        self.broker.cut(self.device)
        self.listener.lost(Offline("closed", "it broke"), OutcomeClass.TRANSPORT, self._loop.time())

    def arrive(self, topic: str, payload: bytes) -> None:
        self.listener.arrived(topic, payload, self._loop.time())
        self.broker.kept[self.device_id].pop(topic, None)

    def later(self, delay_s: float, call: Callable[..., object], *given: object) -> None:
        """Call it then, where the connection still stands."""
        self._loop.call_later(delay_s, lambda: None if self.is_over else call(*given))
