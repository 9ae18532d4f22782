"""Very many MQTT sessions in one process, as virtual devices have them: connected, held, used once. For ``fleet_mqtt``.

Prints one JSON object, :class:`Held`::

    python benchmarks/_mqtt_hold.py --port 1883 --sessions 18000 --seconds 60 --keep-alive 20
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import uvloop

from agent.errors import Offline
from agent.wire import topics
from agent.wire.secret import Secret
from benchmarks._mqtt_load import Gate
from simulator.fleet.engine.addresses import loopback_addresses
from simulator.fleet.engine.mqtt import Arrival, Established, Opening, Will
from simulator.fleet.engine.mqtt_sessions import BrokerAddress, MqttSessions
from simulator.fleet.outcomes import OutcomeClass

_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
_PATIENCE_S = 60.0
# From one address there are some 28,000 ports (net.ipv4.ip_local_port_range).
_PORTS_EACH = 20_000


@dataclass(frozen=True, slots=True)
class Held:
    """What came of it.

    Attributes:
        connect_s: from the first ``open`` until every session's subscriptions stood.
        session_kb: resident memory for each session: engine, transport, listener.
        lost: sessions that ended while they were held.
        hold_cpu_s: CPU time of holding them, keep-alives included.
        publish_s: from the first publish of each until the last was acknowledged.
    """

    sessions: int
    connect_s: float
    connect_cpu_s: float
    session_kb: float
    lost: int
    hold_s: float
    hold_cpu_s: float
    publish_s: float


class _Device:
    __slots__ = ("_board", "_index")

    def __init__(self, board: _Board, index: int) -> None:
        self._board = board
        self._index = index
        name = f"hold-{index}"
        subscriptions = ((topics.commands_filter(name), 1), (topics.receipts(name), 1), (topics.notice(name), 0))
        will = Will(topics.status(name), b'{"status":"offline"}')
        opening = Opening(name, Secret("token"), subscriptions, will, keep_alive_s=board.keep_alive_s)
        board.engine.open(index, opening, self)

    def connected(self, _standing: Established, _now_s: float) -> None:
        self._board.gate.leave()

    def arrived(self, arrival: Arrival, _now_s: float) -> None:
        self._board.engine.acknowledge(self._index, arrival)

    def lost(self, error: Offline, _outcome: OutcomeClass, _began_s: float | None, _now_s: float) -> None:
        self._board.note_loss(error)

    def send(self, body: bytes) -> None:
        self._board.engine.publish(self._index, topics.sensor_data(f"hold-{self._index}"), body, self, _PATIENCE_S)

    def acknowledged(self, _code: int, _sent_s: float, _now_s: float) -> None:
        self._board.gate.leave()

    def failed(self, _outcome: OutcomeClass, reason: str, _sent_s: float | None, _now_s: float) -> None:
        self._board.note_loss(Offline("closed", reason))


class _Board:
    """What all devices share."""

    def __init__(self, engine: MqttSessions, keep_alive_s: int) -> None:
        self.engine = engine
        self.keep_alive_s = keep_alive_s
        self.gate = Gate()
        self.lost = 0

    def note_loss(self, error: Offline) -> None:
        self.lost += 1
        self.gate.leave()
        if self.lost == 1:
            print(f"the first loss: {error}", file=sys.stderr)


def _resident_kb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_KB


async def hold(port: int, sessions: int, seconds: float, keep_alive_s: int, tls: ssl.SSLContext | None) -> Held:
    """Connect, hold, publish once each."""
    sources = loopback_addresses(1 + sessions // _PORTS_EACH)
    engine = MqttSessions(BrokerAddress("localhost" if tls else "127.0.0.1", port, tls), sources=sources)
    board = _Board(engine, keep_alive_s)
    before_kb = _resident_kb()
    watch = _stopwatch()
    devices = []
    for index in range(sessions):
        await board.gate.enter()
        devices.append(_Device(board, index))
    await board.gate.until_empty()
    connect_s, connect_cpu_s = watch()
    session_kb = (_resident_kb() - before_kb) / sessions
    watch = _stopwatch()
    await asyncio.sleep(seconds)
    hold_s, hold_cpu_s = watch()
    watch = _stopwatch()
    for number, device in enumerate(devices):
        await board.gate.enter()
        device.send(b'{"sensor_data":{"number":%d}}' % number)
    await board.gate.until_empty()
    publish_s, _ = watch()
    await engine.close()
    return Held(sessions, connect_s, connect_cpu_s, session_kb, board.lost, hold_s, hold_cpu_s, publish_s)


def _stopwatch() -> Callable[[], tuple[float, float]]:
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    return lambda: (time.monotonic() - began_s, time.process_time() - began_cpu_s)


def main() -> int:
    """Hold sessions."""
    parser = argparse.ArgumentParser(description="Hold MQTT sessions.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--keep-alive", type=int, default=20)
    parser.add_argument("--ca-file", help="TLS, with this authority")
    options = parser.parse_args()
    tls = ssl.create_default_context(cafile=options.ca_file) if options.ca_file else None
    held = uvloop.run(hold(options.port, options.sessions, options.seconds, options.keep_alive, tls))
    json.dump(asdict(held), sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
