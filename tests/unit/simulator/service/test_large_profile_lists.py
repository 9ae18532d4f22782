"""Large lists under another profile than the complete one: whole, bounded, and beside the event loop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from agent.wire.limits import BODY_BYTES
from simulator.service.profile_layer import exchange, layer, lists
from tests.profiles import outside, profile, running_as, switch
from tests.service_running import Bench

WAIT_S = 120
ITEMS = 30
LARGE = 200_000


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """A plain server with 6 MB of readings."""
    with running_as(profile("plain")) as bench:
        device_id = _device(bench)
        for number in range(ITEMS):
            names = {f"{n:03}{'x' * 990}": n for n in range(LARGE // 1000)}
            answer = bench.http.post(
                "/sensor-data", json={"device_id": device_id, "sensor_data": {"n": number, **names}}
            )
            assert answer.status_code in range(200, 300), answer.text
        yield bench


@pytest.fixture
def http(bench: Bench) -> Iterator[httpx.Client]:
    """Sees the server that the profile makes of the service."""
    with outside(bench) as client:
        yield client


def _device(bench: Bench) -> str:
    product = bench.http.post("/products", json={"name": "Door"}).json()
    body = {"user_id": "u", "product_id": product["product_id"], "device_identifier": "SN-1"}
    return str(bench.http.post("/onboarding/device", json=body).json()["device_id"])


def _numbers(answer: Any) -> list[int]:
    assert answer.status_code == 200, answer.text
    value = answer.json()
    items = value if isinstance(value, list) else value["data"]
    return [item["sensor_data"]["n"] for item in items]


def test_a_server_without_pages_answers_the_whole_list(bench: Bench, http: httpx.Client) -> None:
    switch(bench, profile("plain", list_shape="bare"))
    assert sorted(_numbers(http.get("/sensor-data"))) == list(range(ITEMS))


def test_the_complete_services_pages_lead_through_the_whole_list(bench: Bench, http: httpx.Client) -> None:
    switch(bench, profile(time_format="epoch_s"))
    shown: list[int] = []
    following: str | None = "/sensor-data?limit=1000"
    while following:
        answer = http.get(following)
        assert len(answer.content) < exchange.INNER_PAGE_BYTES + 4096
        shown += _numbers(answer)
        following = answer.links["next"]["url"] if "next" in answer.links else None
    assert sorted(shown) == list(range(ITEMS))


def test_a_list_that_is_too_long_for_a_profile_is_refused_and_never_cut(
    bench: Bench, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "LIST_BYTES", 2_000_000)
    for paging in ("none", "page_number"):
        switch(bench, profile("plain", paging=paging))
        refused = http.get("/sensor-data")
        assert (refused.status_code, refused.json()["error"]) == (500, "list_too_long")
    switch(bench, profile("plain", paging="complete"))
    assert http.get("/sensor-data").status_code == 200


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_no_call_decodes_or_encodes_more_than_a_page_at_once(
    bench: Bench, http: httpx.Client, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    switch(bench, profile("plain", list_shape="data_items", encoding=encoding))
    sizes: list[int] = []

    def from_json(raw: bytes, read: Any = exchange.from_json) -> Any:
        sizes.append(len(raw))
        return read(raw)

    def to_json(value: Any, write: Any = exchange.to_json) -> bytes:
        text: bytes = write(value)
        sizes.append(len(text))
        return text

    monkeypatch.setattr(exchange, "from_json", from_json)
    monkeypatch.setattr(exchange, "to_json", to_json)
    answer = http.get("/sensor-data")
    assert len(answer.json()["data"]["items"]) == ITEMS
    assert sum(sizes) > 2 * ITEMS * LARGE, "all of it was seen"
    assert max(sizes) < exchange.INNER_PAGE_BYTES + BODY_BYTES


def test_a_large_answer_is_rewritten_and_encoded_while_others_are_answered(
    bench: Bench, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch(bench, profile("plain"))
    held, go = threading.Event(), threading.Event()

    def hold(_exchange: Any) -> None:
        if _exchange.name == "list_sensor_data":
            held.set()
            assert go.wait(WAIT_S)

    monkeypatch.setattr(layer, "REWRITE", (*layer.REWRITE, hold))
    with ThreadPoolExecutor(1) as callers:
        try:
            asked = callers.submit(http.get, "/sensor-data")
            assert held.wait(WAIT_S)
            assert http.get("/devices").status_code == 200
            assert bench.http.get("/devices").status_code == 200
            assert not asked.done()
        finally:
            go.set()
        assert len(_numbers(asked.result())) == ITEMS
