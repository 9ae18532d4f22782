"""Pages end by their bytes too: each list is whole, in order and without a repeat, in pages of about 4 MiB at most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent.wire.limits import BODY_BYTES
from simulator.service.paging import PAGE_BYTES
from tests.support.service_running import Bench, running

LARGE = 250_000
"""Bytes of an item: 17 of them are more than a page takes."""
ITEMS = 20


@pytest.fixture(scope="module")
def bench():
    with running() as made:
        yield made


def test_readings_and_buckets(bench: Bench):
    device_id = bench.device(identifier="readings")
    names = {f"{n:03}{'x' * 990}": n for n in range(LARGE // 1000)}
    for number in range(ITEMS):
        at = 1_767_225_600_000 + number * 60_000
        answer = bench.post_reading(device_id, sensor_data={"number": number, **names}, recorded_at=at)
        assert answer.status_code == 201, answer.text
    url = f"/sensor-data?device_id={device_id}"
    for order in ("asc", "desc"):
        for more in ("", "&agg=max&interval=60"):
            shown = _walk(bench, f"{url}&limit=1000&order={order}{more}")
            numbers = [item["sensor_data"]["number"] for item in shown]
            assert numbers == sorted(range(ITEMS), reverse=order == "desc")
            assert {len(item["sensor_data"]) for item in shown} == {LARGE // 1000 + 1}
    page = bench.http.get(f"{url}&limit={ITEMS - 1}&keys=number").json()  # little is asked of each: all of them fit
    assert (len(page["data"]), page["has_more"]) == (ITEMS - 1, True)


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


def records(bench: Bench) -> tuple[str, list[str]]:
    product_id = bench.product()
    device_id = bench.device(product_id, "runtime")
    record = {"product_id": product_id, "device_id": device_id, "table_name": "command_results"}
    payload = {"command_id": "1", "status": "succeeded", "result": {"text": "x" * LARGE}}
    made = [bench.http.post("/database/runtime-data", json={**record, "data_payload": payload}) for _ in range(ITEMS)]
    return f"/database/runtime-data?product_id={product_id}&order=asc", [one.json()["id"] for one in made]


def products(bench: Bench) -> tuple[str, list[str]]:
    before = [item["product_id"] for item in _walk(bench, "/products?limit=1000", pages=None)]
    return "/products?", before + [bench.product(description="x" * LARGE) for _ in range(ITEMS)]


def devices(bench: Bench) -> tuple[str, list[str]]:
    product_id = bench.product()
    ids = [bench.device(product_id, identifier=f"large {number}") for number in range(ITEMS)]
    for device_id in ids:
        answer = bench.http.put(f"/devices/{device_id}", json={"metadata": {"text": "x" * LARGE}})
        assert answer.status_code == 200, answer.text
    return f"/devices?product_id={product_id}", ids


@pytest.mark.parametrize(("make", "member"), [(records, "id"), (products, "product_id"), (devices, "device_id")])
def test_lists_of_large_records(bench: Bench, make: Callable[[Bench], tuple[str, list[str]]], member: str):
    path, ids = make(bench)
    assert [item[member] for item in _walk(bench, f"{path}&limit=1000")] == ids


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
