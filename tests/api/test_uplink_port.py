"""One suite for every uplink: the fake that unit tests use, HTTP and MQTT, on scripted and on real peers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from agent.core.values import Report, StoredReading
from agent.errors import NotFound, Refused, ServerFault, ServiceError, TransportError
from agent.ports import Uplink
from agent.transports.http import Discovery, HttpDevice
from agent.wire.secret import KeyPair
from simulator.wire.client import ServiceClient
from tests.api.mqtt_device_running import RunningDevice
from tests.api.test_command_source_port import Answer, ScriptedServer, serve  # noqa: F401 - a fixture
from tests.support import service_running
from tests.support.factories import make_reading
from tests.support.fakes import FakeClock, FakeUplink
from tests.support.gateway_stand_in import GatewayStandIn
from tests.support.mosquitto import Mosquitto

ALL = ["batch-sensor-data", "command-results", "idempotency-key", "recorded-at"]


def stored(*numbers: float) -> list[StoredReading]:
    return [StoredReading(int(n), f"key-{n:g}", make_reading({"n": n})) for n in numbers]


class Plan:
    """What the scripted server answers, by path."""

    def __init__(self, extensions: list[str] | None = None, **answers: Any) -> None:
        self.extensions = extensions
        self.answers = answers
        self.refused: set[float] = set()

    def __call__(self, method: str, path: str, headers: dict[str, str]) -> Answer:
        if path.startswith("/.well-known"):
            return Answer(404) if self.extensions is None else Answer(body={"extensions": self.extensions})
        if path.startswith("/devices?") or path == "/devices":
            return Answer(body=[{"device_id": "d1", "product_id": "p1"}])
        for part, answer in self.answers.items():
            if part in path.replace("-", "_"):
                return answer() if callable(answer) else answer
        return Answer(201, {})


def make_uplink(client: ServiceClient, product_id: str | None = "p1") -> HttpDevice:
    return HttpDevice(client, "d1", Discovery(client, FakeClock()), product_id=product_id)


def posts(server: ScriptedServer) -> list[tuple[str, dict[str, str], Any]]:
    asked = zip(server.asked, server.bodies, strict=True)
    return [(path, headers, body) for (method, path, headers), body in asked if method == "POST"]


class TestEveryUplink:
    @pytest.fixture(params=["fake", "http", "http to the service", "mqtt", "mqtt 3.1.1"])
    def uplink(self, request) -> Iterator[Uplink]:
        if request.param == "fake":
            yield FakeUplink()
        elif request.param == "http":
            yield make_uplink(request.getfixturevalue("serve")(Plan())[1])
        elif request.param == "http to the service":
            yield from self.service_uplink()
        else:
            yield from self.mqtt_uplink(request.getfixturevalue("start_mosquitto")(), request.param)

    def service_uplink(self) -> Iterator[Uplink]:
        with service_running.running() as bench:
            device_id = bench.device()
            command_id = bench.send(device_id)
            keys = KeyPair(bench.service.api_key, bench.service.secret_key)
            with ServiceClient(bench.service.base_url, keys) as client:
                uplink = HttpDevice(client, device_id, Discovery(client, FakeClock()))
                uplink.command_id = command_id  # type: ignore[attr-defined]  # a service knows no other
                yield uplink

    def mqtt_uplink(self, broker: Mosquitto, kind: str) -> Iterator[Uplink]:
        gateway = GatewayStandIn(broker)
        device = RunningDevice(broker, version="3.1.1" if "3.1.1" in kind else "5")
        yield device
        device.stop()
        gateway.close()

    def test_what_was_stored_is_delivered(self, uplink):
        outcome = uplink.send(stored(1, 2))
        assert outcome.delivered == (1, 2)
        assert outcome.refused == {}

    def test_readings_that_are_sent_again_are_delivered_again(self, uplink):
        uplink.send(stored(1, 2))
        assert uplink.send(stored(1, 2)).delivered == (1, 2)

    def test_no_readings_are_no_work(self, uplink):
        assert uplink.send([]).delivered == ()

    def test_a_report_is_taken(self, uplink):
        command_id = getattr(uplink, "command_id", "c1")
        uplink.report(Report(command_id, "in_progress"))
        uplink.report(Report(command_id, "succeeded", {"pong": True}))

    def test_readings_and_reports_may_go_at_the_same_time(self, uplink):
        command_id = getattr(uplink, "command_id", "c1")

        def report() -> None:
            for _ in range(20):
                uplink.report(Report(command_id, "succeeded"))

        with ThreadPoolExecutor(1) as pool:
            reported = pool.submit(report)
            assert [uplink.send(stored(n)).delivered for n in range(1, 21)] == [(n,) for n in range(1, 21)]
            reported.result(120)


class TestAReportThatHangs:
    """It holds no reading up."""

    def report(self, uplink: Uplink) -> threading.Thread:
        def hang() -> None:
            with suppress(ServiceError):
                uplink.report(Report("c1", "succeeded"))

        thread = threading.Thread(target=hang, daemon=True)
        thread.start()
        return thread

    @pytest.mark.parametrize("extensions", [None, ALL], ids=["table", "endpoint"])
    def test_over_http(self, serve, extensions):  # noqa: F811
        release, has_come = threading.Event(), threading.Event()

        def hold() -> Answer:
            has_come.set()
            return Answer(hold=release)

        _, client = serve(Plan(extensions, runtime_data=hold, result=hold))
        uplink = make_uplink(client)
        hanging = self.report(uplink)
        assert has_come.wait(60)
        assert uplink.send(stored(1)).delivered == (1,)
        assert hanging.is_alive()
        release.set()
        hanging.join(60)

    def test_over_mqtt(self, start_mosquitto):
        broker = start_mosquitto()
        gateway = GatewayStandIn(broker, confirms=False)
        device = RunningDevice(broker)
        hanging = self.report(device)
        gateway.wait_until(lambda: ("c1", "succeeded") in gateway.results)
        gateway.confirms = True
        assert device.send(stored(1)).delivered == (1,)
        assert hanging.is_alive()
        device.stop()
        gateway.close()
        hanging.join(60)
        assert not hanging.is_alive()


class TestReadings:
    def test_several_go_as_an_array_where_that_is_offered(self, serve):  # noqa: F811
        server, client = serve(Plan(ALL, sensor_data=Answer(200, {"accepted": 2, "errors": []})))
        assert make_uplink(client).send(stored(1, 2)).delivered == (1, 2)
        [(_, headers, body)] = posts(server)
        assert [each["sensor_data"]["n"] for each in body] == [1.0, 2.0]
        assert headers["idempotency-key"]

    def test_the_same_readings_have_the_same_idempotency_key_and_others_another(self, serve):  # noqa: F811
        server, client = serve(Plan(ALL, sensor_data=Answer(200, {"accepted": 2, "errors": []})))
        uplink = make_uplink(client)
        for numbers in ((1, 2), (1, 2), (1, 3)):
            uplink.send(stored(*numbers))
        keys = [headers["idempotency-key"] for _, headers, _ in posts(server)]
        assert keys[0] == keys[1] != keys[2]

    def test_one_reading_goes_alone_under_its_own_key(self, serve):  # noqa: F811
        server, client = serve(Plan(ALL))
        make_uplink(client).send(stored(1))
        assert posts(server)[0][1]["idempotency-key"] == "key-1"

    def test_what_an_array_left_out_is_refused_with_its_reason(self, serve):  # noqa: F811
        errors = [{"index": 1, "error": "validation_error", "message": "n is too large"}]
        _, client = serve(Plan(ALL, sensor_data=Answer(200, {"accepted": 1, "errors": errors})))
        outcome = make_uplink(client).send(stored(1, 2))
        assert outcome.delivered == (1,)
        assert outcome.refused == {2: "validation_error: n is too large"}

    def test_an_array_that_is_refused_is_halved_until_the_bad_one_stands_alone(self, serve):  # noqa: F811
        server: ScriptedServer

        def judge() -> Answer:
            body = server.bodies[-1]
            numbers = [each["sensor_data"]["n"] for each in (body if isinstance(body, list) else [body])]
            if 3.0 in numbers:
                return Answer(400, {"error": "validation_error", "message": "n"})
            return Answer(200, {"accepted": len(numbers), "errors": []}) if isinstance(body, list) else Answer(201, {})

        server, client = serve(Plan(ALL, sensor_data=judge))
        outcome = make_uplink(client).send(stored(1, 2, 3, 4, 5))
        assert sorted(outcome.delivered) == [1, 2, 4, 5]
        assert list(outcome.refused) == [3]

    @pytest.mark.parametrize("readings", [stored(1), stored(1, 2)], ids=["alone", "array"])
    def test_a_key_that_the_service_knows_from_another_body_is_no_delivery(self, serve, readings):  # noqa: F811
        reused = Answer(422, {"error": "idempotency_key_reused", "message": "used for another body"})
        server, client = serve(Plan(ALL, sensor_data=reused))
        outcome = make_uplink(client).send(readings)
        assert not outcome.delivered
        assert set(outcome.refused) == {reading.key for reading in readings}
        assert len(server.bodies) > len(readings), "each was tried under a key of its own content"

    def test_an_answer_that_does_not_say_which_ones_it_took_is_asked_one_by_one(self, serve):  # noqa: F811
        server: ScriptedServer

        def judge() -> Answer:
            is_array = isinstance(server.bodies[-1], list)
            return Answer(200, {"accepted": 1, "errors": []}) if is_array else Answer(201, {})

        server, client = serve(Plan(ALL, sensor_data=judge))
        assert make_uplink(client).send(stored(1, 2, 3)).delivered == (1, 2, 3)

    def test_a_failing_service_delivers_nothing(self, serve):  # noqa: F811
        _, client = serve(Plan(ALL, sensor_data=Answer(503, {"error": "server_error"})))
        with pytest.raises(ServerFault):
            make_uplink(client).send(stored(1, 2))

    def test_what_went_well_before_the_trouble_is_told(self, serve):  # noqa: F811
        answers = [Answer(201, {}), Answer(500, {"error": "server_error"})]
        _, client = serve(Plan(sensor_data=lambda: answers.pop(0)))
        assert make_uplink(client).send(stored(1, 2)).delivered == (1,)

    @pytest.mark.parametrize("status", [404, 405])
    def test_a_wrong_address_empties_no_outbox(self, serve, status):  # noqa: F811
        _, client = serve(Plan(sensor_data=Answer(status, {"error": "not_found"})))
        with pytest.raises(ServiceError):
            make_uplink(client).send(stored(1))

    def test_a_reading_that_is_none_is_refused_before_it_is_sent(self, serve):  # noqa: F811
        server, client = serve(Plan())
        empty = StoredReading(7, "key-7", make_reading({}))
        outcome = make_uplink(client).send([empty, *stored(1)])
        assert outcome.delivered == (1,)
        assert outcome.refused[7].startswith("invalid_reading:")
        assert len(posts(server)) == 1

    def test_a_moment_without_a_trusted_time_leaves_it_to_the_service(self, serve):  # noqa: F811
        server, client = serve(Plan())
        HttpDevice(client, "d1", Discovery(client, FakeClock()), recorded_at=lambda moment: None).send(stored(1))
        assert "recorded_at" not in posts(server)[0][2]


class TestReports:
    def test_a_result_goes_to_its_command_where_that_is_offered(self, serve):  # noqa: F811
        record = {"id": "c/1", "command_payload": {}, "status": "failed"}
        server, client = serve(Plan(ALL, result=Answer(200, record)))
        make_uplink(client).report(Report("c/1", "failed", None, "timeout: too long"))
        path, _, body = posts(server)[0]
        assert path == "/devices/d1/commands/c%2F1/result"
        assert body == {"status": "failed", "error": "timeout: too long"}

    def test_on_a_plain_server_it_becomes_a_runtime_record(self, serve):  # noqa: F811
        server, client = serve(Plan())
        make_uplink(client).report(Report("c1", "succeeded", {"a": 1}, None, 1_767_225_600.0, 1_767_225_601.5))
        path, _, body = posts(server)[0]
        assert path == "/database/runtime-data"
        assert body == {
            "product_id": "p1",
            "device_id": "d1",
            "table_name": "command_results",
            "data_payload": {
                "command_id": "c1",
                "status": "succeeded",
                "result": {"a": 1},
                "error": None,
                "started_at": "2026-01-01T00:00:00.000Z",
                "finished_at": "2026-01-01T00:00:01.500Z",
            },
        }

    def test_progress_is_left_out_on_a_plain_server(self, serve):  # noqa: F811
        server, client = serve(Plan())
        make_uplink(client).report(Report("c1", "in_progress"))
        assert posts(server) == []

    def test_a_missing_table_is_named_with_what_to_do(self, serve):  # noqa: F811
        _, client = serve(Plan(runtime_data=Answer(404, {"error": "table_not_found"})))
        with pytest.raises(NotFound, match="table 'command_results': create it"):
            make_uplink(client).report(Report("c1", "succeeded"))

    def test_a_command_that_is_gone_is_told_and_the_offer_is_asked_again(self, serve):  # noqa: F811
        server, client = serve(Plan(ALL, result=Answer(404, {"error": "command_not_found"})))
        uplink = make_uplink(client)
        for _ in range(2):
            with pytest.raises(NotFound):
                uplink.report(Report("c1", "succeeded"))
        assert len([path for _, path, _ in server.asked if "well-known" in path]) == 2

    def test_what_cannot_be_a_result_is_refused_here(self, serve):  # noqa: F811
        _, client = serve(Plan(ALL))
        with pytest.raises(Refused):
            make_uplink(client).report(Report("c1", "nonsense"))


class TestDiscovery:
    def test_it_asks_once_an_hour_and_keeps_the_last_answer_through_trouble(self, serve):  # noqa: F811
        plan = Plan(ALL)
        server, client = serve(plan)
        clock = FakeClock()
        discovery = Discovery(client, clock)
        assert discovery.offers("command-results")
        assert discovery.offers("idempotency-key")
        assert len(server.asked) == 1
        server.stop()
        clock.advance(4000)
        assert discovery.offers("command-results")

    def test_it_raises_while_it_never_had_an_answer(self, serve):  # noqa: F811
        server, client = serve(Plan(ALL))
        server.stop()
        with pytest.raises(TransportError):
            Discovery(client, FakeClock()).offers("command-results")
