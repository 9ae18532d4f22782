"""Nonsense at every endpoint of the document: each is refused with a status that the document announces there."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from simulator.service.app import ROUTERS
from simulator.service.documents import make_document
from tests.api.golden_bodies import bodies_of
from tests.support.service_running import running

DOCUMENT = make_document([route for router in ROUTERS for route in router.routes], "under test", control=False)
SQL = "x'; DROP TABLE products; --"
QUERY_NONSENSE = {
    "limit": ["-1", "0", "1001", "1.5", "1e2", "99999999999999999999", "%00", "%FF", "", "true", "%D9%A1"],
    "cursor": ["x", "%00", "%FF", "%25", "", "bm90IG91cnM", "W10", "-1", "YQ", "YQ.", "_w", "MTIzNDU2Nzg5MDEyLjE"],
    "order": ["up", "", "ASC", "asc;--"],
    "from": ["yesterday", "", "9" * 30, "2026-13-01T00:00:00Z", "%00"],
    "to": ["now", "", "-" + "9" * 30, "2026-01-01T25:00:00Z"],
    "wait": ["-1", "30.1", "NaN", "inf", "x", ""],
    "interval": ["-1", "0", "1.5", "x", "1e9", str(2**70)],
    "agg": ["median", "", "avg'; --"],
    "keys": ["", "a,,b"],
    "status": ["nonsense", ""],
}


def operations(*, body: bool = False, query: bool = False) -> list[tuple[str, str]]:
    return [
        (verb, path)
        for path, item in DOCUMENT["paths"].items()
        for verb, operation in item.items()
        if (not body or "requestBody" in operation)
        and (not query or parameters_of(verb, path, "query"))
        and operation["security"]
    ]


def parameters_of(verb: str, path: str, place: str) -> set[str]:
    """The names of an operation's parameters in the query, or in the headers."""
    return {one["name"] for one in DOCUMENT["paths"][path][verb].get("parameters", ()) if one["in"] == place}


def names(cases: list[tuple[str, str]]) -> list[str]:
    return [f"{verb.upper()} {path}" for verb, path in cases]


WITH_BODY = operations(body=True)
WITH_QUERY = operations(query=True)
WITH_ID = [case for case in operations() if "{" in case[1]]


class World:
    """A service that has one of what the paths name."""

    def __init__(self, bench: Any) -> None:
        self.http = bench.http
        self.ids = {"product_id": bench.product(), "user_id": "user-0001"}
        self.ids["device_id"] = bench.device(self.ids["product_id"])
        self.ids["command_id"] = bench.send(self.ids["device_id"])

    def fill(self, path: str) -> str:
        for name, value in self.ids.items():
            path = path.replace(f"{{{name}}}", value)
        return path.replace("{record_id}", "no-such").replace("{rule_id}", "no-such").replace("{schema_id}", "no-such")

    def refuse(self, verb: str, path: str, told: str, *, query: str = "", **request: Any) -> Any:
        """Send it; the answer must be a 4xx with an error body, announced for this operation. Its body."""
        answer = self.http.request(verb, told + query, **request)
        shown = f"{verb} {told[:80]}{query[:80]}: {answer.status_code} {answer.text[:300]}"
        assert 400 <= answer.status_code < 500, shown
        assert str(answer.status_code) in DOCUMENT["paths"][path][verb]["responses"], shown
        body = answer.json()
        assert body["message"], shown
        assert set(body) == {"error", "message", *(["details"] if body["error"] == "validation_error" else [])}, shown
        assert all(set(detail) == {"field", "issue"} for detail in body.get("details", ())), shown
        return body

    def refuse_query(self, verb: str, path: str, query: str, **request: Any) -> set[str]:
        """A query that is 400; the parameters that are named."""
        body = self.refuse(verb, path, self.fill(path), query=query, **request)
        assert body["error"] == "validation_error", query
        return {detail["field"] for detail in body["details"]}


@pytest.fixture(scope="module")
def world():
    with running() as bench:
        yield World(bench)


BODIES = {
    "NUL": b'{"name":"a\\u0000b","x":"\\u0000"}',
    "a NUL byte": b'{"name":"a\x00b"}',
    "a lone surrogate": b'{"name":"\\ud800"}',
    "2^70": b'{"x":%d}' % 2**70,
    "NaN": b'{"x":NaN}',
    "-Infinity": b'{"x":-Infinity}',
    "1e999": b'{"x":1e999}',
    "duplicate names": b'{"device_id":"a","device_id":"b"}',
    "depth 10,000 of arrays": b'{"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "depth 10,000 of objects": b'{"x":' * 10_000 + b"1" + b"}" * 10_000,
    "depth 33": b'{"x":' * 33 + b"1" + b"}" * 33,
    "no UTF-8": b'{"name":"\xff"}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"name":"a"}'.encode("utf-16"),
    "nothing": b"",
    "half of it": b'{"name":',
    "two values": b"{} {}",
    "null": b"null",
    "text": b'"text"',
    "an empty object": b"{}",
    "an empty array": b"[]",
    "an array of arrays too many": json.dumps([[]] * 501).encode(),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_body_of_nonsense_is_400_at_every_endpoint(world, body):
    for verb, path in WITH_BODY:
        assert world.refuse(verb, path, world.fill(path), content=body)["error"] == "validation_error", path


@pytest.mark.parametrize(("verb", "path"), WITH_BODY, ids=names(WITH_BODY))
def test_ten_megabytes_are_413_declared_or_chunked_and_another_media_type_is_415(world, verb, path):
    parts, told = 160, world.fill(path)
    for large in (b" " * 65_536 * parts, (b" " * 65_536 for _ in range(parts))):
        assert world.refuse(verb, path, told, content=large)["error"] == "payload_too_large"
    headers = {"content-type": "application/x-www-form-urlencoded"}
    refused = world.refuse(verb, path, told, content=b"a=b", headers=headers)
    assert refused["error"] == "unsupported_media_type"


@pytest.mark.parametrize(("verb", "path"), WITH_BODY, ids=names(WITH_BODY))
def test_a_member_that_does_not_fit_its_schema_is_400_and_named_at_every_endpoint(world, verb, path):
    schema = DOCUMENT["paths"][path][verb]["requestBody"]["content"]["application/json"]["schema"]
    reference = schema.get("$ref") or schema["anyOf"][0]["$ref"]
    validator = Draft202012Validator({"$ref": reference, "components": DOCUMENT["components"]})
    whole = _valid(verb, path)
    assert validator.is_valid(whole)
    properties = DOCUMENT["components"]["schemas"][reference.rpartition("/")[2]]["properties"]
    tried = 0
    for name in properties:
        for value in (2**63, [[]], {"x": {}}, True, 1.5, -1, "", None):
            body = {**whole, name: value}
            if not validator.is_valid(body):
                tried += 1
                refused = world.refuse(verb, path, world.fill(path), json=body)
                assert refused["error"] == "validation_error", body
                named = {detail["field"].partition(".")[0] for detail in refused["details"]}
                assert ("body" if value == 2**63 else name) in named, (body, refused)
    assert tried


@pytest.mark.parametrize(("verb", "path"), WITH_QUERY, ids=names(WITH_QUERY))
def test_a_query_of_nonsense_is_400_and_named(world, verb, path):
    parameters = parameters_of(verb, path, "query")
    for name in parameters & QUERY_NONSENSE.keys():
        for value in QUERY_NONSENSE[name]:
            named = "query" if value == "%FF" else name  # what is no UTF-8 is in no parameter
            assert named in world.refuse_query(verb, path, f"?{name}={value}"), (name, value)
        world.refuse_query(verb, path, f"?{name}=1&{name}=1")
    world.refuse_query(verb, path, f"?{SQL}=1")
    if {"from", "to"} <= parameters:
        world.refuse_query(verb, path, "?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z")


@pytest.mark.parametrize(("verb", "path"), operations(), ids=names(operations()))
def test_an_unknown_query_parameter_is_400_at_every_endpoint(world, verb, path):
    body = {"json": {}} if (verb, path) in WITH_BODY else {}
    assert "no_such" in world.refuse_query(verb, path, "?no_such=1", **body)


@pytest.mark.parametrize(
    "value",
    ["a%2Fb", "%2e%2e", "%00", "%FF", "..%2F..%2Fproducts", "%F0%9F%92%A9", SQL, "1 OR 1=1", "x" * 5000, "%25", ""],
)
def test_an_id_that_is_none_is_404_and_never_another_path(world, value):
    for verb, path in WITH_ID:
        body = {"json": _valid(verb, path)} if (verb, path) in WITH_BODY else {}
        told = re.sub(r"{\w+}", lambda _: value, path)
        assert world.refuse(verb, path, told, **body)["error"].endswith("not_found"), (verb, path)


def _valid(verb: str, path: str) -> Any:
    """The body of a golden exchange of this operation."""
    return bodies_of(verb, path, DOCUMENT["paths"])[0]


def test_sql_in_every_string_is_text_and_nothing_else(world):
    before = world.http.get("/products?limit=1000").json()["data"]
    for verb, path in WITH_BODY:
        answer = world.http.request(verb, world.fill(path), json=_inject(_valid(verb, path)))
        assert str(answer.status_code) in DOCUMENT["paths"][path][verb]["responses"], (verb, path, answer.text)
        assert answer.status_code < 500
    for verb, path in WITH_QUERY:
        if "text/event-stream" in DOCUMENT["paths"][path][verb]["responses"]["200"]["content"]:
            continue  # an answer that never ends
        for name in parameters_of(verb, path, "query"):
            answer = world.http.get(world.fill(path), params={name: SQL})
            assert answer.status_code in {200, 400, 404}, (path, name, answer.text)
            if answer.status_code == 200:
                assert all(SQL in record.values() for record in answer.json().get("data", []))
    after = {product["product_id"] for product in world.http.get("/products?limit=1000").json()["data"]}
    assert {product["product_id"] for product in before} <= after


def _inject(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _inject(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_inject(member) for member in value]
    return SQL if isinstance(value, str) else value


def test_a_cursor_of_another_list_is_400_everywhere(world):
    for _ in range(2):
        world.http.post("/products", json={"name": "for a second page"}).raise_for_status()
    cursor = world.http.get("/products", params={"limit": 1}).json()["next_cursor"]
    assert cursor
    for verb, path in WITH_QUERY:
        if "cursor" in parameters_of(verb, path, "query") and path != "/products":
            assert world.refuse_query(verb, path, f"?cursor={cursor}") == {"cursor"}, path


@pytest.mark.parametrize("key", [b"", b"\xff", b"x" * 256, b"a\tb"])
def test_an_idempotency_key_of_nonsense_is_400(world, key):
    for verb, path in WITH_BODY:
        if "Idempotency-Key" in parameters_of(verb, path, "header"):
            sent = {"json": _valid(verb, path), "headers": {b"idempotency-key": key}}
            assert world.refuse(verb, path, world.fill(path), **sent)["error"] == "validation_error", (verb, path)
