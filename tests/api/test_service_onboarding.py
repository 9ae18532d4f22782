"""Onboarding, products and devices over a real socket, in every order of events."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.wire.qr import LabelText, encode_label
from simulator.wire.qr.keys import KINDS, LabelSigner
from tests.support.service_running import running


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


def test_what_is_no_label_of_a_product_is_refused(bench):
    for text, status, error in (
        ("hello", 400, "invalid_qr"),
        (encode_label(LabelText("none", "a")), 404, "product_not_found"),
        ("x" * 4097, 413, "payload_too_large"),
    ):
        answer = _scan(bench, text)
        assert (answer.status_code, answer.json()["error"]) == (status, error)


PROFILES = ({"profile": "json"}, {"profile": "link", "host": "onboard.example.com"}, {"profile": "compact"})


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_that_signs_its_labels_takes_no_others(bench, kind):
    signer = LabelSigner.make(kind)
    product_id = bench.product(label_key=signer.reveal_label_key())
    for profile in PROFILES:
        label = LabelText(product_id, "SN-1", **profile)
        signed = signer.sign(label)
        good = _scan(bench, encode_label(signed))
        assert good.status_code == 200
        assert good.json()["qr_info"]["sig"] == signed.sig
        strange = LabelSigner.make(kind).sign(label)
        for bad in (label, replace(signed, device_identifier="SN-2"), replace(label, sig=strange.sig)):
            answer = _scan(bench, encode_label(bad))
            assert (answer.status_code, answer.json()["error"]) == (400, "invalid_signature")
    answer = _scan(bench, encode_label(LabelText(product_id, "SN-1", "forged")))
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_signature")


def test_a_scan_tells_which_profile_a_label_has_and_takes_a_signature_that_nothing_can_check(bench):
    product_id = bench.product()
    shown = {"v": 1, "product_id": product_id, "device_identifier": "SN-1"}
    for profile, more in zip(PROFILES, ({}, PROFILES[1], PROFILES[2]), strict=True):
        label = LabelText(product_id, "SN-1", **profile)
        assert _scan(bench, encode_label(label)).json()["qr_info"] == {**shown, **more}
        signed = LabelSigner.make("ed25519").sign(label)
        assert _scan(bench, encode_label(signed)).json()["qr_info"]["sig"] == signed.sig


def test_a_secret_label_key_is_never_shown_and_stays_when_the_record_is_sent_back(bench):
    signer = LabelSigner.make("hmac-sha256")
    made = bench.http.post("/products", json={"name": "a", "label_key": signer.reveal_label_key()})
    path, product = made.headers["location"], made.json()
    assert product["label_key"] == signer.key.shown
    label = encode_label(signer.sign(LabelText(product["product_id"], "SN-1")))
    for text in (made.text, bench.http.get("/products").text, _scan(bench, label).text):
        assert signer.reveal_label_key().partition(":")[2] not in text
    changed = bench.http.put(path, json={**product, "name": "b"})
    assert (changed.status_code, changed.json()["label_key"]) == (200, signer.key.shown)
    assert _scan(bench, label).status_code == 200
    other = bench.http.put(path, json={"label_key": "hmac-sha256:id=0123456789abcdef"})
    assert (other.status_code, other.json()["error"]) == (409, "label_key_hidden")
    assert bench.http.put(path, json={"label_key": None}).json()["label_key"] is None
    assert bench.http.put(path, json={"label_key": signer.key.shown}).status_code == 409


def test_a_label_key_that_could_check_nothing_is_refused_and_a_public_one_is_shown_as_it_is(bench):
    for key in ("", "secret", "hmac-sha256:id=0123456789abcdef"):
        answer = bench.http.post("/products", json={"name": "a", "label_key": key})
        assert (answer.status_code, answer.json()["details"][0]["field"]) == (400, "label_key")
    public = LabelSigner.make("ed25519").reveal_label_key()
    assert bench.http.post("/products", json={"name": "a", "label_key": public}).json()["label_key"] == public


def test_a_second_registration_answers_the_same_record_to_the_same_user_only(bench):
    product_id = bench.product()
    body = {"user_id": "u", "product_id": product_id, "device_identifier": "a", "device_name": "Door"}
    first = bench.http.post("/onboarding/device", json=body)
    assert first.status_code == 201
    assert first.headers["location"] == f"/devices/{first.json()['device_id']}"
    bench.clock.advance(5)
    second = bench.http.post("/onboarding/device", json={**body, "device_name": "Another name"})
    assert (second.status_code, second.json()) == (200, first.json())
    others = bench.http.post("/onboarding/device", json={**body, "user_id": "v"})
    assert (others.status_code, others.json()["error"]) == (409, "device_already_registered")
    assert bench.device(bench.product(), "a", user_id="v") != first.json()["device_id"]  # of another product


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
    unknown = bench.http.get("/devices", params={"product_id": "no-such-product"})
    assert (unknown.status_code, unknown.json()["error"]) == (404, "product_not_found")


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


def test_a_change_of_a_device_that_says_nothing_or_too_much_is_refused(bench):
    for body in ({}, {"device_name": None}, {"firmware_version": ""}, {"status": "online"}):
        assert bench.http.put(f"/devices/{bench.device()}", json=body).status_code == 400, body


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
