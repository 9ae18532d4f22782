"""What the MQTT source and uplink do beyond the common suites, against a real mosquitto."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.core.values import Report, StoredReading
from agent.errors import Offline, RateLimited, Refused, TransportError, Unanswered
from agent.wire import topics
from agent.wire.mqtt_messages import Notice, Receipt, Refusal, encode
from tests.contract.mqtt_device_running import RunningDevice
from tests.factories import make_reading
from tests.gateway_stand_in import GatewayStandIn
from tests.mosquitto import Mosquitto

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
        device.close()


class TestSource:
    def test_a_command_is_acknowledged_to_the_broker_only_with_the_journal(self, gateway, connect):
        first = connect()
        gateway.wait_until(lambda: bool(gateway.statuses))
        gateway.send("d1", "c1", PING)
        first.wait_for_arrivals(1)
        first.close()
        gateway.commands.clear()  # only the broker knows it now
        second = connect()
        second.wait_for_arrivals(1)
        second.device.source.acknowledge(["c1"])
        second.device.uplink.send(stored(1))  # goes after the PUBACK on the same connection
        second.close()
        third = connect()
        gateway.send("d1", "c2", PING)
        third.wait_for_arrivals(1)
        assert [command.id for command in third.device.source.poll(SOON_S).commands] == ["c2"]

    def test_what_is_open_is_sent_again_at_each_connection_and_is_one_command(self, gateway, connect):
        device = connect()
        gateway.wait_until(lambda: bool(gateway.statuses))
        gateway.send("d1", "c1", PING)
        device.wait_for_arrivals(1)
        gateway.publish(topics.status("d1"), b"online")
        device.wait_for_arrivals(2)
        assert [command.id for command in device.device.source.poll(0).commands] == ["c1"]
        device.device.source.acknowledge(["c1"])
        assert device.device.source.poll(0).commands == ()

    def test_a_push_ends_a_wait_at_once_and_so_does_an_interrupt(self, gateway, connect):
        source = connect().device.source
        gateway.wait_until(lambda: bool(gateway.statuses))
        polls: list[Any] = []

        def wait() -> None:
            polls.append(source.poll(60))

        for act, ids in ((lambda: gateway.send("d1", "c1", PING), ["c1"]), (source.interrupt, [])):
            thread = threading.Thread(target=wait)
            thread.start()
            act()
            thread.join(SOON_S)
            assert not thread.is_alive()
            assert [command.id for command in polls[-1].commands] == ids
            assert polls[-1].pushed
            source.acknowledge(ids)

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
    def test_what_is_no_command_is_told_once_and_not_delivered_again(self, gateway, connect, payload, said):
        device = connect()
        device.device.source._max_bytes = 50_000
        gateway.publish(topics.command("d1", "c1"), payload)
        device.wait_for_arrivals(1)
        [sentence] = device.device.source.poll(SOON_S).malformed
        assert said in sentence
        assert len(sentence) < 500
        device.device.uplink.send(stored(1))
        device.close()
        again = connect()
        gateway.send("d1", "c2", PING)
        again.wait_for_arrivals(1)
        assert again.device.source.poll(0).malformed == ()

    def test_a_payload_of_a_megabyte_arrives_and_is_measured(self, gateway, connect):
        device = connect()
        gateway.send("d1", "c1", {"command": "x", "text": "y" * 1_000_000})
        device.wait_for_arrivals(1)
        assert device.device.source.poll(0).commands[0].size_bytes > 1_000_000

    def test_the_id_comes_from_the_topic_when_the_record_has_none(self, gateway, connect):
        device = connect()
        gateway.publish(topics.command("d1", "a/b+c"), json.dumps({"command_payload": PING}).encode())
        device.wait_for_arrivals(1)
        assert device.device.source.poll(0).commands[0].id == "a/b+c"

    def test_a_notice_tells_the_time(self, gateway, connect):
        source = connect().device.source
        gateway.publish(topics.notice("d1"), encode(Notice(time=1_767_225_600.0)), qos=0)
        assert source.poll(SOON_S).server_time == 1_767_225_600.0
        assert source.poll(0).server_time is None

    def test_the_gateway_s_clock_goes_on_while_nobody_asks(self, connect):
        device = connect()
        device.device.source.set_time(1_767_225_600.0)
        device.clock.advance(7)
        assert device.device.source.poll(0).server_time == 1_767_225_607.0

    def test_without_a_connection_a_poll_tells_why(self, broker, connect):
        device = connect()
        broker.kill()
        device.wait_until(lambda: bool(device.troubles))
        with pytest.raises(Offline):
            device.device.source.poll(0)

    def test_the_first_word_is_online_with_the_version_and_the_last_is_offline(self, gateway, connect):
        device = connect()
        gateway.wait_until(lambda: gateway.statuses == [("d1", "online")])
        device.close()
        gateway.wait_until(lambda: gateway.statuses == [("d1", "online"), ("d1", "offline")])


class TestReadings:
    def test_several_readings_are_one_message_with_a_key_each(self, gateway, connect):
        assert connect().device.uplink.send(stored(1, 2, 3)).delivered == (1, 2, 3)
        assert gateway.readings == {"key-1": {"n": 1}, "key-2": {"n": 2}, "key-3": {"n": 3}}

    def test_more_than_one_message_holds_goes_as_several(self, gateway, connect):
        readings = stored(*range(1, 1202), size=20)
        assert len(connect().device.uplink.send(readings).delivered) == 1201
        assert len(gateway.readings) == 1201

    def test_a_broker_that_takes_little_gets_little_at_a_time(self, start_mosquitto):
        broker = start_mosquitto("max_packet_size 4000")
        gateway = GatewayStandIn(broker)
        device = RunningDevice(broker)
        assert len(device.device.uplink.send(stored(*range(1, 101))).delivered) == 100
        huge = device.device.uplink.send(stored(7, size=1000))
        assert huge.delivered == ()
        assert huge.refused[7].startswith("too_large: ")
        device.close()
        gateway.close()

    def test_what_the_gateway_refuses_is_refused_with_its_reason_and_the_rest_delivered(self, gateway, connect):
        gateway.refuse = lambda values: values["n"] == 2
        outcome = connect().device.uplink.send(stored(1, 2, 3))
        assert outcome.delivered == (1, 3)
        assert outcome.refused == {2: "validation_error: not this one"}

    def test_without_a_receipt_nothing_is_delivered_and_the_repeat_is_stored_once(self, gateway, connect):
        gateway.confirms = False
        uplink = connect(timeout_s=0.2).device.uplink
        with pytest.raises(TransportError, match="no gateway confirmed"):
            uplink.send(stored(1))
        gateway.confirms = True
        uplink._timeout_s = SOON_S  # this time the receipt comes
        assert uplink.send(stored(1)).delivered == (1,)
        assert len(gateway.readings) == 1
        assert gateway.repeats == 1

    def test_a_receipt_that_came_late_counts_for_the_repeat(self, gateway, connect):
        gateway.confirms = False
        device = connect(timeout_s=0.2)
        with pytest.raises(TransportError):
            device.device.uplink.send(stored(1))
        device.device.uplink.receipted(Receipt(stored=("key-1",)))
        gateway.repeats = 0
        assert device.device.uplink.send(stored(1)).delivered == (1,)
        assert gateway.repeats == 0

    def test_without_any_gateway_that_is_said_at_once(self, connect):
        with pytest.raises(TransportError, match="no gateway listens"):
            connect().device.uplink.send(stored(1))

    def test_a_broker_alone_is_believed_when_that_is_wanted(self, connect):
        assert connect(receipts=False).device.uplink.send(stored(1, 2)).delivered == (1, 2)

    def test_a_broker_that_dies_before_the_receipt_delivers_nothing(self, broker, gateway, connect):
        gateway.confirms = False
        device = connect()
        errors: list[Exception] = []

        def send() -> None:
            try:
                device.device.uplink.send(stored(1))
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
        device.device._noticed(encode(Notice(retry_after_s=30)))
        with pytest.raises(RateLimited) as caught:
            device.device.uplink.send(stored(1))
        assert caught.value.retry_after_s == 30
        device.device.uplink.report(Report("c1", "succeeded"))
        device.clock.advance(31)
        assert device.device.uplink.send(stored(1)).delivered == (1,)


class TestReports:
    def test_a_result_is_reported_when_the_gateway_has_it(self, gateway, connect):
        uplink = connect().device.uplink
        uplink.report(Report("c1", "in_progress", {"percent": 50}))
        uplink.report(Report("c1", "succeeded", {"pong": True}))
        assert gateway.results["c1", "in_progress"].result == {"percent": 50}
        assert gateway.results["c1", "succeeded"].result == {"pong": True}
        gateway.confirms = False
        slow = connect(device_id="d2", timeout_s=0.2).device.uplink
        with pytest.raises(TransportError):
            slow.report(Report("c2", "succeeded"))

    @pytest.mark.parametrize("result", [{"x": "y" * 300_000}, {"x": float("nan")}, {"x": object()}])
    def test_a_result_that_cannot_travel_is_refused_here(self, gateway, connect, result):
        with pytest.raises(Refused):
            connect().device.uplink.report(Report("c1", "succeeded", result))

    def test_what_the_gateway_refuses_is_refused(self, gateway, connect):
        gateway.confirms = False  # or its "stored" could overtake the refusal
        device = connect()
        device.device.uplink.receipted(
            Receipt(refused=(Refusal(key="result-failed-c1", error="too_large", message="too much"),))
        )
        with pytest.raises(Refused, match="too_large"):
            device.device.uplink.report(Report("c1", "failed"))

    def test_an_endless_command_id_still_makes_a_key(self, gateway, connect):
        connect().device.uplink.report(Report("c" * 500, "succeeded"))
        [result] = gateway.results.values()
        assert len(result.key or "") <= 128


class TestOtherMessages:
    def test_what_cannot_be_read_is_logged_and_not_delivered_again(self, gateway, connect, caplog):
        caplog.set_level(logging.WARNING)
        device = connect()
        gateway.publish(topics.receipts("d1"), b"{")
        gateway.publish(topics.receipts("d1"), encode(Receipt(refused=(Refusal(error="invalid_json", message="hm"),))))
        device.device.uplink.send(stored(1))
        assert "broker=malformed" in caplog.text
        assert "did not understand a message: invalid_json: hm" in caplog.text
