"""The service answers the golden requests with the golden bodies, to the letter but for ids and error sentences."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.api.golden_bodies import EXCHANGES, READING, RULE, SCHEMA, C, D, P, golden
from tests.support.service_running import Bench, running


class Exchange:
    """Sends golden requests with the service's own ids, and reads its answers with the golden ones."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.ids: dict[str, str] = {}

    def run(self, name: str, **query: str) -> Any:
        row = EXCHANGES[name]
        body = None if "request" not in row else self._to_service(json.dumps(golden(row["request"])))
        answer = self.bench.http.request(
            row["method"],
            self._to_service(row["path"]),
            params={k: self._to_service(v) for k, v in {**row.get("query", {}), **query}.items()},
            headers={**row.get("headers", {}), "content-type": "application/json"},
            content=body,
        )
        assert answer.status_code == row["status"], answer.text
        if row["status"] in {201, 202}:
            assert self.bench.http.get(answer.headers["location"]).status_code == 200, "it leads to what was created"
        if "response" not in row:
            assert answer.content == b""
            return None
        return answer.json()

    def learn(self, golden_id: str, answer: dict[str, Any], member: str) -> None:
        self.ids[golden_id] = answer[member]

    def seen(self, answer: Any) -> Any:
        text = json.dumps(answer)
        for golden_id, ours in self.ids.items():
            text = text.replace(ours, golden_id)
        return json.loads(text)

    def _to_service(self, text: str) -> str:
        for golden_id, ours in self.ids.items():
            text = text.replace(golden_id, ours)
        return text

    def expect(self, name: str, response: str | None = None) -> None:
        assert self.seen(self.run(name)) == golden(response or EXCHANGES[name]["response"])


@pytest.fixture
def exchange():
    with running() as bench:
        yield Exchange(bench)


@pytest.fixture
def with_product(exchange):
    created = exchange.run("create a product")
    exchange.learn(P, created, "product_id")
    assert exchange.seen(created) == golden("product")
    return exchange


@pytest.fixture
def with_device(with_product):
    registered = with_product.run("register a device")
    with_product.learn(D, registered, "device_id")
    assert with_product.seen(registered) == golden("device")
    return with_product


def test_products_answer_the_golden_bodies(with_product):
    with_product.expect("list products")
    with_product.expect("list the command vocabulary")
    with_product.bench.clock.advance(1.25)
    with_product.expect("change a product")
    with_product.run("delete a product")


def test_onboarding_answers_the_golden_bodies(with_product):
    with_product.expect("scan a QR")
    registered = with_product.run("register a device")
    with_product.learn(D, registered, "device_id")
    with_product.expect("list devices of a user")
    with_product.bench.clock.advance(1.25)
    with_product.bench.poll(with_product.ids[D])
    expected = golden("device_list")  # but no firmware was told yet, and nobody changed the record since
    expected["data"][0] |= {"firmware_version": None, "updated_at": expected["data"][0]["created_at"]}
    assert with_product.seen(with_product.run("list devices")) == expected
    with_product.run("remove a device")
    assert with_product.run("list devices") == golden("device_list_empty")


def test_a_registration_with_the_required_fields_only_takes_the_identifier_as_name(with_product):
    registered = with_product.run("register a device with the required fields only")
    with_product.learn(D, registered, "device_id")
    assert with_product.seen(registered) == {**golden("device"), "device_name": "SN-000001"}


def test_commands_answer_the_golden_bodies(with_device):
    sent = with_device.run("send a command")
    with_device.learn(C, sent, "id")
    assert with_device.seen(sent) == golden("command_record")
    with_device.bench.clock.advance(1.25)
    with_device.expect("poll open commands")
    with_device.bench.clock.advance(1.25)
    with_device.expect("report a result")


def test_sensor_data_answers_the_golden_bodies(with_device):
    with_device.bench.clock.advance(2.5)
    stored = with_device.run("post sensor data")
    with_device.learn(READING, stored, "id")
    assert with_device.seen(stored) == golden("sensor_data_record")
    listed = with_device.seen(with_device.run("read sensor data"))
    expected = golden("sensor_data_list")
    del expected["data"][0]["sensor_data"]["door_open"]  # the request names keys, and this is none of them
    assert listed == expected
    assert with_device.run("post a batch of sensor data") == {"accepted": 2, "errors": []}


def test_the_discovery_document_lists_what_this_service_has(exchange):
    offered = exchange.run("discover extensions")["extensions"]
    assert set(offered) >= {*golden("discovery")["extensions"], "rule-management", "single-records"}


def test_rules_answer_the_golden_bodies(with_device):
    schema = with_device.run("create a schema")
    with_device.learn(SCHEMA, schema, "schema_id")
    with_device.run("create a table")
    created = with_device.run("create a rule")
    with_device.learn(RULE, created, "id")
    assert with_device.seen(created) == golden("rule")
    with_device.expect("read a rule")
    with_device.expect("list rules")
    with_device.bench.clock.advance(1.25)
    with_device.expect("change a rule")
    with_device.run("delete a rule")
    assert with_device.run("list rules")["data"] == []


def test_analytics_answer_the_golden_body_but_for_the_numbers(with_device):
    bench = with_device.bench
    for number in range(2, 21):
        bench.device(with_device.ids[P], f"SN-{number}")
    ids = [row["device_id"] for row in bench.http.get("/devices").json()["data"]]
    for device_id in ids[:2]:
        bench.post_reading(device_id)
    bench.clock.advance(1000)
    batch = [{"device_id": ids[number % 18 + 2], "sensor_data": {"t": 1}} for number in range(118)]
    bench.http.post("/sensor-data", json=batch)
    for _ in range(7):
        bench.send(ids[0])
    with_device.expect("read analytics")


def test_a_validation_error_names_every_faulty_member(with_device):
    answer = with_device.bench.http.post("/sensor-data", json={"sensor_data": {"temperature_c": "warm"}})
    assert answer.status_code == 400
    body = answer.json()
    assert body["error"] == golden("validation_error")["error"]
    assert sorted(body["details"], key=lambda d: d["field"]) == sorted(
        golden("validation_error")["details"], key=lambda d: d["field"]
    )
