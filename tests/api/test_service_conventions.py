"""What holds for every request: keys, quota, order of checks, media types, limits, and error bodies."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.service_running import T0_MS, client, running

ID_NAMES = ("id", "schema_id", "device_id", "product_id")


@pytest.fixture(scope="module")
def bench():
    with running() as bench:
        yield bench


@pytest.mark.parametrize("missing", ["x-api-key", "x-secret-key", "both"])
def test_a_missing_key_header_is_401_even_on_an_unknown_path(bench, missing):
    keys = {name: value for name, value in bench.http.headers.items() if name.startswith("x-")}
    kept = {} if missing == "both" else {name: value for name, value in keys.items() if name != missing}
    for path in ("/products", "/no/such/path", "/rules"):
        answer = httpx.get(bench.service.base_url + path, headers=kept, trust_env=False, timeout=120)
        assert (answer.status_code, answer.json()["error"]) == (401, "missing_credentials")
        assert answer.headers["www-authenticate"].startswith("ApiKey realm=")
        assert "ratelimit" not in answer.headers


def test_wrong_keys_are_401(bench):
    for wrong in ({"x-api-key": b"mk_nobody"}, {"x-secret-key": b"msk_wrong"}, {"x-secret-key": b"msk_\xe4"}):
        answer = bench.http.get("/products", headers=wrong)
        assert answer.status_code == 401
        assert answer.json()["error"] == "invalid_credentials"


def test_a_request_id_is_echoed_or_made(bench):
    assert bench.http.get("/products", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    made = {bench.http.get("/products").headers["x-request-id"] for _ in range(3)}
    assert len(made) == 3
    assert bench.http.get("/products", headers={"x-request-id": 'a"b<c>'}).headers["x-request-id"] != 'a"b<c>'


def test_405_lists_what_the_path_has(bench):
    answer = bench.http.patch("/products")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD, POST"


def test_head_answers_as_get_without_a_body(bench):
    head, get = bench.http.head("/products"), bench.http.get("/products")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == get.headers["content-length"]


@pytest.mark.parametrize(
    ("commands", "field"),
    [
        ([{"name": "x"}, {"name": "x"}], "commands.1.name"),
        ([{"name": "x", "payload_schema": {"type": "no such type"}}], "commands.0.payload_schema.type"),
        ([{"nmae": "x"}], "commands.0.nmae"),
    ],
)
def test_a_bad_body_is_a_400_with_details_and_stores_nothing(bench, commands, field):
    before = len(bench.http.get("/products").json()["data"])
    answer = bench.http.post("/products", json={"name": "a", "commands": commands})
    assert answer.status_code == 400, answer.text
    assert field in [detail["field"] for detail in answer.json()["details"]]
    assert len(bench.http.get("/products").json()["data"]) == before


def test_a_body_of_256_kib_is_taken_and_a_byte_more_is_413(bench):
    just = json.dumps({"name": "a", "metadata": {"pad": ""}}).encode()
    for more, status in ((0, 201), (1, 413)):
        body = just.replace(b'""', b'"' + b"x" * (262_144 - len(just) + more) + b'"')
        assert bench.http.post("/products", content=body).status_code == status


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/jsonx"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
def test_another_media_type_is_415(bench, headers):
    assert bench.http.post("/products", content=b"{}", headers=headers).status_code == 415


def test_a_charset_of_utf_8_is_json_too(bench):
    headers = {"content-type": "Application/JSON; charset=UTF-8"}
    assert bench.http.post("/products", content=b'{"name":"\xc3\xa4"}', headers=headers).json()["name"] == "ä"


def test_an_unknown_query_parameter_is_named_with_what_the_path_has(bench):
    issue = bench.http.get("/devices?usr_id=1").json()["details"][0]
    assert issue["field"] == "usr_id"
    assert "user_id" in issue["issue"]


def test_bytes_that_are_no_http_do_not_end_the_service(bench):
    url = urlsplit(bench.service.base_url)
    with socket.create_connection((url.hostname, url.port), timeout=120) as raw:
        raw.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        assert b"400" in raw.recv(200)
    assert bench.http.get("/products").status_code == 200


def five_of_each(bench) -> dict[str, list[str]]:
    """Path of each list -> ids of what it has, in the order of their creation."""

    def post(path: str, name: str, bodies: Iterable[dict[str, object]]) -> None:
        answers = [bench.http.post(path, json=body) for body in bodies]
        assert {answer.status_code for answer in answers} == {201}, path
        made[path] = [answer.json()[name] for answer in answers]

    products = [bench.product() for _ in range(5)]
    product_id = products[0]
    devices = [bench.device(product_id, f"SN-{number}") for number in range(5)]
    device = {"device_id": devices[0]}
    made = {"/products": products, "/devices": devices, "/onboarding/user/user-0001/devices": devices}
    made[f"/devices/{devices[0]}/commands"] = [bench.send(devices[0]) for _ in range(5)]
    post("/sensor-data", "id", ({**device, "sensor_data": {"t": n}, "recorded_at": T0_MS + n} for n in range(5)))
    post(f"/products/{product_id}/database/schemas", "schema_id", ({"name": f"s{n}"} for n in range(5)))
    record = {"table_name": "command_results", "data_payload": {"command_id": "c", "status": "failed"}}
    post("/database/runtime-data", "id", [{"product_id": product_id, **device, **record}] * 5)
    action = {"type": "command", "command_payload": {"command": "cool"}}
    rule = {"name": "hot", "trigger": {"reading": "x", "op": ">", "value": 60}, "actions": [action]}
    post("/rules", "id", [{"product_id": product_id, **rule}] * 5)
    return made


def test_every_list_is_cut_into_pages_that_a_link_joins():
    with running() as bench:
        for path, ids in five_of_each(bench).items():
            for order, expected in (("asc", ids), ("desc", ids[::-1])):
                seen, url = [], f"{path}?limit=2&order={order}"
                while url:
                    answer = bench.http.get(url)
                    page = answer.json()
                    assert page["has_more"] == (page["next_cursor"] is not None) == ("next" in answer.links)
                    seen += [next(one[name] for name in ID_NAMES if name in one) for one in page["data"]]
                    url = answer.links["next"]["url"] if "next" in answer.links else None
                assert seen == expected, path
            cursor = bench.http.get(path, params={"limit": 2, "order": "asc"}).json()["next_cursor"]
            turned = bench.http.get(path, params={"order": "desc", "cursor": cursor})
            assert (turned.status_code, turned.json()["details"][0]["field"]) == (400, "cursor"), path


def test_a_page_of_a_held_poll_leads_on_to_pages_that_are_not_held():
    with running() as bench:
        device_id = bench.device()
        sent = [bench.send(device_id) for _ in range(5)]
        first = bench.http.get(f"/devices/{device_id}/commands?status=open&limit=3&wait=20")
        cursor = first.json()["next_cursor"]
        rest = bench.http.get(f"/devices/{device_id}/commands?status=open&limit=3&cursor={cursor}").json()
        assert [each["id"] for each in first.json()["data"] + rest["data"]] == sent
        assert bench.http.get(first.links["next"]["url"]).json() == rest
        assert "wait" not in first.links["next"]["url"]


def test_the_quota_is_a_calendar_minute_and_tells_where_it_stands():
    with running(rate_limit=3) as bench:
        bench.clock.advance(20)
        left = [bench.http.get("/products").headers["ratelimit"] for _ in range(3)]
        assert left == [f'"default";r={r};t=40' for r in (2, 1, 0)]
        refused = bench.http.get("/no/such/path")
        assert refused.status_code == 429  # the quota comes before the route
        assert refused.json()["error"] == "rate_limit_exceeded"
        assert refused.headers["retry-after"] == "40"
        assert refused.headers["ratelimit-policy"] == '"default";q=3;w=60'
        assert refused.headers["x-ratelimit-limit"] == "3"
        assert refused.headers["x-ratelimit-remaining"] == "0"
        assert refused.headers["x-ratelimit-reset"] == "1767225660"
        bench.clock.advance(40)
        assert bench.http.get("/products").status_code == 200


def test_a_401_costs_nobody_anything_and_accounts_are_counted_apart():
    with running(rate_limit=2) as bench:
        other = bench.add_account("other")
        with client(bench.service, secret_key="msk_wrong") as wrong:
            for _ in range(5):
                assert wrong.get("/products").status_code == 401
        with client(bench.service, other.api_key, other.secret_key) as http:
            assert [http.get("/products").status_code for _ in range(3)] == [200, 200, 429]
        assert [bench.http.get("/products").status_code for _ in range(3)] == [200, 200, 429]


def test_documents_and_health_need_no_keys_and_cost_no_quota():
    with running(rate_limit=1) as bench:
        for path in ("/openapi.json", "/.well-known/device-service", "/_emulator/health", "/_emulator/openapi.json"):
            answer = httpx.get(bench.service.base_url + path, trust_env=False, timeout=120)
            assert answer.status_code == 200, path
            assert "ratelimit" not in answer.headers
        assert bench.http.get("/products").status_code == 200


def test_without_control_its_paths_do_not_exist():
    with running(control=False) as bench:
        assert bench.http.get("/_emulator/health").status_code == 404
        assert bench.http.post("/_emulator/reset").status_code == 404
        assert httpx.get(f"{bench.service.base_url}/_emulator/health", trust_env=False, timeout=120).status_code == 401


def test_the_document_marks_what_the_specification_lacks(bench):
    paths = bench.http.get("/openapi.json").json()["paths"]
    marked = {
        (method, path) for path, item in paths.items() for method, told in item.items() if told.get("x-extension")
    }
    assert ("post", "/devices/{device_id}/commands/{command_id}/result") in marked
    assert ("get", "/.well-known/device-service") in marked
    assert ("post", "/sensor-data") not in marked
    rules = {(method, path) for path, item in paths.items() if path.startswith("/rules") for method in item}
    assert rules - marked == {("get", "/rules")}


def test_a_full_disk_is_503_stores_nothing_and_is_over_when_there_is_room(tmp_path, caplog):
    with running(data_dir=tmp_path) as bench:
        device_id = bench.device()

        def allow_pages(count):  # a count below that of today means: none more
            bench.service.do(lambda service: service.db.sql.execute(f"PRAGMA max_page_count = {count}").fetchall())

        allow_pages(1)
        large = {"device_id": device_id, "sensor_data": {f"reading-{i}": i for i in range(2000)}}
        answers = [bench.http.post("/sensor-data", json=large, headers={"idempotency-key": f"{i}"}) for i in range(9)]
        refused = [answer for answer in answers if answer.status_code == 503]
        assert refused
        assert {answer.json()["error"] for answer in refused} == {"storage_unavailable"}
        assert {answer.headers["retry-after"] for answer in refused} == {"1"}
        assert bench.http.get("/products").status_code == 200
        stored = len(bench.http.get("/sensor-data").json()["data"])
        assert stored == len(answers) - len(refused)
        allow_pages(1_000_000)
        again = [bench.http.post("/sensor-data", json=large, headers={"idempotency-key": f"{i}"}) for i in range(9)]
        assert {answer.status_code for answer in again} == {201}
        assert len(bench.http.get("/sensor-data").json()["data"]) == len(answers)
    assert "the storage could not be written" in caplog.text


def test_a_handler_that_fails_is_a_500_with_the_error_body(caplog, monkeypatch):
    with running() as bench:

        def crash(_row):
            raise ZeroDivisionError("secret detail")

        bench.product()
        monkeypatch.setattr("simulator.service.api.products.show_product", crash)
        answer = bench.http.get("/products", headers={"x-request-id": "r-1"})
        assert answer.status_code == 500
        assert answer.json()["error"] == "internal_error"
        assert "secret detail" not in answer.text
        assert answer.headers["x-request-id"] == "r-1"
        assert "secret detail" in caplog.text
        monkeypatch.undo()
        assert bench.http.get("/products").status_code == 200


def test_keys_never_reach_the_log(caplog):
    caplog.set_level("DEBUG")
    with running() as bench:
        secret = bench.service.secret_key.reveal()
        bench.http.get("/products")
        bench.http.get("/nowhere")
    assert secret not in caplog.text


def date_ms(answer: httpx.Response) -> int:
    (date,) = answer.headers.get_list("date")
    return int(parsedate_to_datetime(date).timestamp() * 1000)


def test_the_date_of_an_answer_is_the_services_clock_as_it_goes_out():
    with running() as bench:
        assert date_ms(bench.http.get("/devices")) == T0_MS
        bench.clock.advance(3600)
        for answer in (
            bench.http.get("/devices"),
            bench.http.get("/devices/none"),
            httpx.get(f"{bench.service.base_url}/devices", trust_env=False),
        ):
            assert date_ms(answer) == T0_MS + 3_600_000


def test_a_held_poll_has_the_date_of_its_end_and_not_of_its_beginning():
    with running() as bench, ThreadPoolExecutor() as pool:
        device_id = bench.device()
        held = pool.submit(bench.poll, device_id, bench.poll(device_id).headers["etag"], wait=30)
        bench.clock.advance(20)
        bench.send(device_id)
        assert date_ms(held.result(60)) == T0_MS + 20_000


def test_a_service_is_started_used_and_ended_within_somebody_elses_loop():
    async def program() -> int:
        with running() as bench:
            bench.add_user("ada@example.com", "made-up-password")
            bench.product()
            keys = bench.http.headers
            async with httpx.AsyncClient(base_url=bench.service.base_url, headers=keys, trust_env=False) as http:
                return len((await http.get("/products")).json()["data"])

    assert asyncio.run(program()) == 1
