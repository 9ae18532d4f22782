"""The sessions of many devices with one broker, on the running loop."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import Final

from simulator.fleet.engine.addresses import TargetAddress, open_socket
from simulator.fleet.engine.mqtt import faults
from simulator.fleet.engine.mqtt.ports import Arrival, Opening, Publisher, SessionListener
from simulator.fleet.engine.mqtt.session import Session, SessionContext
from simulator.fleet.engine.wheel import LoopClock, Wheel
from simulator.watched import start_task

_WINDOW: Final = 65_535


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where the broker is.

    Attributes:
        tls: one context for all sessions; None for connections in the clear.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return f"{'mqtts' if self.tls else 'mqtt'}://{self.host}:{self.port}"


class MqttSessions:
    """An :class:`~simulator.fleet.engine.mqtt.ports.MqttEngine`.

    Args:
        broker: whom to talk to.
        wheel: for time limits and keep-alives, on the loop's clock; one of its own by default.
        sources: addresses of this machine to connect from, each good for some 28,000 sessions; empty lets the system
            choose. A device keeps its address.
        connect_timeout_s: from ``open`` until the subscriptions stand.
        in_flight: so many publishes of one device may be on their way, where the broker does not say less.
    """

    def __init__(
        self,
        broker: BrokerAddress,
        wheel: Wheel | None = None,
        *,
        sources: tuple[str, ...] = (),
        connect_timeout_s: float = 10.0,
        in_flight: int = _WINDOW,
    ) -> None:
        self._broker = broker
        self._sources = sources
        self._loop = asyncio.get_running_loop()
        clock = LoopClock(self._loop)
        self._time = clock.time
        wheel = wheel or Wheel(clock)
        self._context = SessionContext(str(broker), wheel, clock.time, connect_timeout_s, in_flight, self._ended)
        self._sessions: dict[int, Session] = {}
        self._attempts: dict[int, asyncio.Task[None]] = {}
        self._address = TargetAddress(broker.host, broker.port, sources)
        self._opened = 0

    @property
    def sessions(self) -> int:
        """How many there are, those that still connect too."""
        return len(self._sessions)

    @property
    def standing(self) -> int:
        """How many can publish now."""
        return sum(session.is_up for session in self._sessions.values())

    def open(self, device: int, opening: Opening, listener: SessionListener) -> None:
        """Connect, and subscribe. A session that this device still has is cut first. See :meth:`MqttEngine.open`."""
        self.cut(device)
        self._opened += 1
        session = self._sessions[device] = Session(self._context, device, self._opened, opening, listener)
        self._attempts[self._opened] = start_task(self._connect(session), "mqtt-connect")

    def publish(
        self, device: int, topic: str, payload: bytes, publisher: Publisher, timeout_s: float, *, retain: bool = False
    ) -> None:
        """Publish with QoS 1; it waits its turn when the broker's receive maximum is reached."""
        session = self._sessions.get(device)
        if session is None:
            refusal = faults.NO_CONNECTION
        else:
            failure = session.publish(topic, payload, publisher, timeout_s, retain=retain)
            if failure is None:
                return
            refusal = failure
        self._loop.call_soon(publisher.failed, *refusal, None, self._time())

    def acknowledge(self, device: int, arrival: Arrival) -> None:
        """The message is safe: PUBACK. Void once its connection has ended, since the broker sends it again then."""
        session = self._sessions.get(device)
        if session is not None and session.number == arrival.connection and arrival.packet_id is not None:
            session.acknowledge(arrival.packet_id)

    def cut(self, device: int) -> None:
        """The device's power goes: the connection is reset, the broker publishes the will. Nobody is called then."""
        session = self._sessions.pop(device, None)
        if session is not None:
            self._give_up(session.number)
            session.cut()

    async def close(self) -> None:
        """Cut every session. See :meth:`MqttEngine.close`."""
        for device in list(self._sessions):
            self.cut(device)
        self._address.close()
        await asyncio.gather(*self._attempts.values(), return_exceptions=True)
        await asyncio.sleep(0)  # transports say goodbye in the loop's next turn

    async def _connect(self, session: Session) -> None:
        broker, sources = self._broker, self._sources
        try:
            family, address = await self._address.get()
            sock = open_socket(family, sources[session.device % len(sources)] if sources else None)
            try:
                await self._loop.sock_connect(sock, address)
                await self._loop.create_connection(
                    lambda: session,
                    sock=sock,
                    ssl=broker.tls,
                    server_hostname=broker.host if broker.tls else None,
                )
            except BaseException:
                sock.close()
                raise
        except (OSError, ValueError) as error:  # ValueError: a host name that cannot be one
            session.fail(faults.of_network(error, str(broker)))
        except Exception as error:
            session.fail(faults.of_network(error, str(broker)))
            raise
        finally:
            self._attempts.pop(session.number, None)

    def _ended(self, session: Session) -> None:
        self._give_up(session.number)
        if self._sessions.get(session.device) is session:
            del self._sessions[session.device]

    def _give_up(self, number: int) -> None:
        attempt = self._attempts.get(number)
        if attempt is not None and attempt is not asyncio.current_task():
            attempt.cancel()
