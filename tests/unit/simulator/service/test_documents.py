"""The OpenAPI document and its page are whole: security and answers."""

from __future__ import annotations

import re

import httpx
import pytest

from simulator.service.app import ROUTERS
from simulator.service.documents import make_document
from simulator.service.gate import PUBLIC
from tests.support.service_running import running

DOCUMENT = make_document([route for router in ROUTERS for route in router.routes], "under test", control=False)
OPERATIONS = {
    (method.upper(), path): operation for path, item in DOCUMENT["paths"].items() for method, operation in item.items()
}


def test_both_keys_are_one_requirement_and_a_token_is_another():
    keys = {"api_key": [], "secret_key": []}
    schemes = DOCUMENT["components"]["securitySchemes"]
    assert [schemes[name]["name"] for name in keys] == ["x-api-key", "x-secret-key"]
    for key, operation in OPERATIONS.items():
        if key[1] in PUBLIC:
            assert operation["security"] == []
            continue
        assert operation["security"][0] == keys, key
        assert all(list(other) == ["bearer"] for other in operation["security"][1:]), key
    assert OPERATIONS["POST", "/products"]["security"][1] == {"bearer": ["manufacturer:products"]}


def test_operation_names_are_unique():
    assert len({operation["operationId"] for operation in OPERATIONS.values()}) == len(OPERATIONS)


def test_every_operation_announces_what_every_request_can_meet():
    for key, operation in OPERATIONS.items():
        statuses = set(operation["responses"])
        if operation["security"]:
            assert {"400", "401", "403", "429", "500", "503"} <= statuses, key
        if "requestBody" in operation:
            assert {"413", "415"} <= statuses, key
        if "{" in key[1]:
            assert "404" in statuses, key
        for status, response in operation["responses"].items():
            assert response["description"], (key, status)
            assert ("content" in response) <= (status not in {"204", "304"}), (key, status)


@pytest.fixture(scope="module")
def bench():
    with running() as bench:
        yield bench


def test_the_page_loads_nothing_from_elsewhere(bench):
    answer = httpx.get(f"{bench.service.base_url}/docs", trust_env=False, timeout=120)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    loaded = re.findall(r'(?:src|href|url)(?:=|: )"([^"]+)"', answer.text)
    assert {"/openapi.json", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css"} <= set(loaded)
    assert not [url for url in loaded if not url.startswith(("/", "data:"))]
    for url in loaded:
        if url.startswith("/"):
            got = httpx.get(bench.service.base_url + url, trust_env=False, timeout=120)
            assert got.status_code == 200


def test_the_served_document_is_the_one_made_of_the_endpoints(bench):
    served = httpx.get(f"{bench.service.base_url}/openapi.json", trust_env=False, timeout=120).json()
    assert served["paths"].keys() == DOCUMENT["paths"].keys()
