"""Both engines without sockets: what is sent reaches the service of the tests, and its answer comes a moment later."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agent.errors import Offline
from agent.wire import topics
from simulator.fleet.engine.http_answers import Caller
from simulator.fleet.engine.mqtt import NOBODY_LISTENS, Arrival, BrokerAddress, OnAcknowledged, Opening, SessionListener
from simulator.fleet.outcomes import OutcomeClass
from tests.support.virtual_fleet.service import CUT, CUT_LATE, NOBODY, Service
from tests.unit.simulator.fleet.device.fleet_fakes import read_request

TAKES_S = 0.01
LIMITED = 429


@dataclass
class Engines:
    """Makes engines that reach the service of the tests."""

    service: Service
    sessions: list[VirtualMqtt] = field(default_factory=list)

    def http(self, _origin: Any, _wheel: Any = None, **_options: Any) -> VirtualHttp:
        """In the place of the class of the HTTP engine."""
        return VirtualHttp(self)

    def mqtt(self, _broker: BrokerAddress, _wheel: Any = None, **_options: Any) -> VirtualMqtt:
        """In the place of the class of the MQTT engine."""
        self.sessions.append(VirtualMqtt(self))
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

    def _fail(self, sending: object, outcome: OutcomeClass, reason: str) -> None:
        if found := self._end(sending):
            caller, sent_s = found
            caller.failed(outcome, reason, sent_s, self._loop.time())

    def _end(self, sending: object) -> tuple[Caller, float] | None:
        """Who sent it, and when; None where nobody waits for it any more."""
        found = self._under_way.pop(sending, None)
        return found if found is not None and found[0].is_wanted else None


@dataclass(eq=False)
class _Session:
    device: int
    opening: Opening
    listener: SessionListener
    is_up: bool = False
    is_over: bool = False


class VirtualMqtt:
    """See :class:`~simulator.fleet.engine.mqtt.engine.MqttSessions`; the broker keeps what a device did not take."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._sessions: dict[int, _Session] = {}
        self._kept: dict[str, list[tuple[str, bytes]]] = {}
        self._loop = asyncio.get_running_loop()

    def open(self, device: int, opening: Opening, listener: SessionListener) -> None:
        self.cut(device)
        session = self._sessions[device] = _Session(device, opening, listener)
        self._later(session, TAKES_S, lambda: self._stand(session))

    def publish(
        self, device: int, topic: str, payload: bytes, on_acknowledged: OnAcknowledged, *, retain: bool = False
    ) -> None:
        session, now_s = self._sessions.get(device), self._loop.time()
        if session is None or not session.is_up:
            return
        trouble, receipt = self._engines.service.message(device, topic, payload)
        if trouble in {CUT, CUT_LATE}:
            self._later(session, TAKES_S, lambda: self._lose(session))
            return
        code = NOBODY_LISTENS if trouble == NOBODY else 0
        self._later(session, TAKES_S, lambda: on_acknowledged(code, now_s, self._loop.time()))
        if receipt is not None:
            name = topics.receipts(topics.parse(topic).device_id)
            self._later(session, 2 * TAKES_S, lambda: self._arrive(session, name, receipt))

    def acknowledge(self, device: int, arrival: Arrival) -> None:
        kept = self._kept.get(arrival.topic.split("/")[2], [])
        self._kept[arrival.topic.split("/")[2]] = [each for each in kept if each[0] != arrival.topic]

    def deliver(self, device_id: str, topic: str, payload: bytes) -> None:
        """A message for a device, of which it is to have one."""
        self._kept.setdefault(device_id, []).append((topic, payload))
        for session in self._sessions.values():
            if session.opening.client_id == device_id and session.is_up:
                self._later(session, TAKES_S, self._arriving(session, topic, payload))

    def cut(self, device: int) -> None:
        session = self._sessions.pop(device, None)
        if session is not None:
            session.is_over = True

    async def close(self) -> None:
        for device in list(self._sessions):
            self.cut(device)

    def _stand(self, session: _Session) -> None:
        session.is_up = True
        session.listener.connected(self._loop.time())
        for topic, payload in self._kept.get(session.opening.client_id, []):
            self._later(session, TAKES_S, self._arriving(session, topic, payload))

    def _lose(self, session: _Session) -> None:
        self.cut(session.device)
        session.listener.lost(Offline("closed", "it broke"), OutcomeClass.TRANSPORT, self._loop.time())

    def _arriving(self, session: _Session, topic: str, payload: bytes) -> Callable[[], None]:
        return lambda: self._arrive(session, topic, payload)

    def _arrive(self, session: _Session, topic: str, payload: bytes) -> None:
        session.listener.arrived(Arrival(topic, payload, False, 1, 1), self._loop.time())

    def _later(self, session: _Session, delay_s: float, call: Callable[[], None]) -> None:
        def happen() -> None:
            if not session.is_over:
                call()

        self._loop.call_later(delay_s, happen)
