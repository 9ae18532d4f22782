"""The device's connection to a real mosquitto: it comes back, it is let in or not, and it says why."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.errors import LockedOut, Offline, ServiceError
from agent.health import RetryPolicy
from agent.transports.mqtt_connection import (
    POSTED_MAX,
    Arrival,
    Broker,
    Message,
    MqttConnection,
    Role,
    Session,
    Tls,
    try_connection,
)
from agent.wire import topics
from agent.wire.secret import Secret
from tests.support.certificates import Authority
from tests.support.mosquitto import Mosquitto, end_client, write_passwords
from tests.support.ports import free_port
from tests.system.amqtt_running import amqtt

SOON_S = 60.0
COMMANDS = topics.commands_filter("d1")
STATUS = topics.status("d1")


class Line:
    """A connection, and what it told."""

    def __init__(self, port: int, *, token: Callable[[], Secret] = lambda: Secret("t"), **options: Any) -> None:
        self.troubles: list[Offline] = []
        self.waits_s: list[float] = []
        self.arrivals: list[Arrival] = []
        self.ups = 0
        self._changed = threading.Condition()
        role = Role(
            subscriptions=((COMMANDS, 1),),
            on_arrival=self._arrived,
            on_up=self._up,
            will=Message(STATUS, b"offline", retain=True),
        )
        self.connection = MqttConnection(
            Broker("127.0.0.1", port, options.pop("client_id", "d1"), **{"connect_timeout_s": 5.0, **options}),
            token=token,
            role=role,
            waits=RetryPolicy(lambda: 0.5, base_s=0.1, cap_s=2.0),
            on_down=self._down,
        )
        self.connection.start()

    def wait_until(self, is_so: Callable[[], bool], within_s: float = SOON_S) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, within_s), (self.troubles, self.ups, self.arrivals)

    def wait_for_up(self, times: int = 1) -> None:
        self.wait_until(lambda: self.ups >= times)

    def wait_for_trouble(self, state: str) -> Offline:
        self.wait_until(lambda: any(error.state == state for error in self.troubles))
        return next(error for error in self.troubles if error.state == state)

    def _arrived(self, arrival: Arrival) -> None:
        with self._changed:
            self.arrivals.append(arrival)
            self._changed.notify_all()

    def _up(self, session: Session) -> None:
        session.post(Message(STATUS, b"online", retain=True))
        with self._changed:
            self.ups += 1
            self._changed.notify_all()

    def _down(self, error: Offline, wait_s: float) -> None:
        with self._changed:
            self.troubles.append(error)
            self.waits_s.append(wait_s)
            self._changed.notify_all()


@pytest.fixture
def connect() -> Iterator[Callable[..., Line]]:
    lines: list[Line] = []

    def start(port: int, **options: Any) -> Line:
        lines.append(Line(port, **options))
        return lines[-1]

    yield start
    for line in lines:
        line.connection.stop()


class SlowBroker:
    """A broker of version 3.1.1 for one device that acknowledges what is published when the test wants it."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])

    def let_in(self) -> None:
        """Take the connection, its CONNECT and its SUBSCRIBE."""
        self._device, _ = self._server.accept()
        self._device.settimeout(SOON_S)
        assert self.next()[0] == 0x10
        self._device.sendall(b"\x20\x02\x00\x00")
        kind, body = self.next()
        assert kind == 0x82
        self._device.sendall(b"\x90\x03" + body[:2] + b"\x01")

    def next(self) -> tuple[int, bytes]:
        """First byte and body of the next packet; none of a test's is longer than 127 bytes."""
        head = self._device.recv(2, socket.MSG_WAITALL)
        return head[0], self._device.recv(head[1], socket.MSG_WAITALL) if head[1] else b""

    def next_message(self) -> tuple[bytes, bytes]:
        """Payload and packet id of the next PUBLISH with QoS 1."""
        kind, body = self.next()
        assert kind & 0xF6 == 0x32
        behind = 2 + int.from_bytes(body[:2], "big")
        return body[behind + 2 :], body[behind : behind + 2]

    def acknowledge(self, packet_id: bytes) -> None:
        self._device.sendall(b"\x40\x02" + packet_id)

    def says_nothing(self) -> bool:
        """Whether the device is silent for a moment."""
        self._device.settimeout(0.2)
        try:
            return not self._device.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self._device.settimeout(SOON_S)

    def close(self) -> None:
        self._device.close()
        self._server.close()


def publish(broker: Mosquitto, topic: str, payload: bytes = b"{}", **options: Any) -> None:
    client = broker.client()
    client.publish(topic, payload, 1, **options).wait_for_publish(SOON_S)
    end_client(client)


class TestComingBack:
    @pytest.mark.parametrize("version", ["5", "3.1.1"])
    def test_what_was_not_acknowledged_comes_again_and_what_was_does_not(self, start_mosquitto, connect, version):
        broker = start_mosquitto()
        first = connect(broker.port, version=version)
        first.wait_for_up()
        for number in (1, 2):
            publish(broker, topics.command("d1", f"c{number}"))
        first.wait_until(lambda: len(first.arrivals) == 2)
        done = next(arrival for arrival in first.arrivals if arrival.topic.endswith("c1"))
        done.acknowledge()
        first.connection.session.publish(Message("v1/flushed", b""), SOON_S)
        first.connection.stop()
        second = connect(broker.port, version=version)
        second.wait_until(lambda: bool(second.arrivals and second.ups))
        assert [arrival.topic for arrival in second.arrivals] == [topics.command("d1", "c2")]

    def test_an_old_acknowledgement_does_not_reach_the_new_connection(self, start_mosquitto, connect):
        broker = start_mosquitto(keep=True)
        line = connect(broker.port)
        line.wait_for_up()
        publish(broker, topics.command("d1", "old"))
        line.wait_until(lambda: len(line.arrivals) == 1)
        broker.stop()
        broker.start()
        line.wait_until(lambda: len(line.arrivals) == 2 and line.ups == 2)
        old, again = line.arrivals
        old.acknowledge()
        line.connection.session.publish(Message("v1/flushed", b""), SOON_S)
        broker.stop()
        broker.start()
        line.wait_until(lambda: len(line.arrivals) == 3)
        assert line.arrivals[2].topic == again.topic

    def test_the_broker_says_for_the_device_that_it_is_gone(self, start_mosquitto, connect):
        broker = start_mosquitto()
        told: list[bytes] = []
        heard = threading.Event()
        watcher = broker.client("watcher")
        watcher.on_message = lambda _client, _data, message: (told.append(message.payload), heard.set())
        watcher.subscribe(STATUS, 1)
        line = connect(broker.port)
        assert heard.wait(SOON_S)
        heard.clear()
        usurper = broker.client("d1")
        assert heard.wait(SOON_S)
        end_client(usurper)
        line.connection.stop()
        end_client(watcher)
        assert told[:2] == [b"online", b"offline"]

    def test_who_disconnects_waits_for_the_acknowledgement_of_the_last_word(self, connect, monkeypatch):
        """Or it would meet a closed socket, and a broker takes that for a death: the will comes as well."""
        monkeypatch.setattr("agent.transports.mqtt_connection._DISCONNECT_S", SOON_S)
        with contextlib.closing(SlowBroker()) as broker:
            line = connect(broker.port, version="3.1.1")
            broker.let_in()
            payload, packet_id = broker.next_message()
            assert payload == b"online"
            broker.acknowledge(packet_id)
            line.wait_for_up()
            stopping = threading.Thread(target=line.connection.stop, args=(Message(STATUS, b"offline"),))
            stopping.start()
            payload, packet_id = broker.next_message()
            assert payload == b"offline"
            assert broker.says_nothing()
            broker.acknowledge(packet_id)
            assert broker.next() == (0xE0, b"")
            stopping.join()

    def test_nobody_listening_is_told_and_the_waits_grow(self, connect):
        line = connect(free_port())
        line.wait_until(lambda: len(line.troubles) >= 4)
        assert {error.state for error in line.troubles} == {"unreachable"}
        assert "is the broker running" in str(line.troubles[0])
        assert line.waits_s == sorted(line.waits_s)
        assert line.waits_s[-1] <= 1.0


class TestVersions:
    def test_a_broker_that_says_nothing_to_the_version_is_told_with_the_fix(self, connect):
        with amqtt() as port:  # it does not answer a CONNECT of version 5
            assert "mqtt.version" in str(connect(port, connect_timeout_s=1.0).wait_for_trouble("unreachable"))


class TestBeingLetIn:
    def test_rules_that_forbid_its_own_topics_are_told(self, start_mosquitto, connect, tmp_path):
        (tmp_path / "acl").write_text("user somebody\ntopic readwrite #\n")
        passwords = write_passwords(tmp_path / "users", {"d1": "t"})
        line = connect(start_mosquitto(*passwords, f"acl_file {tmp_path / 'acl'}").port)
        # mosquitto 2.0 accepts the subscription and lets nothing through; what is published says so.
        line.wait_for_up()
        with pytest.raises(LockedOut, match="access rules"):
            line.connection.session.publish(Message(STATUS, b"x"), SOON_S)

    @pytest.mark.parametrize("version", ["5", "3.1.1"])
    def test_a_second_client_with_the_same_id_is_noticed_and_not_fought(self, start_mosquitto, connect, version):
        broker = start_mosquitto()
        line = connect(broker.port, version=version)
        for times in range(1, 5):
            line.wait_for_up(times)
            end_client(broker.client("d1"))
        line.wait_until(lambda: len(line.troubles) >= 4)
        assert all("twice?" in str(error) for error in line.troubles)
        assert line.waits_s == sorted(line.waits_s)
        assert line.waits_s[-1] > line.waits_s[0]


class TestTls:
    @pytest.fixture
    def authority(self, tmp_path: Path) -> Authority:
        return Authority(tmp_path / "tls")

    def serve(self, start_mosquitto: Any, authority: Authority, *more: str, **issue: Any) -> Mosquitto:
        pair = authority.issue("broker", **issue)
        return start_mosquitto(
            f"cafile {authority.certificate}", f"certfile {pair.certificate}", f"keyfile {pair.key}", *more
        )

    def test_an_expired_certificate_is_told(self, start_mosquitto, authority, connect):
        broker = self.serve(start_mosquitto, authority, expired=True)
        line = connect(broker.port, tls=Tls(authority.certificate))
        assert "has expired: renew it on the server" in str(line.wait_for_trouble("bad_certificate"))

    def test_a_broker_that_wants_a_certificate_gets_one(self, start_mosquitto, authority, connect):
        broker = self.serve(start_mosquitto, authority, "require_certificate true")
        pair = authority.issue("d1")
        connect(broker.port, tls=Tls(authority.certificate, pair.certificate, pair.key)).wait_for_up()
        bare = connect(broker.port, tls=Tls(authority.certificate), client_id="d2")
        bare.wait_until(lambda: bool(bare.troubles))
        assert bare.troubles[0].state in {"bad_certificate", "unreachable", "closed"}

    def test_an_expired_certificate_of_the_device_is_told(self, start_mosquitto, authority, connect):
        broker = self.serve(start_mosquitto, authority, "require_certificate true")
        pair = authority.issue("d1", expired=True)
        line = connect(broker.port, tls=Tls(authority.certificate, pair.certificate, pair.key))
        assert "mqtt.cert_file" in str(line.wait_for_trouble("bad_certificate"))

    def test_tls_where_none_is_spoken_is_told(self, start_mosquitto, authority, connect):
        line = connect(start_mosquitto().port, tls=Tls(authority.certificate))
        line.wait_until(lambda: bool(line.troubles))
        assert line.troubles[0].state == "unreachable"

    def test_files_that_cannot_be_used_are_named(self, start_mosquitto, connect, tmp_path):
        line = connect(start_mosquitto().port, tls=Tls(tmp_path / "nowhere.pem"))
        assert "nowhere.pem" in str(line.wait_for_trouble("bad_certificate"))


class TestTrying:
    def test_what_waits_for_the_device_still_waits_afterwards(self, start_mosquitto, connect):
        broker = start_mosquitto()
        address, subscriptions = Broker("127.0.0.1", broker.port, "d1"), topics.subscriptions("d1")
        assert try_connection(address, Secret("t"), subscriptions) is None
        publish(broker, topics.command("d1", "c1"))
        assert try_connection(address, Secret("t"), subscriptions) is None
        line = connect(broker.port)
        line.wait_until(lambda: bool(line.arrivals))


class TestMemory:
    def test_a_broker_that_reads_nothing_is_sent_no_more_than_the_bound(self, connect):
        with contextlib.closing(SlowBroker()) as broker:
            line = connect(broker.port, version="3.1.1", keepalive_s=600)
            broker.let_in()
            line.wait_for_up()
            news = Message("v1/news", b"x" * 10_000, qos=0)
            for _ in range(5 * POSTED_MAX):
                if not line.connection.session.post(news):
                    break
            assert not line.connection.session.post(news)
            assert not line.connection.session.post(Message("v1/news", b"{}"))

    def test_a_broker_that_acknowledges_nothing_is_left_instead_of_keeping_ever_more_for_it(self, connect):
        with contextlib.closing(SlowBroker()) as broker:
            line = connect(broker.port, version="3.1.1", keepalive_s=600)
            broker.let_in()
            line.wait_for_up()
            for _ in range(100):
                with pytest.raises(ServiceError) as raised:
                    line.connection.session.publish(Message("v1/x", b"{}"), 0.01)
                if isinstance(raised.value, Offline):
                    break
            assert "acknowledges nothing" in str(line.wait_for_trouble("closed"))
