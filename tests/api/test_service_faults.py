"""``/_emulator/faults`` and ``X-Emulator-Fault``, over real sockets: what arrives, and what was stored."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import pytest

from simulator.service.variant import COMPLETE
from tests.support.service_running import T0_MS, Bench, client, running

FAULTS = "/_emulator/faults"
READING = {"sensor_data": {"t": 1}}


@pytest.fixture(scope="module")
def shared():
    with running() as bench:
        bench.device_id = bench.device()
        yield bench


@pytest.fixture
def bench(shared: Bench) -> Iterator[Bench]:
    yield shared
    assert shared.http.delete(FAULTS).status_code == 204
    shared.service.set_variant(COMPLETE)


def add(bench: Bench, effect: dict[str, Any], times: dict[str, Any] | None = None, **match: Any) -> str:
    answer = bench.http.post(FAULTS, json={"effect": effect, "match": match, "times": times or {}})
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"{FAULTS}/{answer.json()['fault_id']}"
    return answer.json()["fault_id"]


def hits(bench: Bench, fault_id: str) -> int:
    return bench.http.get(f"{FAULTS}/{fault_id}").json()["hits"]


def post(bench: Bench, fault: str | None = None, **members: Any) -> httpx.Response:
    headers = {} if fault is None else {"x-emulator-fault": fault}
    return bench.http.post("/sensor-data", json={"device_id": bench.device_id, **READING, **members}, headers=headers)


def stored(bench: Bench) -> int:
    """Readings there are, asked for by a client that meets no fault."""
    return len(bench.http.get("/sensor-data", params={"limit": 1000}).json()["data"])


def keys(bench: Bench) -> bytes:
    secret = bench.service.secret_key.reveal()
    return f"x-api-key: {bench.service.api_key}\r\nx-secret-key: {secret}\r\n".encode()


def connect(bench: Bench) -> socket.socket:
    host, _, port = bench.service.base_url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def exchange(bench: Bench, fault: str, path: str = "/sensor-data", body: bytes | None = None) -> tuple[bytes, str]:
    """What a raw socket receives, and how the connection ends: ``closed``, ``reset``, or ``open`` after one answer."""
    if body is None:
        body = json.dumps({"device_id": bench.device_id, **READING}).encode()
    method = b"POST" if body else b"GET"
    head = b"%s %s HTTP/1.1\r\nhost: 127.0.0.1\r\nx-emulator-fault: %s\r\n" % (method, path.encode(), fault.encode())
    if body:
        head += b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
    with connect(bench) as connection:
        connection.sendall(head + keys(bench) + b"\r\n" + body)
        return read_all(connection)


def read_all(connection: socket.socket) -> tuple[bytes, str]:
    received = b""
    while True:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            return received, "reset"
        if not piece:
            return received, "closed"
        received += piece
        head, end, body = received.partition(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if end and lengths and len(body) >= int(lengths[0].split(b":")[1]):
            return received, "open"


@pytest.mark.parametrize(
    ("fault", "end", "is_stored"),
    [
        ("lose=answer", "closed", True),
        ("lose=request", "closed", False),
        ("reset=answer", "reset", True),
        ("reset=request", "reset", False),
        ("refuse", "reset", False),
    ],
)
def test_a_request_or_its_answer_is_lost_on_the_wire_and_the_storage_says_which(
    bench: Bench, fault: str, end: str, *, is_stored: bool
) -> None:
    before = stored(bench)
    assert exchange(bench, fault) == (b"", end)
    assert stored(bench) == before + is_stored


def test_a_large_body_is_read_before_the_connection_is_closed_so_that_the_close_is_none_by_reset(bench: Bench) -> None:
    body = json.dumps([{"device_id": bench.device_id, "sensor_data": {f"t{n}": n for n in range(40)}}] * 400).encode()
    assert len(body) > 128 * 1024
    assert exchange(bench, "lose=request", body=body) == (b"", "closed")


def test_a_refused_connection_ends_before_the_body_is_read(bench: Bench) -> None:
    head = b"POST /sensor-data HTTP/1.1\r\nhost: 127.0.0.1\r\nx-emulator-fault: refuse\r\ncontent-length: 9\r\n"
    with connect(bench) as connection:
        connection.sendall(head + keys(bench) + b"\r\n")
        assert read_all(connection) == (b"", "reset")


def test_an_answer_lost_once_makes_a_client_with_an_idempotency_key_store_once(bench: Bench) -> None:
    fault_id = add(bench, {"lose": "answer"}, {"next": 1}, method="POST", path="/sensor-data")
    before = stored(bench)
    headers = {"idempotency-key": "same"}
    body = {"device_id": bench.device_id, **READING}
    with pytest.raises(httpx.RemoteProtocolError):
        bench.http.post("/sensor-data", json=body, headers=headers)
    again = bench.http.post("/sensor-data", json=body, headers=headers)
    assert (again.status_code, again.headers["idempotent-replayed"]) == (201, "true")
    assert stored(bench) == before + 1
    shown = bench.http.get(f"{FAULTS}/{fault_id}").json()
    assert (shown["matched"], shown["hits"]) == (1, 1)


@pytest.mark.parametrize(("end", "connection"), [("close", "closed"), ("reset", "reset")])
def test_a_truncated_body_ends_before_its_length(bench: Bench, end: str, connection: str) -> None:
    before = stored(bench)
    received, ended = exchange(bench, f"truncate:after_bytes=10,end={end}")
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 201 ")
    assert (body, ended) == (b'{"id":"0' + body[8:10], connection)
    assert b"content-length: 200" in head
    assert stored(bench) == before + 1


@pytest.mark.parametrize(
    ("fault", "kept"), [("truncate:end=complete", 100), ("truncate:after_bytes=9999,end=complete", 199)]
)
def test_a_body_that_is_cut_and_complete_is_good_http_and_no_json(bench: Bench, fault: str, kept: int) -> None:
    answer = post(bench, fault)
    assert (answer.status_code, len(answer.content)) == (201, kept)
    with pytest.raises(ValueError, match="Unterminated|Expecting"):
        answer.json()
    assert post(bench).status_code == 201, "the connection goes on"


def test_an_answer_without_a_body_has_nothing_that_could_be_cut(bench: Bench) -> None:
    product_id = bench.product()
    answer = bench.http.delete(f"/products/{product_id}", headers={"x-emulator-fault": "truncate"})
    assert (answer.status_code, answer.content) == (204, b"")


def test_an_answer_of_choice_comes_instead_with_its_headers_and_stores_nothing(bench: Bench) -> None:
    before = stored(bench)
    wanted = {
        "status": 418,
        "headers": {"X-Kind": "teapot", "Content-Type": "application/problem+json"},
        "body": {"a": [1]},
    }
    answer = post(bench, json.dumps({"answer": wanted}))
    assert (answer.status_code, answer.content) == (418, b'{"a":[1]}')
    assert (answer.headers["x-kind"], answer.headers["content-type"]) == ("teapot", "application/problem+json")
    text = post(bench, "answer:status=200,body=OK")
    assert (text.text, text.headers["content-type"]) == ("OK", "text/plain; charset=utf-8")
    assert post(bench, "answer=503").json()["error"] == "injected_fault"
    empty = post(bench, "answer=204")
    assert (empty.status_code, empty.content, "content-length" in empty.headers) == (204, b"", False)
    assert stored(bench) == before


def test_retry_after_and_the_date_are_those_of_the_services_clock(bench: Bench) -> None:
    dated = post(bench, "answer:status=429,retry_after_s=30")
    assert dated.headers["retry-after"] == "30"
    assert parsedate_to_datetime(dated.headers["date"]).timestamp() * 1000 == T0_MS


def test_a_latency_holds_the_answer_or_the_request_and_clearing_lets_go(bench: Bench) -> None:
    before = stored(bench)
    for of in ("answer", "request"):
        add(bench, {"latency": {"fixed_s": 500, "of": of}}, method="POST", path="/sensor-data")
        answers: list[httpx.Response] = []
        with client(bench.service) as other:
            body = {"device_id": bench.device_id, **READING}
            held = threading.Thread(target=lambda: answers.append(other.post("/sensor-data", json=body)))  # noqa: B023
            held.start()
            wait_for(lambda: bench.http.get(FAULTS).json()["data"][0]["hits"] == 1)
            wait_for(lambda: stored(bench) == before + 1)
            assert held.is_alive()
            assert bench.http.delete(FAULTS).status_code == 204
            held.join(60)
        assert answers[0].status_code == 201
    assert stored(bench) == before + 2


def wait_for(condition: Any) -> None:
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_a_caller_that_leaves_while_its_request_is_held_has_sent_nothing(bench: Bench) -> None:
    before = stored(bench)
    fault_id = add(bench, {"latency": {"fixed_s": 500, "of": "request"}}, method="POST")
    with pytest.raises(httpx.ReadTimeout):
        bench.http.post("/sensor-data", json={"device_id": bench.device_id, **READING}, timeout=0.2)
    assert hits(bench, fault_id) == 1
    bench.http.delete(FAULTS)
    assert post(bench).status_code == 201
    assert stored(bench) == before + 1


def test_latencies_of_several_rules_add_up_before_the_effect_of_the_next(bench: Bench) -> None:
    first = add(bench, {"latency": {"fixed_s": 0.05}})
    second = add(bench, {"latency": {"min_s": 0.05, "max_s": 0.06, "of": "request"}})
    third = add(bench, {"answer": {"status": 503}})
    fourth = add(bench, {"answer": {"status": 500}})
    began = time.monotonic()
    assert bench.http.get("/products").status_code == 503
    assert time.monotonic() - began >= 0.1
    assert [hits(bench, one) for one in (first, second, third, fourth)] == [1, 1, 1, 0]


def test_a_rule_meets_the_requests_of_its_device_path_or_account_alone(bench: Bench) -> None:
    mine, other = bench.device_id, bench.device(identifier="another")
    made = bench.add_account("other")
    refuse = {"answer": {"status": 503}}

    def statuses() -> list[int]:
        with client(bench.service, made.api_key, made.secret_key) as theirs:
            return [
                post(bench).status_code,
                post(bench, device_id=other).status_code,
                bench.poll(mine).status_code,
                bench.http.post(
                    "/sensor-data", json=[{"device_id": other, **READING}, {"device_id": mine, **READING}]
                ).status_code,
                bench.http.get("/sensor-data", params={"device_id": mine}).status_code,
                theirs.get("/products").status_code,
            ]

    calm = [201, 201, 200, 200, 200, 200]
    for match, met in (
        ({"device_id": mine}, {0, 2, 3, 4}),
        ({"account_id": made.api_key}, {5}),
        ({"account_id": bench.service.api_key}, {0, 1, 2, 3, 4}),
        ({"path": f"/devices/{mine}/commands"}, {2}),
        ({"path": "/devices/{device_id}/commands"}, {2}),
        ({"method": "GET"}, {2, 4, 5}),
        ({"method": "POST", "path": "/products"}, set()),
    ):
        add(bench, refuse, **match)
        assert statuses() == [503 if place in met else status for place, status in enumerate(calm)], match
        bench.http.delete(FAULTS)
    assert statuses() == calm


def test_what_names_nothing_that_exists_is_400_with_its_field_and_changes_nothing(bench: Bench) -> None:
    match = {
        "path": "/sensordata",
        "method": "BREW",
        "device_id": "nobody",
        "account_id": "no one",
    }
    answer = bench.http.post(FAULTS, json={"effect": {"lose": "answer"}, "match": match})
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
    assert {one["field"] for one in answer.json()["details"]} == {f"match.{name}" for name in match}
    two = bench.http.post(FAULTS, json={"effect": {"lose": "answer", "reset": "answer"}})
    assert [one["field"] for one in two.json()["details"]] == ["effect"]
    below = bench.http.post(FAULTS, json={"effect": {"latency": {"fixed_s": -1}}})
    assert [one["field"] for one in below.json()["details"]] == ["effect.latency.fixed_s"]
    assert bench.http.get(FAULTS).json() == {"data": []}


def test_rules_are_listed_in_their_order_shown_and_deleted_one_by_one(bench: Bench) -> None:
    first, second = add(bench, {"lose": "answer"}, {"next": 1}, method="PUT"), add(bench, {"reset": "answer"})
    assert [one["fault_id"] for one in bench.http.get(FAULTS).json()["data"]] == [first, second]
    assert bench.http.get(f"{FAULTS}/{first}").json() == {
        "fault_id": first,
        "match": {"method": "PUT"},
        "times": {"next": 1},
        "effect": {"lose": "answer"},
        "matched": 0,
        "hits": 0,
        "created_at": "2026-01-01T00:00:00.000Z",
    }
    assert bench.http.delete(f"{FAULTS}/{second}").status_code == 204
    assert [one["fault_id"] for one in bench.http.get(FAULTS).json()["data"]] == [first]
    for call in (bench.http.get, bench.http.delete):
        assert (call(f"{FAULTS}/{second}").json()["error"]) == "fault_not_found"


def test_a_reset_deletes_the_faults_and_one_of_an_account_those_that_name_it() -> None:
    with running() as bench:
        made = bench.add_account("other")
        add(bench, {"lose": "request"}, account_id=made.api_key)
        kept = add(bench, {"lose": "request"}, path="/rules")
        assert bench.http.post("/_emulator/reset", params={"api_key": made.api_key}).status_code == 204
        assert [one["fault_id"] for one in bench.http.get(FAULTS).json()["data"]] == [kept]
        assert bench.http.post("/_emulator/reset").status_code == 204
        assert bench.http.get(FAULTS).json() == {"data": []}
        assert bench.http.get("/rules").status_code == 200


# --- every way of answering -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["lose=answer", "reset=answer", "lose=request", "truncate=1"])
def test_a_long_poll_meets_them(bench: Bench, fault: str) -> None:
    path = f"/devices/{bench.device_id}/commands?status=open&wait=1"
    received, end = exchange(bench, fault, path, b"")
    expected = {"lose=answer": "closed", "lose=request": "closed", "reset=answer": "reset", "truncate=1": "closed"}
    assert end == expected.get(fault, "open")
    body = received.partition(b"\r\n\r\n")[2]
    assert body == {"truncate=1": b"{"}.get(fault, b"")


def test_a_stream_of_events_meets_them(bench: Bench) -> None:
    assert exchange(bench, "lose=answer", "/commands/events", b"") == (b"", "closed")
    assert exchange(bench, "reset=answer", "/commands/events", b"") == (b"", "reset")
    for fault, end in (("truncate=9", "closed"), ("truncate:after_bytes=9,end=reset", "reset")):
        received, ended = exchange(bench, fault, "/commands/events", b"")
        assert received.partition(b"\r\n\r\n")[2] == b"9\r\n: command\r\n", fault
        assert ended == end
    complete = first_bytes(bench, "truncate:after_bytes=9,end=complete", b"0\r\n\r\n")
    assert complete.endswith(b"9\r\n: command\r\n0\r\n\r\n")


def first_bytes(bench: Bench, fault: str, until: bytes) -> bytes:
    """What a stream of events sends until this comes."""
    pieces: list[bytes] = []
    with connect(bench) as connection:
        head = b"GET /commands/events HTTP/1.1\r\nhost: 127.0.0.1\r\nx-emulator-fault: %s\r\n" % fault.encode()
        connection.sendall(head + keys(bench) + b"\r\n")
        while until not in b"".join(pieces):
            pieces.append(connection.recv(65536))
            assert pieces[-1], b"".join(pieces)
    return b"".join(pieces)


def test_pages_and_documents_meet_them_and_nobody_needs_keys_for_it(bench: Bench) -> None:
    for path in ("/partner-oauth-authorize", "/openapi.json", "/.well-known/device-service", "/no/such/path", "/docs"):
        answer = httpx.get(bench.service.base_url + path, headers={"x-emulator-fault": "answer=503"})
        assert answer.status_code == 503, path


def test_a_head_meets_what_is_not_about_the_body(bench: Bench) -> None:
    fault_id = add(bench, {"truncate": {}})
    assert bench.http.head("/products").status_code == 200
    assert hits(bench, fault_id) == 0
    assert bench.http.head("/products", headers={"x-emulator-fault": "truncate"}).status_code == 400
    with pytest.raises(httpx.RemoteProtocolError):
        bench.http.head("/products", headers={"x-emulator-fault": "lose=answer"})


def test_control_paths_meet_none(bench: Bench) -> None:
    fault_id = add(bench, {"lose": "request"})
    assert bench.http.get("/_emulator/clock").status_code == 200
    assert hits(bench, fault_id) == 0
    refused = bench.http.get("/_emulator/clock", headers={"x-emulator-fault": "lose=request"})
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "X-Emulator-Fault")


@pytest.mark.parametrize(
    "fault", ["explode", "lose", "lose=both", "latency=-1", '{"lose":"answer","reset":"answer"}', "", "{"]
)
def test_a_header_that_names_no_effect_is_400_and_stores_nothing(bench: Bench, fault: str) -> None:
    before = stored(bench)
    answer = post(bench, fault)
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
    assert answer.json()["details"][0]["field"].startswith("X-Emulator-Fault")
    assert stored(bench) == before


@pytest.mark.parametrize(
    ("error", "headers"),
    [
        ("foreign_host", {"host": "rebound.example"}),
        ("foreign_origin", {"origin": "https://page.example"}),
        ("control_token_required", {"x-forwarded-for": "203.0.113.9"}),
    ],
)
def test_a_header_that_a_browser_or_a_proxy_brings_is_refused(
    bench: Bench, error: str, headers: dict[str, str]
) -> None:
    before = stored(bench)
    answer = bench.http.post(
        "/sensor-data",
        json={"device_id": bench.device_id, **READING},
        headers={"x-emulator-fault": "answer=503", **headers},
    )
    assert (answer.status_code, answer.json()["error"]) == (403, error)
    assert stored(bench) == before


def test_without_control_paths_the_header_is_refused_and_not_ignored() -> None:
    with running(control=False) as bench:
        answer = bench.http.get("/products", headers={"x-emulator-fault": "answer=503"})
        assert (answer.status_code, answer.json()["error"]) == (403, "control_off")


def test_a_service_that_ends_lets_go_of_what_it_holds() -> None:
    with running() as bench:
        add(bench, {"latency": {"fixed_s": 500}}, path="/products")
        answers: list[httpx.Response] = []
        with client(bench.service) as other:
            held = threading.Thread(target=lambda: answers.append(other.get("/products")))
            held.start()
            wait_for(lambda: bench.http.get(FAULTS).json()["data"][0]["hits"] == 1)
            bench.service.stop()
            held.join(60)
        assert answers[0].status_code == 200


def test_a_number_stands_for_an_effect_in_json_as_in_the_header(bench: Bench) -> None:
    effects = {}
    for short in ({"latency": 0.5}, {"answer": 503}, {"truncate": True}):
        shown = bench.http.post(FAULTS, json={"effect": short}).json()["effect"]
        effects |= {name: value for name, value in shown.items() if value is not None}
    assert effects["latency"]["fixed_s"] == 0.5
    assert effects["answer"]["status"] == 503
    assert effects["truncate"]["end"] == "close"


def test_what_a_rule_gets_wrong_comes_with_its_place(bench: Bench) -> None:
    body = {"match": {"metod": "POST"}, "effect": {"answer": {}}}
    details = bench.http.post(FAULTS, json=body).json()["details"]
    assert [one["field"] for one in details] == ["match.metod", "effect.answer.status"]
    body = {"match": {"path": "/sensor-dat"}, "effect": {"lose": "answer"}}
    [detail] = bench.http.post(FAULTS, json=body).json()["details"]
    assert detail["field"] == "match.path"
    assert "did you mean '/sensor-data'?" in detail["issue"]
