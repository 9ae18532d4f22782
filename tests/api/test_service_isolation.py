"""Two manufacturers on one service: every operation of the OpenAPI document, tried with the other one's ids.

The document drives it, so an endpoint that is added later is tried too. Its examples use fixed ids; they are replaced
by ids of the owner's real resources, and the other account sends the request: 404, and nothing of the owner's changes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.api.golden_bodies import RECORD, RULE, SCHEMA, TABLE, C, D, P, bodies_of
from tests.api.test_service_golden import Exchange
from tests.support.service_running import Bench, client, running

MADE = (
    ("create a product", P, "product_id", "product_id"),
    ("register a device", D, "device_id", "device_id"),
    ("send a command", C, "id", "command_id"),
    ("create a schema", SCHEMA, "schema_id", "schema_id"),
    ("create a table", TABLE, "table_id", "table_id"),
    ("create a runtime record", RECORD, "id", "record_id"),
    ("create a rule", RULE, "id", "rule_id"),
)
"""Golden exchange, the id that the golden bodies use, the member of the answer that has ours, and its name in paths."""
METHODS = ("get", "put", "post", "delete", "patch")
# Bodies that refer to nothing: the other account may send them, and gets something of its own.
OF_ONES_OWN = {("post", "/products"), ("post", "/auth/signin")}


@dataclass
class Tenants:
    """An owner with one resource of each kind, and another account's client."""

    bench: Bench
    other: httpx.Client
    ids: dict[str, str]
    document: dict[str, Any]

    def state(self) -> list[Any]:
        """All that the owner can list or read."""
        seen = []
        for path, methods in self.document["paths"].items():
            if "get" in methods and not _is_public(methods["get"]) and "events" not in path:
                seen.append(self.bench.http.get(self.fill(path)).json())
        return seen

    def fill(self, path: str) -> str:
        """The path with the owner's ids."""
        return re.sub(r"\{(\w+)\}", lambda found: self.ids[found[1]], path)

    def body(self, example: Any) -> Any:
        """An example with the owner's ids in place of its own."""
        text = json.dumps(example)
        for _, golden_id, _, name in MADE:
            text = text.replace(golden_id, self.ids[name])
        return json.loads(text)


def _operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method in METHODS and not _is_public(operation)
    ]


def _is_public(operation: dict[str, Any]) -> bool:
    """Whether it takes no keys: what describes the service, and partner access, where a client proves itself."""
    return operation.get("security") == []


def _examples(document: dict[str, Any], method: str, path: str) -> list[Any]:
    has_body = "requestBody" in document["paths"][path][method]
    return bodies_of(method, path, document["paths"]) or ([{}] if has_body else [None])


@pytest.fixture(scope="module")
def tenants():
    with running() as bench:
        exchange, ids = Exchange(bench), {"user_id": "user-0001"}
        for exchanged, golden_id, member, name in MADE:
            answer = exchange.run(exchanged)
            exchange.learn(golden_id, answer, member)
            ids[name] = answer[member]
        bench.post_reading(ids["device_id"])
        bench.clock.advance(1)
        other = bench.add_account("other")
        with client(bench.service, other.api_key, other.secret_key) as others:
            yield Tenants(bench, others, ids, bench.http.get("/openapi.json").json())


def _errors(answer: httpx.Response) -> list[str]:
    """The error of a 404; of a batch, which is 200 whatever becomes of its items, the error of every item."""
    body = answer.json()
    if answer.status_code == 404:
        return [body["error"]]
    if answer.status_code == 200 and body.get("accepted") == 0:
        return [row["error"] for row in body["errors"]]
    return []


def _mentions(tenants: Tenants, answer: httpx.Response) -> list[str]:
    secrets = [value for name, value in tenants.ids.items() if name != "user_id"]
    sent = str(answer.request.url) + answer.request.content.decode()
    return [value for value in secrets if value in answer.text and value not in sent]


def test_every_operation_is_404_for_another_account_as_with_nobodys_ids_and_changes_nothing(tenants):
    """Another account's resource and none at all look alike: the answer does not tell which ids exist."""
    nobodys = dict.fromkeys(tenants.ids, "019b76da-ffff-7000-8000-00000000ffff")
    nowhere = Tenants(tenants.bench, tenants.other, nobodys, tenants.document)
    before = tenants.state()
    tried = 0
    for method, path, _ in _operations(tenants.document):
        if "{" not in path and ((method, path) in OF_ONES_OWN or method == "get"):
            continue
        for example in _examples(tenants.document, method, path):
            theirs = tenants.other.request(method, tenants.fill(path), json=tenants.body(example))
            nones = tenants.other.request(method, nowhere.fill(path), json=nowhere.body(example))
            errors = _errors(theirs)
            assert errors == _errors(nones) != [], f"{method} {path}: {theirs.status_code} {theirs.text}"
            assert all(error.endswith("_not_found") for error in errors), f"{method} {path}: {theirs.text}"
            assert _mentions(tenants, theirs) == []
            tried += 1
    assert tried >= 15
    assert tenants.state() == before


def test_every_list_is_empty_or_404_for_another_account_whatever_it_is_narrowed_to(tenants):
    for method, path, operation in _operations(tenants.document):
        if method != "get" or "{" in path or "events" in path:
            continue
        names = {p["name"] for p in operation.get("parameters", []) if p.get("in") == "query"} & tenants.ids.keys()
        for narrowed in ({}, *({name: tenants.ids[name]} for name in names)):
            answer = tenants.other.get(path, params=narrowed)
            assert answer.status_code in {200, 404}, f"{path} {narrowed}: {answer.text}"
            assert _mentions(tenants, answer) == []
            body = answer.json()
            assert body.get("data", []) == [], f"{path} {narrowed}"
            assert body.get("total", 0) == 0, f"{path} {narrowed}"
            assert {interval["count"] for interval in body.get("messages", []) + body.get("commands", [])} <= {0}, path


@settings(max_examples=60)
@given(data=st.data())
def test_any_of_the_owners_ids_in_any_place_opens_nothing(tenants, data):
    """Ids of the wrong kind, in paths and bodies alike."""
    operations = [found for found in _operations(tenants.document) if "{" in found[1]]
    method, path, _ = data.draw(st.sampled_from(operations), label="operation")
    ids = sorted(tenants.ids.values())
    mixed = {name: data.draw(st.sampled_from(ids), label=name) for name in tenants.ids}
    shuffled = Tenants(tenants.bench, tenants.other, mixed, tenants.document)
    example = data.draw(st.sampled_from(_examples(tenants.document, method, path)), label="body")
    answer = tenants.other.request(method, shuffled.fill(path), json=shuffled.body(example))
    assert _errors(answer), answer.text


def test_the_same_names_live_side_by_side(tenants):
    bench, other = tenants.bench, tenants.other
    device_id = bench.of(other).device()
    assert len(other.get("/onboarding/user/user-0001/devices").json()["data"]) == 1
    assert len(bench.http.get("/onboarding/user/user-0001/devices").json()["data"]) == 1
    key = {"idempotency-key": "shared"}
    mine = bench.http.post("/products", json={"name": "a"}, headers=key).json()
    theirs = other.post("/products", json={"name": "b"}, headers=key).json()
    assert (mine["name"], theirs["name"]) == ("a", "b")
    page = bench.http.get("/products?limit=1").json()
    assert other.get("/products", params={"limit": 1, "cursor": page["next_cursor"]}).status_code == 400
    assert other.delete(f"/onboarding/device/{device_id}").status_code == 204
