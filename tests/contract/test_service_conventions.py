"""What holds for every request: keys, quota, order of checks, media types, limits, and error bodies."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

import httpx
import pytest

from tests.service_running import client, running


@pytest.fixture(scope="module")
def bench():
    with running() as bench:
        yield bench


@pytest.mark.parametrize("missing", ["x-api-key", "x-secret-key", "both"])
@pytest.mark.parametrize("path", ["/products", "/no/such/path", "/rules"])
def test_a_missing_key_header_is_401_even_on_an_unknown_path(bench, missing, path):
    keys = {name: value for name, value in bench.http.headers.items() if name.startswith("x-")}
    kept = {} if missing == "both" else {name: value for name, value in keys.items() if name != missing}
    answer = httpx.get(bench.service.base_url + path, headers=kept, trust_env=False, timeout=120)
    assert answer.status_code == 401
    assert answer.json()["error"] == "missing_credentials"
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
    "body",
    [
        b"",
        b"{",
        b"[1",
        b"nonsense",
        b'{"name":"a","name":"b"}',
        b'{"name":"a\\u0000"}',
        b'{"name":"\\ud800"}',
        b'{"name":"a","x":NaN}',
        b'{"name":"a","x":Infinity}',
        b'{"name":"a","x":%d}' % 2**70,
        b'{"name":"a","x":1e999}',
        b'{"name":"\xff"}',
        b"\xef\xbb\xbf{}",
        b'{"name":"a","x":' + b"[" * 40 + b"]" * 40 + b"}",
        b"[" * 10_000,
        b"null",
        b"7",
        b'"text"',
        b"[]",
        b"{}",
        b'{"name":7}',
        b'{"name":""}',
        b'{"name":null}',
        b'{"name":"a","commands":[{"name":"x"},{"name":"x"}]}',
        b'{"name":"a","commands":[{"name":"x","payload_schema":{"type":"no such type"}}]}',
        b'{"name":"a","commands":[{"nmae":"x"}]}',
    ],
)
def test_a_bad_body_is_a_400_with_details_and_stores_nothing(bench, body):
    before = len(bench.http.get("/products").json()["data"])
    answer = bench.http.post("/products", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text
    told = answer.json()
    assert told["error"] == "validation_error"
    assert told["message"]
    assert all(set(detail) == {"field", "issue"} for detail in told["details"])
    assert told["details"]
    assert len(bench.http.get("/products").json()["data"]) == before


def test_a_body_over_256_kib_is_413_declared_or_chunked(bench):
    declared = bench.http.post("/products", content=b"x" * 262_145)
    assert declared.status_code == 413
    chunked = bench.http.post("/products", content=(b"x" * 65_536 for _ in range(5)))
    assert chunked.status_code == 413
    just = json.dumps({"name": "a", "metadata": {"pad": ""}}).encode()
    fits = just.replace(b'""', b'"' + b"x" * (262_144 - len(just)) + b'"')
    assert len(fits) == 262_144
    assert bench.http.post("/products", content=fits).status_code == 201


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


@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=-1", "limit=1001", "limit=x", "limit=1&limit=2", "limit=%D9%A1", "order=up", "cursor=",
        "cursor=x", "cursor=%00", "cursor=%FF", "limit=99999999999999999999", "statuss=active", "cursor=YQ",
        "cursor=MTIzNDU2Nzg5MDEyLjE", "cursor=%25", "cursor=YQ.", "cursor=_w", "cursor=YS54",
    ],
)  # fmt: skip
def test_a_bad_page_is_400(bench, query):
    answer = bench.http.get(f"/products?{query}")
    assert answer.status_code == 400, answer.text
    assert {detail["field"] for detail in answer.json()["details"]} <= {query.partition("=")[0], "query"}


def test_an_unknown_query_parameter_is_named_with_what_the_path_has(bench):
    issue = bench.http.get("/devices?usr_id=1").json()["details"][0]
    assert issue["field"] == "usr_id"
    assert "user_id" in issue["issue"]


def test_ids_with_an_encoded_slash_dots_or_no_utf_8_are_404_and_never_another_path(bench):
    for path in (
        "/products/%2E%2E/commands",
        "/products/a%2Fcommands/commands",
        "/products/%FF/commands",
        "/products/%00/commands",
        "/devices//commands",
        "/products/",
        "/onboarding/user/' OR 1=1 --/devices",
    ):
        assert bench.http.get(path).status_code == 404, path


def test_bytes_that_are_no_http_do_not_end_the_service(bench):
    url = urlsplit(bench.service.base_url)
    with socket.create_connection((url.hostname, url.port), timeout=120) as raw:
        raw.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        assert b"400" in raw.recv(200)
    assert bench.http.get("/products").status_code == 200


def test_lists_are_cut_into_pages_that_a_link_joins():
    with running() as bench:
        ids = [bench.product() for _ in range(7)]
        seen, url = [], "/products?limit=3"
        while url:
            answer = bench.http.get(url)
            page = answer.json()
            assert page["has_more"] == (page["next_cursor"] is not None)
            seen += [product["product_id"] for product in page["data"]]
            url = answer.links["next"]["url"] if "next" in answer.links else None
        assert seen == ids
        newest = bench.http.get("/products?order=desc&limit=2").json()
        assert [product["product_id"] for product in newest["data"]] == ids[:-3:-1]
        foreign = bench.http.get("/products", params={"cursor": newest["next_cursor"]})
        assert foreign.status_code == 400


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


def test_a_reset_deletes_everything_but_the_keys():
    with running(rate_limit=100) as bench:
        device_id = bench.device()
        bench.post_reading(device_id)
        bench.send(device_id)
        assert bench.http.post("/_emulator/reset").status_code == 204
        for path in ("/products", "/devices", "/sensor-data"):
            assert bench.http.get(path).json()["data"] == []
        assert bench.http.get(f"/devices/{device_id}/commands").status_code == 404
        bench.device()


def test_the_document_has_every_route_and_marks_the_extensions(bench):
    document = bench.http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    operations = {
        (method, path): operation for path, item in document["paths"].items() for method, operation in item.items()
    }
    extended = {key for key, operation in operations.items() if operation.get("x-extension")}
    assert ("post", "/devices/{device_id}/commands/{command_id}/result") in extended
    assert ("get", "/.well-known/device-service") in extended
    assert ("post", "/sensor-data") not in extended
    assert {"201", "200", "400", "401", "404", "413", "415", "422", "429", "500"} <= set(
        operations["post", "/sensor-data"]["responses"]
    )
    reading = document["components"]["schemas"]["PostSensorData"]
    assert reading["properties"]["sensor_data"]["additionalProperties"] == {"type": "number"}
    named = json.dumps(document)
    for reference in {part.split('"')[0] for part in named.split("#/components/schemas/")[1:]}:
        assert reference in document["components"]["schemas"]


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
