"""What the MQTT device does beyond the common suites, against a real mosquitto."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.core.values import Report, StoredReading
from agent.errors import Offline, RateLimited, Refused, TransportError, Unanswered
from agent.wire import topics
from agent.wire.topics import Notice, Receipt, Refusal, encode
from tests.api.mqtt_device_running import RunningDevice
from tests.support.factories import make_reading
from tests.support.gateway_stand_in import GatewayStandIn
from tests.support.mosquitto import Mosquitto

SOON_S = 60.0
PING = {"command": "ping"}


def stored(*numbers: float, size: int = 1) -> list[StoredReading]:
    return [
        StoredReading(int(n), f"key-{n:g}", make_reading({"n": n, **{f"more{i}": 0.1 for i in range(size - 1)}}))
        for n in numbers
    ]


@pytest.fixture
def broker(start_mosquitto) -> Mosquitto:
    return start_mosquitto()


@pytest.fixture
def gateway(broker) -> Iterator[GatewayStandIn]:
    made = GatewayStandIn(broker)
    yield made
    made.close()


@pytest.fixture
def connect(broker) -> Iterator[Callable[..., RunningDevice]]:
    made: list[RunningDevice] = []

    def start(**options: Any) -> RunningDevice:
        made.append(RunningDevice(broker, **options))
        return made[-1]

    yield start
    for device in made:
        device.stop()


@pytest.fixture
def no_notice(monkeypatch) -> None:
    """No gateway is there, and its notice is not waited for."""
    monkeypatch.setattr("agent.transports.mqtt_device.NOTICE_WITHIN_S", 0.0)


def ids(device: RunningDevice) -> list[str]:
    """The ids of what the next poll brings, a notice's empty one left out."""
    return [command.id for command in (device.poll(0).commands or device.poll(0).commands)]


class TestCommands:
    def test_a_command_is_acknowledged_to_the_broker_only_with_the_journal(self, gateway, connect):
        first = connect()
        gateway.wait_until(lambda: bool(gateway.statuses))
        gateway.send("d1", "c1", PING)
        first.wait_for_commands("c1")
        first.stop()
        gateway.commands.clear()  # only the broker knows it now
        second = connect()
        second.wait_for_commands("c1")
        assert ids(second) == ["c1"]
        second.acknowledge(["c1"])
        second.send(stored(1))  # goes after the PUBACK on the same connection
        second.stop()
        third = connect()
        gateway.send("d1", "c2", PING)
        third.wait_for_commands("c2")
        assert ids(third) == ["c2"]

    def test_what_is_open_is_sent_again_at_each_connection_and_is_one_command(self, gateway, connect):
        device = connect()
        gateway.wait_until(lambda: bool(gateway.statuses))
        gateway.send("d1", "c1", PING)
        for count in range(1, 20):
            device.wait_until(lambda count=count: len(device.arrivals) >= count)
            gateway.publish(topics.status("d1"), b"online")
        device.wait_until(lambda: len(device.arrivals) == 20)
        assert ids(device) == ["c1"]
        device.send(stored(1))
        device.acknowledge(["c1"])
        assert ids(device) == []
        device.send(stored(1))
        gateway.commands.clear()
        device.stop()
        again = connect()  # of the messages with it none is left at the broker
        again.send(stored(2))
        assert again.arrivals == []

    def test_what_is_taken_back_before_the_journal_has_it_comes_taken_back(self, gateway, connect):
        device = connect()
        gateway.wait_until(lambda: bool(gateway.statuses))
        gateway.send("d1", "c1", PING)
        device.wait_for_commands("c1")
        assert ids(device) == ["c1"]
        gateway.send("d1", "c1", PING, status="canceled")
        device.wait_until(lambda: len(device.arrivals) == 2)
        device.acknowledge(["c1"])  # the journal has it as it was polled
        assert [command.status for command in device.poll(SOON_S).commands] == ["canceled"]

    def test_nothing_is_handed_out_before_the_gateway_has_said_what_time_it_is(self, broker, connect):
        early = broker.client("early")
        first = connect(device_id="d2")  # the broker keeps a session for it
        first.stop()
        record = {"id": "c1", "command_payload": PING}
        early.publish(topics.command("d2", "c1"), json.dumps(record), 1).wait_for_publish(SOON_S)
        device = connect(device_id="d2")
        device.wait_for_commands("c1")
        polled: list[Any] = []
        thread = threading.Thread(target=lambda: polled.append((device.poll(SOON_S), list(device.times))))
        thread.start()
        early.publish(topics.notice("d2"), encode(Notice(time=1_767_225_600.0)), 0)
        thread.join(SOON_S)
        [(poll, times)] = polled
        assert [command.id for command in poll.commands] == ["c1"]
        assert times == [1_767_225_600.0]
        early.disconnect()

    @pytest.mark.usefixtures("no_notice")
    def test_a_gateway_that_never_tells_the_time_is_not_waited_for_for_ever(self, broker, connect):
        device = connect()
        client = broker.client("foreign")
        client.publish(topics.command("d1", "c1"), json.dumps({"command_payload": PING}), 1)
        assert [command.id for command in device.poll(SOON_S).commands] == ["c1"]
        client.disconnect()

    @pytest.mark.usefixtures("no_notice")
    def test_a_push_ends_a_wait_at_once_and_so_does_an_interrupt(self, broker, connect):
        device, client = connect(), broker.client("foreign")
        record = json.dumps({"command_payload": PING})
        polls: list[Any] = []
        for act, expected in (
            (lambda: client.publish(topics.command("d1", "c1"), record, 1), ["c1"]),
            (device.interrupt, []),
        ):
            thread = threading.Thread(target=lambda: polls.append(device.poll(SOON_S)))
            thread.start()
            act()
            thread.join(SOON_S)
            assert not thread.is_alive()
            assert [command.id for command in polls[-1].commands] == expected
            assert polls[-1].pushed
            device.acknowledge(expected)
        client.disconnect()

    @pytest.mark.parametrize(
        ("payload", "said"),
        [
            (b"{", "not valid JSON"),
            (b"[]", "must be a JSON object"),
            (b'{"id":"c1"}', "command_payload"),
            (b'{"id":"other","command_payload":{}}', "its topic says otherwise"),
            (b'{"id":"c1","device_id":"d2","command_payload":{}}', "for device 'd2'"),
            (b'"' + b"x" * 100_000 + b'"', "more than the limit"),
        ],
    )
    def test_what_is_no_command_is_told_once_and_not_delivered_again(
        self, gateway, connect, caplog, monkeypatch, payload, said
    ):
        monkeypatch.setattr("agent.wire.topics.MESSAGE_BYTES", 50_000)
        device = connect()
        for _ in range(2):
            gateway.publish(topics.command("d1", "c1"), payload)
        gateway.send("d1", "c2", PING)
        device.wait_for_commands("c2")
        [line] = [record.getMessage() for record in caplog.records if "broker=malformed" in record.getMessage()]
        assert said in line
        assert len(line) < 500
        device.send(stored(1))
        device.stop()
        caplog.clear()
        connect().send(stored(2))
        assert "broker=malformed" not in caplog.text

    def test_the_id_comes_from_the_topic_when_the_record_has_none(self, gateway, connect):
        device = connect()
        gateway.publish(topics.command("d1", "a/b+c"), json.dumps({"command_payload": PING}).encode())
        device.wait_for_commands("a/b+c")
        assert ids(device) == ["a/b+c"]

    def test_without_a_connection_a_poll_tells_why(self, broker, connect):
        device = connect()
        broker.kill()
        device.wait_until(lambda: device.state != "ok")
        with pytest.raises(Offline):
            device.poll(0)

    def test_the_first_word_is_online_with_the_version_and_the_last_is_offline(self, gateway, connect):
        device = connect()
        gateway.wait_until(lambda: gateway.statuses == [("d1", "online")])
        device.stop()
        gateway.wait_until(lambda: gateway.statuses == [("d1", "online"), ("d1", "offline")])


class TestReadings:
    def test_more_than_one_message_holds_goes_as_several(self, gateway, connect):
        readings = stored(*range(1, 1202), size=20)
        assert len(connect().send(readings).delivered) == 1201
        assert len(gateway.readings) == 1201

    def test_a_broker_that_takes_little_gets_little_at_a_time(self, start_mosquitto):
        broker = start_mosquitto("max_packet_size 4000")
        gateway = GatewayStandIn(broker)
        device = RunningDevice(broker)
        assert len(device.send(stored(*range(1, 101))).delivered) == 100
        huge = device.send(stored(7, size=1000))
        assert huge.delivered == ()
        assert huge.refused[7].startswith("too_large: ")
        device.stop()
        gateway.close()

    def test_what_the_gateway_refuses_is_refused_with_its_reason_and_the_rest_delivered(self, gateway, connect):
        gateway.refuse = lambda values: values["n"] == 2
        outcome = connect().send(stored(1, 2, 3))
        assert outcome.delivered == (1, 3)
        assert outcome.refused == {2: "validation_error: not this one"}

    def test_readings_wait_for_the_time_that_dates_them(self, gateway, connect):
        gateway.tells_time = False
        dated: list[float] = []
        device = connect(recorded_at=lambda _moment: dated[0] if dated else None)
        device.times = dated
        thread = threading.Thread(target=device.send, args=(stored(1),))
        thread.start()
        gateway.publish(topics.notice("d1"), encode(Notice(time=1_767_225_600.0)), 0)
        thread.join(SOON_S)
        assert gateway.readings == {"key-1": {"n": 1}}  # and not that the time is unknown

    def test_without_a_receipt_nothing_is_delivered_and_the_repeat_is_stored_once(self, gateway, connect):
        gateway.confirms = False
        device = connect(receipt_timeout_s=0.2)
        with pytest.raises(TransportError, match="no gateway confirmed"):
            device.send(stored(1))
        gateway.confirms = True
        device.receipt_timeout_s = SOON_S  # this time the receipt comes
        assert device.send(stored(1)).delivered == (1,)
        assert len(gateway.readings) == 1
        assert gateway.repeats == 1

    def test_a_receipt_that_came_late_counts_for_the_repeat(self, gateway, connect):
        gateway.confirms = False
        device = connect(receipt_timeout_s=0.2)
        with pytest.raises(TransportError):
            device.send(stored(1))
        device._take_receipt(Receipt(stored=("key-1",)))
        assert device.send(stored(1)).delivered == (1,)

    @pytest.mark.usefixtures("no_notice")
    def test_without_any_gateway_that_is_said_at_once(self, connect):
        with pytest.raises(TransportError, match="no gateway listens"):
            connect().send(stored(1))

    def test_a_broker_that_dies_before_the_receipt_delivers_nothing(self, broker, gateway, connect):
        gateway.confirms = False
        device = connect()
        errors: list[Exception] = []

        def send() -> None:
            try:
                device.send(stored(1))
            except TransportError as error:
                errors.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        gateway.wait_until(lambda: bool(gateway.readings))
        broker.kill()
        thread.join(SOON_S)
        assert isinstance(errors[0], Unanswered)

    def test_a_quota_hint_holds_readings_back_and_lets_results_through(self, gateway, connect):
        device = connect()
        device._take_notice(Notice(retry_after_s=30))
        with pytest.raises(RateLimited) as caught:
            device.send(stored(1))
        assert caught.value.retry_after_s == 30
        device.report(Report("c1", "succeeded"))
        device.clock.advance(31)
        assert device.send(stored(1)).delivered == (1,)


class TestReports:
    def test_a_result_is_reported_when_the_gateway_has_it(self, gateway, connect):
        device = connect()
        device.report(Report("c1", "in_progress", {"percent": 50}))
        device.report(Report("c1", "succeeded", {"pong": True}))
        assert gateway.results["c1", "in_progress"].result == {"percent": 50}
        assert gateway.results["c1", "succeeded"].result == {"pong": True}
        gateway.confirms = False
        with pytest.raises(TransportError):
            connect(device_id="d2", receipt_timeout_s=0.2).report(Report("c2", "succeeded"))

    @pytest.mark.parametrize("result", [{"x": "y" * 300_000}, {"x": float("nan")}, {"x": object()}])
    def test_a_result_that_cannot_travel_is_refused_here(self, gateway, connect, result):
        with pytest.raises(Refused):
            connect().report(Report("c1", "succeeded", result))

    def test_what_the_gateway_refuses_is_refused(self, gateway, connect):
        gateway.confirms = False  # or its "stored" could overtake the refusal
        device = connect()
        refusal = Refusal(key="result-failed-c1", error="too_large", message="too much")
        device._take_receipt(Receipt(refused=(refusal,)))
        with pytest.raises(Refused, match="too_large"):
            device.report(Report("c1", "failed"))

    def test_an_endless_command_id_still_makes_a_key(self, gateway, connect):
        connect().report(Report("c" * 500, "succeeded"))
        [result] = gateway.results.values()
        assert len(result.key or "") <= 128


def test_receipts_that_cannot_be_read_and_refusals_without_a_key_are_logged(gateway, connect, caplog):
    device = connect()
    gateway.publish(topics.receipts("d1"), b"{")
    gateway.publish(topics.receipts("d1"), encode(Receipt(refused=(Refusal(error="invalid_json", message="hm"),))))
    device.send(stored(1))
    assert "broker=malformed" in caplog.text
    assert "did not understand a message: invalid_json: hm" in caplog.text
