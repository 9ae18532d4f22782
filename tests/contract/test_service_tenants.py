"""Two manufacturers on one service: neither sees, changes or guesses anything of the other's."""

from __future__ import annotations

import pytest

from tests.service_running import client, running

REQUESTS = [
    ("PUT", "/products/{product}", {"name": "mine now"}),
    ("DELETE", "/products/{product}", None),
    ("GET", "/products/{product}/commands", None),
    ("GET", "/devices/{device}/commands", None),
    ("GET", "/devices/{device}/commands?status=open", None),
    ("GET", "/devices/{device}/commands/{command}", None),
    ("POST", "/devices/{device}/commands/{command}/result", {"status": "succeeded"}),
    ("POST", "/commands/send", {"device_id": "{device}", "command_payload": {}}),
    ("POST", "/sensor-data", {"device_id": "{device}", "sensor_data": {"t": 1}}),
    ("GET", "/sensor-data?device_id={device}", None),
    ("POST", "/onboarding/scan-qr", {"qr_data": '{"v":1,"product_id":"{product}","device_identifier":"SN-000001"}'}),
    ("POST", "/onboarding/device", {"user_id": "u", "product_id": "{product}", "device_identifier": "x"}),
    ("GET", "/onboarding/user/user-0001/devices", None),
    ("DELETE", "/onboarding/device/{device}", None),
]


@pytest.fixture(scope="module")
def tenants():
    with running() as bench:
        other = bench.service.add_account("other")
        product_id = bench.product()
        device_id = bench.device(product_id)
        ids = {"product": product_id, "device": device_id, "command": bench.send(device_id)}
        bench.post_reading(device_id)
        with client(bench.service, other.api_key, other.secret_key.reveal()) as http:
            yield bench, http, ids


def _filled(value, ids):
    if isinstance(value, dict):
        return {name: _filled(member, ids) for name, member in value.items()}
    if isinstance(value, str):
        for name, given in ids.items():
            value = value.replace(f"{{{name}}}", given)
    return value


def _state(bench, ids):
    device = ids["device"]
    paths = ("/products", f"/devices/{device}/commands", f"/sensor-data?device_id={device}", "/devices")
    return [bench.http.get(path).json() for path in paths]


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS, ids=[f"{m} {p}" for m, p, _ in REQUESTS])
def test_anothers_resource_is_404_and_stays_as_it_was(tenants, method, path, body):
    bench, other, ids = tenants
    before = _state(bench, ids)
    answer = other.request(method, _filled(path, ids), json=_filled(body, ids))
    assert answer.status_code == 404, answer.text
    assert _state(bench, ids) == before


def test_lists_hold_ones_own_only(tenants):
    _, other, ids = tenants
    for path in ("/products", "/devices", "/sensor-data"):
        assert other.get(path).json()["data"] == []
    assert other.get(f"/devices?product_id={ids['product']}").status_code == 404


def test_the_same_names_live_side_by_side(tenants):
    bench, other, _ = tenants
    product_id = other.post("/products", json={"name": "Door controller"}).json()["product_id"]
    body = {"user_id": "user-0001", "product_id": product_id, "device_identifier": "SN-000001"}
    device_id = other.post("/onboarding/device", json=body).json()["device_id"]
    assert len(other.get("/onboarding/user/user-0001/devices").json()["data"]) == 1
    assert len(bench.http.get("/onboarding/user/user-0001/devices").json()["data"]) == 1
    key = {"idempotency-key": "shared"}
    mine = bench.http.post("/products", json={"name": "a"}, headers=key).json()
    theirs = other.post("/products", json={"name": "b"}, headers=key).json()
    assert (mine["name"], theirs["name"]) == ("a", "b")
    page = bench.http.get("/products?limit=1").json()
    assert other.get("/products", params={"limit": 1, "cursor": page["next_cursor"]}).status_code == 400
    assert other.delete(f"/onboarding/device/{device_id}").status_code == 204
