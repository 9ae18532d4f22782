"""Single records: where ``Location`` leads, what of a device can be changed, and what a removed one leaves."""

from __future__ import annotations

import pytest

from tests.service_running import Bench, running


@pytest.fixture
def bench():
    with running() as bench:
        yield bench


def create_all(bench: Bench) -> dict[str, str]:
    """One of everything that can be created: the endpoint's name -> its ``Location``."""

    def post(operation: str, path: str, **body: object) -> dict:
        answer = bench.http.post(path, json=body)
        assert answer.status_code in {201, 202}, answer.text
        if "location" in answer.headers:
            locations[operation] = answer.headers["location"]
        return answer.json()

    locations: dict[str, str] = {}
    product_id = post("create_product", "/products", name="Door controller")["product_id"]
    device = {"user_id": "user/0001", "product_id": product_id, "device_identifier": "SN 1"}
    device_id = post("register_device", "/onboarding/device", **device)["device_id"]
    schema = post("create_schema", f"/products/{product_id}/database/schemas", name="visits")
    columns = [{"name": "n", "type": "integer"}]
    post("create_table", "/database/tables", schema_id=schema["schema_id"], table_name="log", columns=columns)
    record = {"product_id": product_id, "device_id": device_id, "table_name": "log", "data_payload": {"n": 1}}
    post("create_runtime_record", "/database/runtime-data", **record)
    trigger = {"reading": "t", "op": ">", "value": 20}
    action = {"type": "command", "command_payload": {"command": "cool"}}
    post("create_rule", "/rules", product_id=product_id, name="hot", trigger=trigger, actions=[action])
    post("send_command", "/commands/send", device_id=device_id, command_payload={"command": "ping"})
    post("post_sensor_data", "/sensor-data", device_id=device_id, sensor_data={"t": 1})
    return locations


def test_each_location_leads_to_what_was_created(bench):
    locations = create_all(bench)
    document = bench.http.get("/openapi.json").json()["paths"]
    creating = {
        (path, item["post"]["operationId"].partition("_post")[0])
        for path, item in document.items()
        if {"201", "202"} & item.get("post", {}).get("responses", {}).keys()
    }
    assert len(creating) >= len(locations)
    for name, location in locations.items():
        answer = bench.http.get(location)
        assert answer.status_code == 200, f"{name}: {location} answers {answer.status_code}"


def test_firmware_version_and_metadata_of_a_device_are_written_and_cleared(bench):
    device_id = bench.device()
    changed = bench.http.put(f"/devices/{device_id}", json={"firmware_version": "1.2.3", "metadata": {"site": "A"}})
    assert changed.status_code == 200
    shown = bench.http.get(f"/devices/{device_id}").json()
    assert (shown["firmware_version"], shown["metadata"]) == ("1.2.3", {"site": "A"})
    assert bench.http.get("/devices").json()["data"] == [shown]
    cleared = bench.http.put(f"/devices/{device_id}", json={"firmware_version": None, "metadata": None}).json()
    assert (cleared["firmware_version"], cleared["metadata"]) == (None, {})
    assert bench.http.put(f"/devices/{device_id}", json={"device_name": "hall"}).json()["device_name"] == "hall"


@pytest.mark.parametrize("body", [{}, {"device_name": None}, {"firmware_version": ""}, {"status": "online"}])
def test_a_change_of_a_device_that_says_nothing_or_too_much_is_refused(bench, body):
    assert bench.http.put(f"/devices/{bench.device()}", json=body).status_code == 400


def test_a_device_that_is_not_there_is_neither_shown_nor_changed(bench):
    assert bench.http.get("/devices/nobody").status_code == 404
    assert bench.http.put("/devices/nobody", json={"device_name": "x"}).status_code == 404


def test_devices_of_an_unknown_product_are_not_an_empty_list(bench):
    answer = bench.http.get("/devices", params={"product_id": "no-such-product"})
    assert (answer.status_code, answer.json()["error"]) == (404, "product_not_found")


def test_a_removed_device_leaves_neither_readings_nor_counts(bench):
    product_id = bench.product()
    gone, stays = bench.device(product_id, "SN-1"), bench.device(product_id, "SN-2")
    for device_id in (gone, stays):
        assert bench.post_reading(device_id).status_code == 201
        bench.send(device_id)
    assert bench.http.delete(f"/onboarding/device/{gone}").status_code == 204
    bench.clock.advance(1)
    assert {row["device_id"] for row in bench.http.get("/sensor-data").json()["data"]} == {stays}
    buckets = bench.http.get("/sensor-data", params={"agg": "count", "interval": 3600}).json()["data"]
    assert {row["device_id"] for row in buckets} == {stays}
    found = bench.http.get("/analytics/devices").json()
    assert sum(interval["count"] for interval in found["messages"]) == 1
    assert sum(interval["count"] for interval in found["commands"]) == 1


def test_a_reset_lets_the_clock_go_on(bench):
    bench.http.put("/_emulator/clock", json={"mode": "frozen", "time": "2030-01-01T00:00:00Z"})
    assert bench.http.post("/_emulator/reset").status_code == 204
    shown = bench.http.get("/_emulator/clock").json()
    assert (shown["mode"], shown["time"]) == ("real", shown["system_time"])


def test_a_quota_begins_anew_after_its_minute_although_the_clock_is_frozen():
    with running(rate_limit=2) as bench:
        bench.http.put("/_emulator/clock", json={"mode": "frozen"})
        statuses = [bench.http.get("/products").status_code for _ in range(3)]
        wait_s = int(bench.http.get("/products").headers["retry-after"])
        bench.clock.advance(wait_s)
        assert [*statuses, bench.http.get("/products").status_code] == [200, 200, 429, 200]


def test_what_the_specification_lacks_of_rules_is_an_extension(bench):
    paths = bench.http.get("/openapi.json").json()["paths"]
    marked = {
        (method, path): operation.get("x-extension")
        for path, operations in paths.items()
        if path.startswith("/rules")
        for method, operation in operations.items()
        if isinstance(operation, dict)
    }
    assert marked.pop(("get", "/rules")) is None
    assert set(marked.values()) == {True}
