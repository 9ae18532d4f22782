from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta, timezone
from itertools import count, islice

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import InvalidMessage, ServerFault, UnexpectedAnswer
from agent.wire.command_lists import DERIVED_IDS
from agent.wire.dialect import AnswerReading
from agent.wire.lists import read_page
from simulator.wire.client import ServiceClient

BASE = "http://service.test/v1"


def client_of(handle: Callable[[httpx.Request], httpx.Response]) -> ServiceClient:
    return ServiceClient(BASE, None, transport=httpx.MockTransport(handle))


def ids_from(handle: Callable[[httpx.Request], httpx.Response]) -> list[str]:
    with client_of(handle) as client:
        return [device.device_id for device in client.devices()]


def answering(value: object) -> Callable[[httpx.Request], httpx.Response]:
    return lambda request: httpx.Response(200, json=value)


DEVICE = {"device_id": "d1"}


@pytest.mark.parametrize(
    "value",
    [
        [DEVICE],
        {"data": [DEVICE]},
        {"items": [DEVICE], "tags": []},
        {"results": [DEVICE], "count": 1},
        {"devices": [DEVICE], "total": 1},
        {"success": True, "data": {"devices": [DEVICE]}},
        {"data": {"items": [DEVICE], "x": []}},
        {"data": [DEVICE], "next_cursor": None, "has_more": False},
        {"data": [DEVICE], "next_cursor": ""},
        {"data": [{"deviceId": "d1", "new": {}, "device_name": None}]},
        {"response": {"result": [DEVICE]}},
        {"_embedded": {"devices": [DEVICE]}, "_links": {"self": {"href": "/devices"}}, "errors": []},
        {"status": "ok", "payload": {"list": {"rows": [DEVICE]}}},
        {"devices": [DEVICE], "alerts": [], "data": {}},
        {"devices": {"d1": DEVICE}},
        {"data": [DEVICE], "current_page": 1, "last_page": 1, "links": [{"url": None, "active": True}]},
    ],
)
def test_a_list_is_found_in_any_shape(value):
    assert ids_from(answering(value)) == ["d1"]


@pytest.mark.parametrize("value", [[], {"data": []}, {"data": None}, {"devices": []}, {"devices": {}}])
def test_an_empty_list_is_found_in_any_shape(value):
    assert ids_from(answering(value)) == []


@pytest.mark.parametrize(
    "value", [None, 5, "x", {}, {"a": [], "b": []}, {"message": "ok"}, {"errors": []}, {"data": {}}]
)
def test_an_answer_without_a_list_is_no_empty_list(value):
    with pytest.raises(UnexpectedAnswer, match="check base_url"):
        ids_from(answering(value))


def test_an_empty_body_is_no_empty_list():
    with pytest.raises(UnexpectedAnswer, match="nothing where a list belongs"):
        ids_from(lambda request: httpx.Response(200))


@given(
    st.lists(st.lists(st.text("abc", min_size=1, max_size=4), max_size=4), min_size=1, max_size=6),
    st.sampled_from(["cursor", "cursor-and-flag", "link", "both"]),
    st.sampled_from(["data", "items", "devices"]),
)
def test_all_pages_come_in_order_however_the_service_pages(pages, style, word):
    def handle(request: httpx.Request) -> httpx.Response:
        index = int(request.url.params.get("cursor", request.url.params.get("page", "0")))
        last = index == len(pages) - 1
        body: dict[str, object] = {word: [{"device_id": name} for name in pages[index]]}
        headers = {}
        if style != "link":
            body["next_cursor"] = None if last else str(index + 1)
        if style != "cursor":
            body["has_more"] = not last
        if style in {"link", "both"} and not last:
            headers["Link"] = f'<{BASE}/x>; rel="prev", <{BASE}/devices?page={index + 1}>; rel="next"'
        return httpx.Response(200, json=body, headers=headers)

    assert ids_from(handle) == [name for page in pages for name in page]


@pytest.mark.parametrize(
    "link", ["</v1/devices?page=2>; rel=next", '<?page=2>;title="a, b";rel="last next"', "<devices?page=2>; REL=Next"]
)
def test_a_relative_next_link_is_followed(link):
    def handle(request: httpx.Request) -> httpx.Response:
        if "page" in request.url.params:
            return httpx.Response(200, json=[{"device_id": request.url.path}])
        return httpx.Response(200, json=[], headers={"Link": link})

    assert ids_from(handle) == ["/v1/devices"]


@pytest.mark.parametrize(
    "target",
    ["http://other.test/devices", "https://service.test/v1/devices", "http://service.test:81/", "//other.test/"],
)
def test_a_next_link_to_another_origin_is_not_followed(target):
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(200, json=[DEVICE], headers={"Link": f'<{target}>; rel="next"'})

    with pytest.raises(UnexpectedAnswer, match="not followed"):
        ids_from(handle)
    assert asked == ["service.test"]


@pytest.mark.parametrize(
    "answer",
    [
        lambda n: {"json": {"data": [DEVICE], "next_cursor": "same", "has_more": True}},
        lambda n: {"json": {"data": [DEVICE], "next_cursor": f"c{n % 3}"}},
        lambda n: {"json": [DEVICE], "headers": {"Link": f'<{BASE}/devices?page=1>; rel="next"'}},
        lambda n: {"json": {"data": [], "next_cursor": f"new-{n}"}},
    ],
)
def test_a_list_that_never_ends_is_stopped_with_an_error(answer):
    numbers = count()
    with pytest.raises(UnexpectedAnswer, match="for ever"):
        ids_from(lambda request: httpx.Response(200, **answer(next(numbers))))
    assert next(numbers) <= 102


def test_a_list_that_says_there_is_more_and_not_how_is_an_error_and_not_cut_short():
    with pytest.raises(UnexpectedAnswer, match="not how to get it"):
        ids_from(answering({"data": [DEVICE], "has_more": True}))


def test_pages_are_fetched_only_when_asked_for():
    numbers = count()

    def handle(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"data": [DEVICE], "next_cursor": str(next(numbers))})

    with client_of(handle) as client:
        assert len(list(islice(client.devices(), 2))) == 2
        assert len(list(client.devices(limit=3))) == 3
    assert next(numbers) == 5


def test_a_limit_beyond_a_page_asks_for_full_pages_and_ends_at_the_limit():
    asked: list[str | None] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params.get("limit"))
        return httpx.Response(200, json={"data": [DEVICE] * 1000, "next_cursor": str(len(asked))})

    with client_of(handle) as client:
        assert len(list(client.devices(limit=1500))) == 1500
        with pytest.raises(InvalidMessage):
            client.devices(limit=0)
    assert asked == ["1000", "1000"]


def test_an_error_in_the_middle_of_a_list_comes_after_what_was_read():
    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.params.get("cursor"):
            return httpx.Response(500, json={"error": "server_error"})
        return httpx.Response(200, json={"data": [DEVICE], "next_cursor": "2"})

    read: list[str] = []
    with client_of(handle) as client, pytest.raises(ServerFault):
        read.extend(device.device_id for device in client.devices())
    with client_of(handle) as client:
        devices = client.devices()
        assert next(devices).device_id == "d1"
        with pytest.raises(ServerFault):
            next(devices)


def test_a_record_of_the_wrong_shape_is_an_error_that_names_the_member():
    with pytest.raises(UnexpectedAnswer, match="no Device: device_name"):
        ids_from(answering([{"device_id": "d", "device_name": {}}]))


def test_a_cursor_that_is_a_number_is_followed():
    assert read_page({"data": [], "next_cursor": 5}).next_cursor == "5"
    assert read_page({"data": [], "nextCursor": "x", "hasMore": True}).has_more is True


def test_one_bad_command_never_hides_the_others():
    commands = [
        {"id": "a", "command_payload": {"command": "ping"}},
        {"id": "bad", "command_payload": "no object"},
        5,
        {"command_payload": {"command": "ping"}},
        {"id": "n", "command_payload": {"x": 2**70}},
        {"id": "s", "command_payload": {"x": "\ud800"}},
        {"command_payload": {"command": "ping"}, "created_at": 1767225600000},
        {"id": 9, "command_payload": '{"command":"ping"}', "status": None},
    ]
    raw = json.dumps({"commands": commands}).encode()
    with client_of(lambda request: httpx.Response(200, content=raw)) as client:
        listed = client.device_commands("d")
    assert [record.id for record in listed.records if not record.has_derived_id] == ["a", "9"]
    assert len({record.id for record in listed.records if record.has_derived_id}) == 2
    assert set(listed.notes) == {"derived_ids"}
    assert [text.split(" in the list")[0] for text in listed.malformed] == [
        "command 'bad'",
        "item 2",
        "command 'n'",
        "command 's'",
    ]


def test_a_list_of_ten_thousand_old_commands_is_read():
    commands = [{"id": str(n), "command_payload": {"command": "ping"}} for n in range(10_000)]
    with client_of(answering(commands)) as client:
        assert len(client.device_commands("d").records) == 10_000


EQUAL = {"command_payload": {"command": "ping"}, "created_at": "2026-01-01T00:00:00Z"}
OTHER = {"command_payload": {"command": "other"}, "created_at": "2026-01-01T00:00:00Z"}


def listed_ids(items: list[dict[str, object]]) -> list[str | None]:
    with client_of(answering(items)) as client:
        return [record.id for record in client.device_commands("d").records]


def test_equal_commands_without_ids_are_not_merged_and_keep_their_ids_as_the_list_grows_and_shrinks():
    three = listed_ids([EQUAL, OTHER, EQUAL, EQUAL])
    assert len(set(three)) == 4
    assert set(listed_ids([EQUAL, EQUAL])) < set(three)
    assert set(listed_ids([{**EQUAL, "status": "done"}, EQUAL, EQUAL, EQUAL, OTHER])) > set(three)


def test_a_command_that_moves_to_the_next_page_between_two_requests_is_one_command():
    pages = {"": [OTHER, EQUAL], "2": [EQUAL, {**OTHER, "created_at": 5}]}

    def handle(request: httpx.Request) -> httpx.Response:
        cursor = request.url.params.get("cursor", "")
        return httpx.Response(200, json={"data": pages[cursor], "next_cursor": "2" if not cursor else None})

    with client_of(handle) as client:
        assert len(client.device_commands("d").records) == 3


def test_the_client_reads_ids_and_times_as_configured():
    reading = AnswerReading(("meta", "uuid"), timezone(timedelta(hours=2)))
    item = {"command_payload": {}, "id": 1, "meta": {"uuid": "u"}, "created_at": "2026-01-01 02:00:00"}
    with ServiceClient(BASE, None, transport=httpx.MockTransport(answering([item])), reading=reading) as client:
        record = client.device_commands("d").records[0]
    assert (record.id, record.created_at) == ("u", 1767225600.0)


def test_what_cannot_be_read_of_commands_is_noted_once_with_an_example():
    items = [{"id": n, "command_payload": {}, "created_at": "x", "expires_at": "soon"} for n in range(3)]
    with client_of(answering(items)) as client:
        listed = client.device_commands("d")
    assert [record.id for record in listed.records] == ["0", "1", "2"]
    assert set(listed.notes) == {"unreadable_created_at", "unreadable_expires_at"}
    assert "'soon'" in listed.notes["unreadable_expires_at"]


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
    "continuation in meta": lambda at, size, total, items: {
        "value": items,
        "meta": {"continuation_token": f"t{at + size}" if at + size < total else None},
    },
    "relay": lambda at, size, total, items: {
        "data": {"commands": items, "pageInfo": {"hasNextPage": at + size < total, "endCursor": f"t{at + size}"}}
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
    "odata": lambda at, size, total, items: {
        "value": items,
        **({"@odata.nextLink": f"commands?at={at + size}"} if at + size < total else {}),
    },
    "links as array": lambda at, size, total, items: {
        "items": items,
        "links": [{"rel": "self", "href": "?at=0"}]
        + ([{"rel": "next", "href": f"?at={at + size}"}] if at + size < total else []),
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
    "page in headers": lambda at, size, total, items: {"commands": items},
    "spring": lambda at, size, total, items: {
        "content": items,
        "number": at // size,
        "totalPages": -(-total // size),
        "last": at + size >= total,
        "pageable": {"offset": at, "sort": {"sorted": False}},
    },
    "offset": lambda at, size, total, items: {"commands": items, "offset": at, "limit": size, "total": total},
    "skip in meta": lambda at, size, total, items: {"list": items, "meta": {"skip": at, "totalCount": total}},
    "next_offset": lambda at, size, total, items: {
        "commands": items,
        "next_offset": at + size if at + size < total else None,
    },
    "next_page": lambda at, size, total, items: {
        "commands": items,
        "next_page": at // size + 2 if at + size < total else None,
    },
    "all at once": lambda at, size, total, items: wrapped(list(COMMANDS)),
}


def paged(style: str, size: int) -> Callable[[httpx.Request], httpx.Response]:
    first_page = 0 if style == "spring" else 1

    def handle(request: httpx.Request) -> httpx.Response:
        query = dict(request.url.params)
        assert request.url.path == "/v1/devices/d/commands"
        assert len(query) <= 1
        name, value = next(iter(query.items()), ("at", "0"))
        at = (int(value) - first_page) * size if name == "page" else int(value.removeprefix("t"))
        answered = PAGERS[style](at, size, len(COMMANDS), list(COMMANDS[at : at + size]))
        pages = {"X-Page": str(at // size + 1), "X-Total-Pages": str(-(-len(COMMANDS) // size))}
        return httpx.Response(200, json=answered, headers=pages if style == "page in headers" else {})

    return handle


@given(st.sampled_from(sorted(PAGERS)), st.integers(1, 13))
def test_any_way_of_paging_gives_the_same_items(style, size):
    with client_of(paged(style, size)) as client:
        listed = client.device_commands("d")
    assert [record.id for record in listed.records] == [item["id"] for item in COMMANDS]
    assert (listed.incomplete, dict(listed.notes)) == (None, {})


@given(st.sampled_from(sorted(set(PAGERS) - {"all at once"})), st.integers(1, 5))
def test_what_was_read_is_kept_when_a_later_page_does_not_come(style, size):
    good = paged(style, size)
    asked = count()

    def handle(request: httpx.Request) -> httpx.Response:
        return good(request) if next(asked) == 0 else httpx.Response(503, json={"error": "busy"})

    with client_of(handle) as client:
        listed = client.device_commands("d")
    assert [record.id for record in listed.records] == [item["id"] for item in COMMANDS[:size]]
    assert isinstance(listed.incomplete, ServerFault)
    assert listed.etag is None


@pytest.mark.parametrize("style", sorted(set(PAGERS) - {"all at once"}))
def test_a_server_that_answers_the_first_page_for_ever_is_said_and_the_page_kept(style):
    good = paged(style, 5)
    asked = count()

    def handle(request: httpx.Request) -> httpx.Response:
        next(asked)
        return good(httpx.Request("GET", request.url.copy_with(query=None)))

    with client_of(handle) as client:
        listed = client.device_commands("d")
    assert {record.id for record in listed.records} == {item["id"] for item in COMMANDS[:5]}
    assert isinstance(listed.incomplete, UnexpectedAnswer)
    assert next(asked) <= 3


@pytest.mark.parametrize("target", ["http://other.test/devices?page=2", "//other.test/x", "https://service.test/v1/"])
def test_a_next_page_in_the_body_on_another_host_is_not_asked_for(target):
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(200, json={"items": COMMANDS[:2], "next": target})

    with client_of(handle) as client:
        listed = client.device_commands("d")
    assert len(listed.records) == 2
    assert "another host" in str(listed.incomplete)
    assert asked == ["service.test"]


def test_more_pages_than_are_read_is_said(monkeypatch):
    monkeypatch.setattr("agent.wire.device_client.COMMAND_PAGES_MAX", 3)
    with client_of(paged("offset", 2)) as client:
        listed = client.device_commands("d")
    assert len(listed.records) == 6
    assert "more pages" in str(listed.incomplete)


def test_more_bytes_of_commands_than_an_answer_may_have_are_not_read():
    handle = httpx.MockTransport(paged("offset", 2))
    with ServiceClient(BASE, None, transport=handle, max_answer_bytes=300) as client:
        listed = client.device_commands("d")
    assert 2 <= len(listed.records) < 12
    assert "max_answer_bytes" in str(listed.incomplete)


def test_a_total_beyond_what_is_listed_is_noted_and_no_error():
    with client_of(answering({"commands": COMMANDS[:5], "total": 12})) as client:
        listed = client.device_commands("d")
    assert (len(listed.records), listed.incomplete) == (5, None)
    assert set(listed.notes) == {"more_than_listed"}


@pytest.mark.parametrize(
    "value",
    [
        COMMANDS[0],
        {"data": COMMANDS[0]},
        {"command": {**COMMANDS[0], "command_payload": {"list": [1, 2]}}},
        {"commands": {"c0": {"command_payload": {"command": "ping"}}}},
        {"data": {"c0": {"command_payload": {"list": []}}}},
    ],
)
def test_a_single_record_and_records_by_their_ids_are_a_list(value):
    with client_of(answering(value)) as client:
        assert [record.id for record in client.device_commands("d").records] == ["c0"]


def test_records_by_their_place_have_no_id_from_it():
    with client_of(answering({"commands": {"0": {"command_payload": {}}, "2": {"command_payload": {}}}})) as client:
        listed = client.device_commands("d")
    assert len({record.id for record in listed.records}) == 2
    assert DERIVED_IDS in listed.notes


@pytest.mark.parametrize("is_embedded", [False, True])
def test_a_list_that_has_the_name_of_what_its_records_hold_is_no_record(is_embedded):
    rows = [{"device_id": "d1", "sensor_data": {"t": number}} for number in range(3)]
    value = {"sensor_data": rows}
    with client_of(answering({"_embedded": value} if is_embedded else value)) as client:
        assert [row.sensor_data["t"] for row in client.sensor_data()] == [0, 1, 2]
