"""Pages end by their bytes too: each list is whole, in order and without a repeat, in pages of about 4 MiB at most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent.wire.auth import KeyPair
from agent.wire.limits import BODY_BYTES
from simulator.service.paging import PAGE_BYTES
from tests.service_running import Bench, running

LARGE = 250_000
"""Bytes of an item: 17 of them are more than a page takes."""
ITEMS = 20


@pytest.fixture(scope="module")
def bench():
    with running() as made:
        yield made


def test_readings(bench: Bench):
    device_id = bench.device(identifier="readings")
    for number in range(ITEMS):
        _post_reading(bench, device_id, number)
    for order in ("asc", "desc"):
        shown = _walk(bench, f"/sensor-data?device_id={device_id}&limit=1000&order={order}")
        numbers = [item["sensor_data"]["number"] for item in shown]
        assert numbers == sorted(range(ITEMS), reverse=order == "desc")


def test_readings_of_which_little_is_asked_fill_a_page_to_its_limit(bench: Bench):
    device_id = bench.device(identifier="keys")
    for number in range(ITEMS):
        _post_reading(bench, device_id, number)
    page = bench.http.get(f"/sensor-data?device_id={device_id}&limit={ITEMS - 1}&keys=number").json()
    assert len(page["data"]) == ITEMS - 1
    assert page["has_more"]


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_buckets(bench: Bench, order: str):
    device_id = bench.device(identifier=f"buckets {order}")
    for number in range(ITEMS):
        _post_reading(bench, device_id, number)
    shown = _walk(bench, f"/sensor-data?device_id={device_id}&limit=1000&order={order}&agg=max&interval=60")
    numbers = [item["sensor_data"]["number"] for item in shown]
    assert numbers == sorted(range(ITEMS), reverse=order == "desc")
    assert {len(item["sensor_data"]) for item in shown} == {LARGE // 1000 + 1}


def test_a_bucket_that_is_larger_than_a_page_is_a_page(bench: Bench):
    device_id = bench.device(identifier="a large bucket")
    for number in range(20):
        names = {f"{number}/{n:03}{'x' * 990}": n for n in range(LARGE // 1000)}
        assert bench.post_reading(device_id, sensor_data=names, recorded_at=number // 19 * 60_000).status_code == 201
    url = f"/sensor-data?device_id={device_id}&agg=max&interval=60&order=asc"
    first = bench.http.get(url)
    assert len(first.content) > PAGE_BYTES
    assert len(first.json()["data"]) == 1
    (second,) = bench.http.get(first.links["next"]["url"]).json()["data"]
    assert len(second["sensor_data"]) == LARGE // 1000


def test_runtime_data(bench: Bench):
    product_id = bench.product()
    device_id = bench.device(product_id, identifier="runtime")
    schema = bench.http.post(f"/products/{product_id}/database/schemas", json={"name": "notes"}).json()
    columns = [{"name": "text", "type": "string"}, {"name": "number", "type": "integer"}]
    table = {"schema_id": schema["schema_id"], "table_name": "notes", "columns": columns}
    assert bench.http.post("/database/tables", json=table).status_code == 201
    for number in range(ITEMS):
        payload = {"text": "x" * LARGE, "number": number}
        record = {"product_id": product_id, "device_id": device_id, "table_name": "notes", "data_payload": payload}
        assert bench.http.post("/database/runtime-data", json=record).status_code == 201
    shown = _walk(bench, f"/database/runtime-data?device_id={device_id}&limit=1000&order=asc")
    assert [item["data_payload"]["number"] for item in shown] == list(range(ITEMS))


def test_products(bench: Bench):
    before = len(_walk(bench, "/products?limit=1000", pages=None))
    ids = [bench.product(description="x" * LARGE) for _ in range(ITEMS)]
    shown = _walk(bench, "/products?limit=1000")
    assert [item["product_id"] for item in shown][before:] == ids


def test_devices(bench: Bench):
    product_id = bench.product()
    ids = [bench.device(product_id, identifier=f"large {number}") for number in range(ITEMS)]
    for device_id in ids:
        answer = bench.http.put(f"/devices/{device_id}", json={"metadata": {"text": "x" * LARGE}})
        assert answer.status_code == 200, answer.text
    assert [item["device_id"] for item in _walk(bench, f"/devices?product_id={product_id}&limit=1000")] == ids


def test_commands(bench: Bench):
    """A poll delivers what it lists, and not what is on the next page."""
    device_id = bench.device(identifier="commands")
    text = "x" * 64_000
    sent = [
        bench.http.post("/commands/send", json={"device_id": device_id, "command_payload": {"text": text}}).json()["id"]
        for _ in range(100)
    ]
    first = bench.poll(device_id, limit=1000)
    listed = [item["id"] for item in first.json()["data"]]
    assert listed == sent[: len(listed)]
    assert {item["status"] for item in first.json()["data"]} == {"delivered"}
    untouched = bench.command(device_id, sent[-1])
    assert untouched["status"] == "queued"
    for path in (f"/devices/{device_id}/commands?status=open&limit=1000", f"/devices/{device_id}/commands?order=asc"):
        assert [item["id"] for item in _walk(bench, path)] == sent


def test_the_client_reads_lists_whole(bench: Bench):
    from simulator.wire.client import ServiceClient

    device_id = bench.device(identifier="client")
    for number in range(ITEMS):
        _post_reading(bench, device_id, number)
    with ServiceClient(bench.service.base_url, KeyPair(bench.service.api_key, bench.service.secret_key)) as client:
        shown = list(client.sensor_data(device_id=device_id, order="asc", limit=1000))
    assert [item.sensor_data["number"] for item in shown] == list(range(ITEMS))


def _post_reading(bench: Bench, device_id: str, number: int) -> None:
    names = {f"{n:03}{'x' * 990}": n for n in range(LARGE // 1000)}
    at = 1_767_225_600_000 + number * 60_000
    answer = bench.post_reading(device_id, sensor_data={"number": number, **names}, recorded_at=at)
    assert answer.status_code == 201, answer.text


def _walk(bench: Bench, url: str, pages: Callable[[int], bool] | None = lambda number: number > 1) -> list[Any]:
    """The items of all pages; each within its bound, and as full as that lets it be."""
    items: list[Any] = []
    sizes: list[int] = []
    following: str | None = url
    while following:
        answer = bench.http.get(following)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert page["data"]
        items += page["data"]
        sizes.append(len(answer.content))
        following = answer.links["next"]["url"] if "next" in answer.links else None
        assert page["has_more"] == (page["next_cursor"] is not None) == (following is not None)
    assert max(sizes) <= PAGE_BYTES + 4096
    assert all(size > PAGE_BYTES - BODY_BYTES - 4096 for size in sizes[:-1])
    assert pages is None or pages(len(sizes))
    return items
