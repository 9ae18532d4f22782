"""``/_emulator/faults`` and ``X-Emulator-Fault``, over real sockets: what arrives, and what was stored."""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import pytest

from simulator.service.profiles.model import COMPLETE, ServerProfile
from tests.service_running import T0_MS, Bench, client, running

FAULTS = "/_emulator/faults"
READING = {"sensor_data": {"t": 1}}


@pytest.fixture(scope="module")
def shared(storage):
    with running() as bench:
        bench.device_id = bench.device()
        yield bench


@pytest.fixture
def bench(shared: Bench) -> Iterator[Bench]:
    yield shared
    assert shared.http.delete(FAULTS).status_code == 204
    shared.service.set_profile(COMPLETE)


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
    ],
)
def test_a_request_or_its_answer_is_lost_on_the_wire_and_the_storage_says_which(
    bench: Bench, fault: str, end: str, *, is_stored: bool
) -> None:
    before = stored(bench)
    assert exchange(bench, fault) == (b"", end)
    assert stored(bench) == before + is_stored


def test_a_request_that_arrives_twice_is_stored_twice_without_an_idempotency_key_and_once_with_one(
    bench: Bench,
) -> None:
    before = stored(bench)
    assert post(bench, "duplicate").status_code == 201
    assert stored(bench) == before + 2
    headers = {"x-emulator-fault": "duplicate", "idempotency-key": "twice"}
    answer = bench.http.post("/sensor-data", json={"device_id": bench.device_id, **READING}, headers=headers)
    assert (answer.status_code, answer.headers["idempotent-replayed"]) == (201, "true")
    assert stored(bench) == before + 3


@pytest.mark.one_database
def test_a_stream_or_poll_that_is_asked_for_twice_is_answered_once(bench: Bench) -> None:
    assert first_bytes(bench, "duplicate", b"retry: 1000")[0].count(b"HTTP/1.1 200 OK") == 1
    received, end = exchange(bench, "duplicate", f"/devices/{bench.device_id}/commands?status=open&wait=1", b"")
    assert (received.count(b"HTTP/1.1 200 OK"), end) == (1, "open")
    bench.service.set_profile(ServerProfile(connection="until_close"))
    assert bench.http.get("/products", headers={"x-emulator-fault": "duplicate"}).json()["data"]


@pytest.mark.one_database
def test_a_large_body_is_read_before_the_connection_is_closed_so_that_the_close_is_none_by_reset(bench: Bench) -> None:
    body = json.dumps([{"device_id": bench.device_id, "sensor_data": {f"t{n}": n for n in range(40)}}] * 400).encode()
    assert len(body) > 128 * 1024
    assert exchange(bench, "lose=request", body=body) == (b"", "closed")


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


@pytest.mark.one_database
@pytest.mark.parametrize(("end", "connection"), [("close", "closed"), ("reset", "reset")])
def test_a_truncated_body_ends_before_its_length(bench: Bench, end: str, connection: str) -> None:
    before = stored(bench)
    received, ended = exchange(bench, f"truncate:after_bytes=10,end={end}")
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 201 ")
    assert (body, ended) == (b'{"id":"0' + body[8:10], connection)
    assert b"content-length: 200" in head
    assert stored(bench) == before + 1


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("fault", "kept"), [("truncate:end=complete", 100), ("truncate:after_bytes=9999,end=complete", 199)]
)
def test_a_body_that_is_cut_and_complete_is_good_http_and_no_json(bench: Bench, fault: str, kept: int) -> None:
    answer = post(bench, fault)
    assert (answer.status_code, len(answer.content)) == (201, kept)
    with pytest.raises(ValueError, match="Unterminated|Expecting"):
        answer.json()
    assert post(bench).status_code == 201, "the connection goes on"


@pytest.mark.one_database
def test_malformed_json_is_no_json(bench: Bench) -> None:
    answer = post(bench, "malformed_json")
    assert answer.text.startswith('{,"id":"')
    with pytest.raises(ValueError, match="Expecting"):
        answer.json()


@pytest.mark.one_database
@pytest.mark.parametrize(("fault", "text"), [("malformed_json", "{,}"), ("truncate:end=complete", "{")])
def test_an_answer_without_a_body_gets_a_broken_one(bench: Bench, fault: str, text: str) -> None:
    product_id = bench.product()
    answer = bench.http.delete(f"/products/{product_id}", headers={"x-emulator-fault": fault})
    assert (answer.status_code, answer.text, answer.headers["content-type"]) == (200, text, "application/json")
    assert bench.http.get(f"/products/{product_id}").status_code == 404, "it was carried out"


@pytest.mark.one_database
def test_the_content_type_is_another_one(bench: Bench) -> None:
    answer = post(bench, "content_type=text/html")
    assert answer.headers.get_list("content-type") == ["text/html"]
    assert answer.json()["sensor_data"] == {"t": 1}


@pytest.mark.one_database
def test_a_captive_portal_answers_with_its_page_and_stores_nothing(bench: Bench) -> None:
    before = stored(bench)
    answer = post(bench, "captive_portal")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "Wi-Fi" in answer.text
    assert post(bench, "captive_portal=302").headers["location"] == "http://portal.example/sign-in"
    assert post(bench, "captive_portal=511").status_code == 511
    assert stored(bench) == before


@pytest.mark.one_database
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


@pytest.mark.one_database
def test_retry_after_comes_as_seconds_or_as_a_date_of_the_services_clock(bench: Bench) -> None:
    assert post(bench, "answer:status=429,retry_after_s=30").headers["retry-after"] == "30"
    dated = post(bench, "answer:status=503,retry_after_s=30,retry_after_as=date")
    assert parsedate_to_datetime(dated.headers["retry-after"]).timestamp() * 1000 == T0_MS + 30_000
    assert parsedate_to_datetime(dated.headers["date"]).timestamp() * 1000 == T0_MS


@pytest.mark.one_database
def test_the_date_is_wrong_and_comes_once(bench: Bench) -> None:
    answer = post(bench, "date=-86400")
    [date] = answer.headers.get_list("date")
    assert parsedate_to_datetime(date).timestamp() * 1000 == T0_MS - 86_400_000
    assert post(bench, "date:value=yesterday").headers.get_list("date") == ["yesterday"]
    assert answer.status_code == 201


@pytest.mark.one_database
def test_a_dripped_answer_comes_in_small_pieces_its_head_too(bench: Bench) -> None:
    body = json.dumps({"device_id": bench.device_id, **READING}).encode()
    head = b"POST /sensor-data HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
    pieces = []
    with connect(bench) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(head % len(body) + keys(bench) + b"x-emulator-fault: drip=500\r\n\r\n" + body)
        while not b"".join(pieces).endswith(b'Z"}'):
            pieces.append(connection.recv(65536))
            assert pieces[-1]
    assert len(pieces) > 2
    assert len(pieces[0]) <= 100, "the first piece is a part of the head"
    assert json.loads(b"".join(pieces).partition(b"\r\n\r\n")[2])["device_id"] == bench.device_id


@pytest.mark.one_database
def test_the_connection_goes_on_after_a_dripped_answer(bench: Bench) -> None:
    for _ in range(2):
        assert post(bench, "drip=5000").status_code == 201
    assert post(bench).status_code == 201


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


@pytest.mark.one_database
def test_latencies_of_several_rules_add_up_before_the_effect_of_the_next(bench: Bench) -> None:
    first = add(bench, {"latency": {"fixed_s": 0.05}})
    second = add(bench, {"latency": {"min_s": 0.05, "max_s": 0.06, "of": "request"}})
    third = add(bench, {"answer": {"status": 503}})
    fourth = add(bench, {"answer": {"status": 500}})
    began = time.monotonic()
    assert bench.http.get("/products").status_code == 503
    assert time.monotonic() - began >= 0.1
    assert [hits(bench, one) for one in (first, second, third, fourth)] == [1, 1, 1, 0]


def test_a_rule_meets_the_requests_of_its_device_product_account_or_key_alone(bench: Bench) -> None:
    mine, other = bench.device_id, bench.device(identifier="another")
    product_id = bench.http.get(f"/devices/{mine}").json()["product_id"]
    made = bench.service.add_account("other")
    refuse = {"answer": {"status": 503}}

    def statuses() -> list[int]:
        with client(bench.service, made.api_key, made.secret_key.reveal()) as theirs:
            return [
                post(bench).status_code,
                post(bench, device_id=other).status_code,
                bench.poll(mine).status_code,
                bench.http.post(
                    "/sensor-data", json=[{"device_id": other, **READING}, {"device_id": mine, **READING}]
                ).status_code,
                bench.http.get("/sensor-data", params={"device_id": mine}).status_code,
                bench.http.get(f"/products/{product_id}").status_code,
                theirs.get("/products").status_code,
            ]

    calm = [201, 201, 200, 200, 200, 200, 200]
    for match, met in (
        ({"device_id": mine}, {0, 2, 3, 4}),
        ({"product_id": product_id}, {0, 2, 3, 4, 5}),
        ({"api_key": made.api_key}, {6}),
        ({"account_id": made.api_key}, {6}),
        ({"account_id": bench.service.api_key}, {0, 1, 2, 3, 4, 5}),
        ({"path": f"/devices/{mine}/commands"}, {2}),
        ({"path": "/devices/{device_id}/commands"}, {2}),
        ({"method": "GET", "headers": {"x-api-key": "mk_*"}}, {2, 4, 5, 6}),
        ({"headers": {"user-agent": "curl/*"}}, set()),
    ):
        add(bench, refuse, **match)
        assert statuses() == [503 if place in met else status for place, status in enumerate(calm)], match
        bench.http.delete(FAULTS)
    assert statuses() == calm


def test_a_period_goes_by_the_clock_that_the_control_paths_set(bench: Bench) -> None:
    add(bench, {"answer": {"status": 503}}, {"from": T0_MS + 60_000, "until": T0_MS + 120_000})
    try:
        seen = []
        for _ in range(3):
            seen.append(bench.http.get("/products").status_code)
            assert bench.http.post("/_emulator/clock/advance", json={"seconds": 60}).status_code == 200
        assert seen == [200, 503, 200]
    finally:
        bench.http.put("/_emulator/clock", json={"mode": "real"})


def test_what_names_nothing_that_exists_is_400_with_its_field_and_changes_nothing(bench: Bench) -> None:
    match = {
        "path": "/sensordata",
        "method": "BREW",
        "device_id": "nobody",
        "product_id": "nothing",
        "account_id": "no one",
        "api_key": "mk_none",
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
    first, second = add(bench, {"lose": "answer"}, {"next": 1}, method="PUT"), add(bench, {"drip": {"bytes_per_s": 9}})
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
        made = bench.service.add_account("other")
        add(bench, {"lose": "request"}, api_key=made.api_key)
        kept = add(bench, {"lose": "request"}, path="/rules")
        assert bench.http.post("/_emulator/reset", params={"api_key": made.api_key}).status_code == 204
        assert [one["fault_id"] for one in bench.http.get(FAULTS).json()["data"]] == [kept]
        assert bench.http.post("/_emulator/reset").status_code == 204
        assert bench.http.get(FAULTS).json() == {"data": []}
        assert bench.http.get("/rules").status_code == 200


# --- every way of answering -----------------------------------------------------------------------------------------


@pytest.mark.one_database
@pytest.mark.parametrize(
    "fault", ["lose=answer", "reset=answer", "lose=request", "truncate=1", "malformed_json", "drip=900"]
)
def test_a_long_poll_meets_them(bench: Bench, fault: str) -> None:
    path = f"/devices/{bench.device_id}/commands?status=open&wait=1"
    received, end = exchange(bench, fault, path, b"")
    expected = {"lose=answer": "closed", "lose=request": "closed", "reset=answer": "reset", "truncate=1": "closed"}
    assert end == expected.get(fault, "open")
    body = received.partition(b"\r\n\r\n")[2]
    assert body == {"truncate=1": b"{", "malformed_json": b"{," + body[2:], "drip=900": body}.get(fault, b"")
    assert not fault.startswith("drip") or json.loads(body)["data"] == []


@pytest.mark.one_database
def test_a_stream_of_events_meets_them(bench: Bench) -> None:
    assert exchange(bench, "lose=answer", "/commands/events", b"") == (b"", "closed")
    assert exchange(bench, "reset=answer", "/commands/events", b"") == (b"", "reset")
    for fault, end in (("truncate=9", "closed"), ("truncate:after_bytes=9,end=reset", "reset")):
        received, ended = exchange(bench, fault, "/commands/events", b"")
        assert received.partition(b"\r\n\r\n")[2] == b"9\r\n: command\r\n", fault
        assert ended == end
    complete, _ = first_bytes(bench, "truncate:after_bytes=9,end=complete", b"0\r\n\r\n")
    assert complete.endswith(b"9\r\n: command\r\n0\r\n\r\n")
    assert b"content-type: text/plain" in first_bytes(bench, "content_type=text/plain", b"retry: 1000")[0]
    dripped, pieces = first_bytes(bench, "drip=900", b"retry: 1000")
    assert pieces > 2
    assert dripped.startswith(b"HTTP/1.1 200 OK\r\n")


def first_bytes(bench: Bench, fault: str, until: bytes) -> tuple[bytes, int]:
    """What a stream of events sends until this comes, and in how many pieces."""
    pieces: list[bytes] = []
    with connect(bench) as connection:
        head = b"GET /commands/events HTTP/1.1\r\nhost: 127.0.0.1\r\nx-emulator-fault: %s\r\n" % fault.encode()
        connection.sendall(head + keys(bench) + b"\r\n")
        while until not in b"".join(pieces):
            pieces.append(connection.recv(65536))
            assert pieces[-1], b"".join(pieces)
    return b"".join(pieces), len(pieces)


@pytest.mark.one_database
def test_the_events_of_a_stream_are_no_json(bench: Bench) -> None:
    with bench.http.stream("GET", "/commands/events", headers={"x-emulator-fault": "malformed_json"}) as answer:
        lines = answer.iter_lines()
        next(lines)
        bench.send(bench.device_id)
        data = next(line for line in lines if line.startswith("data: "))
    assert data.startswith('data: {,"id":')


@pytest.mark.one_database
def test_pages_and_documents_meet_them_and_nobody_needs_keys_for_it(bench: Bench) -> None:
    for path in ("/partner-oauth-authorize", "/openapi.json", "/.well-known/device-service", "/no/such/path", "/docs"):
        answer = httpx.get(bench.service.base_url + path, headers={"x-emulator-fault": "answer=503"})
        assert answer.status_code == 503, path
    add(bench, {"captive_portal": {}}, path="/partner-oauth-authorize")
    assert "Wi-Fi" in httpx.get(bench.service.base_url + "/partner-oauth-authorize").text


@pytest.mark.one_database
@pytest.mark.parametrize("framing", ["chunked", "until_close", "gzip"])
@pytest.mark.parametrize(
    ("fault", "spoils"),
    [
        ("malformed_json", True),
        ("truncate:end=complete", True),
        ("truncate", True),
        ("drip=4000", False),
        ("date=5", False),
    ],
)
def test_a_server_of_another_kind_meets_them(bench: Bench, framing: str, fault: str, *, spoils: bool) -> None:
    profiles = {
        "chunked": ServerProfile(framing="chunked"),
        "until_close": ServerProfile(connection="until_close"),
        "gzip": ServerProfile(encoding="gzip"),
    }
    bench.service.set_profile(profiles[framing])
    with contextlib.suppress(httpx.RemoteProtocolError, httpx.DecodingError):
        answer = bench.http.get("/products", headers={"x-emulator-fault": fault})
        assert answer.status_code == 200
        with pytest.raises(ValueError, match=".") if spoils else contextlib.nullcontext():
            answer.json()


@pytest.mark.one_database
def test_a_malformed_body_that_is_compressed_is_good_gzip(bench: Bench) -> None:
    bench.service.set_profile(ServerProfile(encoding="gzip"))
    with bench.http.stream("GET", "/products", headers={"x-emulator-fault": "malformed_json"}) as answer:
        assert gzip.decompress(b"".join(answer.iter_raw())).startswith(b'{,"')


@pytest.mark.one_database
def test_a_head_meets_what_is_not_about_the_body(bench: Bench) -> None:
    fault_id = add(bench, {"truncate": {}})
    assert bench.http.head("/products").status_code == 200
    assert hits(bench, fault_id) == 0
    assert bench.http.head("/products", headers={"x-emulator-fault": "truncate"}).status_code == 400
    with pytest.raises(httpx.RemoteProtocolError):
        bench.http.head("/products", headers={"x-emulator-fault": "lose=answer"})


@pytest.mark.one_database
def test_answers_in_a_pipeline_go_on_after_one_that_drips_and_end_with_one_that_is_lost(bench: Bench) -> None:
    def request(fault: bytes) -> bytes:
        return b"GET /products?limit=1 HTTP/1.1\r\nhost: 127.0.0.1\r\n" + keys(bench) + fault + b"\r\n"

    with connect(bench) as connection:
        connection.sendall(
            request(b"x-emulator-fault: drip=4000\r\n") + request(b"") + request(b"x-emulator-fault: lose=answer\r\n")
        )
        received = b""
        while piece := connection.recv(65536):
            received += piece
    assert received.count(b"HTTP/1.1 200 OK") == 2


@pytest.mark.one_database
def test_control_paths_meet_none(bench: Bench) -> None:
    fault_id = add(bench, {"lose": "request"})
    assert bench.http.get("/_emulator/clock").status_code == 200
    assert hits(bench, fault_id) == 0
    refused = bench.http.get("/_emulator/clock", headers={"x-emulator-fault": "lose=request"})
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "X-Emulator-Fault")


@pytest.mark.one_database
@pytest.mark.parametrize(
    "fault", ["explode", "lose", "lose=both", "latency=-1", '{"lose":"answer","reset":"answer"}', "", "{"]
)
def test_a_header_that_names_no_effect_is_400_and_stores_nothing(bench: Bench, fault: str) -> None:
    before = stored(bench)
    answer = post(bench, fault)
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
    assert answer.json()["details"][0]["field"].startswith("X-Emulator-Fault")
    assert stored(bench) == before


@pytest.mark.one_database
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


@pytest.mark.one_database
def test_without_control_paths_the_header_is_refused_and_not_ignored() -> None:
    with running(control=False) as bench:
        answer = bench.http.get("/products", headers={"x-emulator-fault": "answer=503"})
        assert (answer.status_code, answer.json()["error"]) == (403, "control_off")


@pytest.mark.one_database
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


@pytest.mark.one_database
def test_curl_sees_what_was_meant(bench: Bench) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("needs curl")
    codes = {"lose=answer": 52, "reset=answer": 56, "truncate": 18, "captive_portal": 0}
    for fault, code in codes.items():
        command = [curl, "-sS", "-m", "60", "-o", "-", "-H", f"X-Emulator-Fault: {fault}"]
        for line in keys(bench).decode().strip().split("\r\n"):
            command += ["-H", line]
        done = subprocess.run([*command, f"{bench.service.base_url}/products"], capture_output=True, check=False)
        assert done.returncode == code, (fault, done.stderr)


def test_a_number_stands_for_an_effect_in_json_as_in_the_header(bench: Bench) -> None:
    effects = {}
    for short in ({"latency": 0.5}, {"answer": 503}, {"drip": 400}, {"truncate": True}, {"captive_portal": 302}):
        shown = bench.http.post(FAULTS, json={"effect": short}).json()["effect"]
        effects |= {name: value for name, value in shown.items() if value is not None}
    assert effects["latency"]["fixed_s"] == 0.5
    assert effects["answer"]["status"] == 503
    assert effects["drip"]["bytes_per_s"] == 400
    assert effects["truncate"]["end"] == "close"
    assert effects["captive_portal"]["status"] == 302


def test_what_a_rule_gets_wrong_comes_with_what_to_write(bench: Bench) -> None:
    body = {"match": {"metod": "POST"}, "effect": {"drip": {}}}
    assert bench.http.post(FAULTS, json=body).json()["details"] == [
        {"field": "match.metod", "issue": "unknown member; did you mean 'method'?"},
        {"field": "effect.drip.bytes_per_s", "issue": "is missing"},
    ]
    body = {"match": {"path": "/nope"}, "effect": {"lose": "answer"}}
    [detail] = bench.http.post(FAULTS, json=body).json()["details"]
    assert detail["field"] == "match.path"
    assert "the nearest is '/" in detail["issue"]
