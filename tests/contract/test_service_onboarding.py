"""Onboarding and products over a real socket, in every order of events."""

from __future__ import annotations

import base64
import json

import pytest

from agent.wire.qr import LabelText, encode_label
from simulator.service.signatures import sign
from tests.service_running import running


@pytest.fixture
def bench():
    with running() as bench:
        yield bench


def _scan(bench, text):
    return bench.http.post("/onboarding/scan-qr", json={"qr_data": text})


def test_a_scan_shows_the_product_and_changes_nothing(bench):
    product_id = bench.product()
    text = encode_label(LabelText(product_id, "SN-000001"))
    for _ in range(2):
        answer = _scan(bench, text).json()
        assert answer["product"]["product_id"] == product_id
        assert answer["already_registered"] is False
    assert bench.http.get("/devices").json()["data"] == []
    bench.device(product_id)
    assert _scan(bench, text).json()["already_registered"] is True


@pytest.mark.parametrize("text", ["", "hello", "[]", "{", "7", '{"v":2,"product_id":"a","device_identifier":"b"}'])
def test_a_text_that_is_no_label_is_invalid_qr(bench, text):
    answer = _scan(bench, text)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_qr")


def test_a_label_of_an_unknown_product_is_404_and_a_text_over_4_kib_is_413(bench):
    answer = _scan(bench, encode_label(LabelText("none", "a")))
    assert (answer.status_code, answer.json()["error"]) == (404, "product_not_found")
    assert _scan(bench, "x" * 4097).status_code == 413


def test_a_product_that_signs_its_labels_takes_no_others(bench):
    key = b"sixteen random b"
    encoded = base64.urlsafe_b64encode(key).decode().rstrip("=")
    product_id = bench.product(label_key=f"hmac-sha256:{encoded}")
    label = LabelText(product_id, "SN-1")
    good = encode_label(LabelText(product_id, "SN-1", sign(label, key)))
    assert _scan(bench, good).status_code == 200
    for bad in (label, LabelText(product_id, "SN-2", sign(label, key)), LabelText(product_id, "SN-1", "forged")):
        answer = _scan(bench, encode_label(bad))
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_signature")


def test_a_second_registration_by_the_same_user_answers_the_same_record(bench):
    product_id = bench.product()
    body = {"user_id": "u", "product_id": product_id, "device_identifier": "a", "device_name": "Door"}
    first = bench.http.post("/onboarding/device", json=body)
    assert first.status_code == 201
    assert first.headers["location"] == f"/onboarding/device/{first.json()['device_id']}"
    bench.clock.advance(5)
    second = bench.http.post("/onboarding/device", json={**body, "device_name": "Another name"})
    assert (second.status_code, second.json()) == (200, first.json())


def test_the_same_identifier_of_another_product_is_another_device(bench):
    assert bench.device(bench.product(), "same") != bench.device(bench.product(), "same", user_id="another")


def test_a_removed_device_is_gone_and_its_identifier_is_free(bench):
    product_id = bench.product()
    device_id = bench.device(product_id)
    command_id = bench.send(device_id)
    assert bench.http.delete(f"/onboarding/device/{device_id}").status_code == 204
    assert bench.http.delete(f"/onboarding/device/{device_id}").status_code == 404
    assert bench.poll(device_id).status_code == 404
    assert bench.report(device_id, command_id, "succeeded").status_code == 404
    assert bench.post_reading(device_id).status_code == 404
    assert bench.http.get("/sensor-data", params={"device_id": device_id}).status_code == 404
    assert bench.http.get("/devices").json()["data"] == []
    assert bench.http.get("/onboarding/user/user-0001/devices").json()["data"] == []
    again = bench.device(product_id, user_id="somebody-else")
    assert again != device_id
    assert bench.poll(again).json()["data"] == []


def test_devices_of_an_unknown_user_are_404(bench):
    answer = bench.http.get("/onboarding/user/nobody/devices")
    assert (answer.status_code, answer.json()["error"]) == (404, "user_not_found")


def test_a_user_id_may_hold_any_text(bench):
    product_id = bench.product()
    for number, (user_id, path) in enumerate(
        [("a/b", "a%2Fb"), ("ü%", "%C3%BC%25"), ("..", "%2E%2E"), ("'; --", "'; --")]
    ):
        device_id = bench.device(product_id, f"d{number}", user_id)
        listed = bench.http.get(f"/onboarding/user/{path}/devices").json()["data"]
        assert [device["device_id"] for device in listed] == [device_id]


@pytest.mark.parametrize("missing", ["user_id", "product_id", "device_identifier"])
def test_a_registration_without_a_required_field_names_it(bench, missing):
    body = {"user_id": "u", "product_id": "p", "device_identifier": "d"}
    del body[missing]
    answer = bench.http.post("/onboarding/device", json=body)
    assert answer.status_code == 400
    assert [detail["field"] for detail in answer.json()["details"]] == [missing]


def test_devices_are_filtered(bench):
    one, two = bench.product(), bench.product()
    first, second = bench.device(one, "a", "u1"), bench.device(two, "b", "u2")
    for query, expected in (
        ({"product_id": one}, [first]),
        ({"user_id": "u2"}, [second]),
        ({"device_identifier": "b"}, [second]),
        ({"product_id": one, "user_id": "u2"}, []),
        ({"status": "never_seen"}, [first, second]),
        ({"order": "desc"}, [second, first]),
    ):
        listed = bench.http.get("/devices", params=query).json()["data"]
        assert [device["device_id"] for device in listed] == expected
    assert bench.http.get("/devices?status=gone").status_code == 400


def test_a_product_keeps_unknown_members_and_changes_only_what_is_given(bench):
    made = bench.http.post("/products", json={"name": "a", "category": "c", "tariff": {"x": [1]}, "product_id": "mine"})
    product = made.json()
    assert product["tariff"] == {"x": [1]}
    assert product["product_id"] != "mine"
    path = made.headers["location"]
    bench.clock.advance(1)
    changed = bench.http.put(path, json={"description": "d", "category": None, "tariff": 2}).json()
    assert changed == {
        **product,
        "description": "d",
        "category": None,
        "tariff": 2,
        "updated_at": "2026-01-01T00:00:01.000Z",
    }
    assert bench.http.put(path, json=changed).status_code == 200  # a record may be sent back as it came
    for nothing in ({}, {"tariff": 3}, {"name": None}):
        assert bench.http.put(path, json=nothing).status_code == 400
    assert bench.http.delete(path).status_code == 204
    assert bench.http.put(path, json={"name": "b"}).status_code == 404


def test_a_product_with_devices_is_kept(bench):
    product_id = bench.product()
    device_id = bench.device(product_id)
    refused = bench.http.delete(f"/products/{product_id}")
    assert (refused.status_code, refused.json()["error"]) == (409, "product_in_use")
    bench.http.delete(f"/onboarding/device/{device_id}")
    assert bench.http.delete(f"/products/{product_id}").status_code == 204
    assert bench.http.get(f"/products/{product_id}/commands").status_code == 404


def test_sql_in_every_text_is_text(bench):
    evil = "'; DROP TABLE devices; --"
    product_id = bench.product(name=evil, metadata={evil: evil})
    device_id = bench.device(product_id, evil, evil)
    bench.post_reading(device_id, sensor_data={evil: 1})
    assert bench.http.get("/products").json()["data"][0]["name"] == evil
    assert bench.http.get("/devices", params={"user_id": evil}).json()["data"][0]["device_identifier"] == evil
    assert bench.http.get("/sensor-data", params={"keys": evil}).json()["data"][0]["sensor_data"] == {evil: 1}
    assert json.loads(bench.http.get("/devices", params={"product_id": evil}).text)["data"] == []
