from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.wire.client import ServiceClient

BASE = "http://service.test/v1"


def client_of(handle: Callable[[httpx.Request], httpx.Response]) -> ServiceClient:
    return ServiceClient(BASE, None, transport=httpx.MockTransport(handle))


# --- every way of paging ----------------------------------------------------------------------------------------------

COMMANDS = [{"id": f"c{n}", "command_payload": {"command": "ping"}} for n in range(12)]
Pager = Callable[[int, int, int, list[object]], dict[str, object]]
"""(first item, size, total, items) -> the answer's members beside or around the items."""


def wrapped(items: list[object]) -> dict[str, object]:
    return {"success": True, "data": {"commands": items, "total": 12}}


PAGERS: dict[str, Pager] = {
    "next_page_token": lambda at, size, total, items: {
        "commands": items,
        "nextPageToken": f"t{at + size}" if at + size < total else "",
    },
    "next absolute": lambda at, size, total, items: {
        "results": items,
        "count": total,
        "next": f"{BASE}/devices/d/commands?at={at + size}" if at + size < total else None,
    },
    "next path": lambda at, size, total, items: {
        "results": items,
        "links": {"next": f"/v1/devices/d/commands?at={at + size}"} if at + size < total else {},
    },
    "hal": lambda at, size, total, items: {
        "_embedded": {"commands": items},
        "_links": {"next": {"href": f"?at={at + size}"}} if at + size < total else {"self": {"href": "?at=0"}},
    },
    "page of pages": lambda at, size, total, items: {
        "commands": items,
        "page": at // size + 1,
        "total_pages": -(-total // size),
    },
    "page with total": lambda at, size, total, items: {
        "data": {"items": items},
        "pagination": {"page": at // size + 1, "per_page": size, "total": total},
    },
    "page with flag": lambda at, size, total, items: {
        "data": items,
        "meta": {"currentPage": at // size + 1, "hasNext": at + size < total},
    },
    "offset": lambda at, size, total, items: {"commands": items, "offset": at, "limit": size, "total": total},
    "skip in meta": lambda at, size, total, items: {"list": items, "meta": {"skip": at, "totalCount": total}},
    "all at once": lambda at, size, total, items: wrapped(list(COMMANDS)),
}


def paged(style: str, size: int) -> Callable[[httpx.Request], httpx.Response]:
    def handle(request: httpx.Request) -> httpx.Response:
        query = dict(request.url.params)
        assert request.url.path == "/v1/devices/d/commands"
        assert len(query) <= 1
        name, value = next(iter(query.items()), ("at", "0"))
        at = (int(value) - 1) * size if name == "page" else int(value.removeprefix("t"))
        answered = PAGERS[style](at, size, len(COMMANDS), list(COMMANDS[at : at + size]))
        return httpx.Response(200, json=answered)

    return handle


@given(st.sampled_from(sorted(PAGERS)), st.integers(1, 13))
def test_any_way_of_paging_gives_the_same_items(style, size):
    with client_of(paged(style, size)) as client:
        listed = client.device_commands("d")
    assert [record.id for record in listed.records] == [item["id"] for item in COMMANDS]
    assert (listed.incomplete, dict(listed.notes)) == (None, {})


@pytest.mark.parametrize(("pages", "is_whole"), [(2, True), (3, False)])
def test_a_list_is_not_read_on_beyond_the_largest_answer_and_one_that_ended_there_is_whole(pages, is_whole):
    def handle(request: httpx.Request) -> httpx.Response:
        at = int(request.url.params.get("cursor", "1"))
        command = {"id": f"c{at}", "command_payload": {"command": "x" * 600}}
        body = {"data": [command], "next_cursor": str(at + 1) if at < pages else None, "has_more": at < pages}
        return httpx.Response(200, json=body)

    with ServiceClient(BASE, None, transport=httpx.MockTransport(handle), max_answer_bytes=1000) as client:
        listed = client.device_commands("d")
    assert [record.id for record in listed.records] == ["c1", "c2"]
    assert (listed.incomplete is None) is is_whole
