"""The OpenAPI document and its page are whole: security, answers, links and examples."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import httpx
import pytest
from jsonschema import Draft202012Validator

from simulator.service.app import ENDPOINTS
from simulator.service.document import EXAMPLES, make_document
from simulator.service.gate import PUBLIC
from tests.service_running import running

DOCUMENT = make_document(ENDPOINTS, "under test")
ROOT = Path(__file__).parents[4]
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
            assert "X-Request-Id" in response["headers"], (key, status)
            assert ("content" in response) == (status not in {"204", "304"}), (key, status)


def test_links_lead_from_create_to_read_and_delete():
    def leads(method: str, path: str, status: str) -> set[str]:
        return set(OPERATIONS[method, path]["responses"][status]["links"])

    assert {"list_product_commands", "change_product", "delete_product"} <= leads("POST", "/products", "201")
    assert {"list_device_commands", "remove_device"} <= leads("POST", "/onboarding/device", "201")
    assert {"show_command", "report_command_result"} <= leads("POST", "/commands/send", "202")
    stored = leads("POST", "/database/runtime-data", "201")
    assert {"replace_runtime_record", "delete_runtime_record"} <= stored
    names = {operation["operationId"] for operation in OPERATIONS.values()}
    assert len(names) == len(OPERATIONS)
    for operation in OPERATIONS.values():
        for response in operation["responses"].values():
            for link in response.get("links", {}).values():
                assert link["operationId"] in names


def test_every_example_fits_its_schema():
    seen = 0
    for key, operation in OPERATIONS.items():
        places = [operation.get("requestBody", {}), *operation["responses"].values()]
        contents = [place["content"].get("application/json") for place in places if "content" in place]
        for content in filter(None, contents):
            validator = Draft202012Validator({**content["schema"], "components": DOCUMENT["components"]})
            for example in content.get("examples", {}).values():
                seen += 1
                faults = [fault.message for fault in validator.iter_errors(example["value"])]
                assert not faults, (key, faults)
    assert seen > 30


def test_every_operation_with_a_body_has_an_example():
    for key, operation in OPERATIONS.items():
        if "requestBody" in operation:
            assert operation["requestBody"]["content"]["application/json"].get("examples"), key


def test_the_examples_are_those_of_the_golden_files():
    spec = importlib.util.spec_from_file_location("write_examples", ROOT / "tools" / "write_examples.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    current = EXAMPLES.read_text(encoding="utf-8") == module.make_text(ENDPOINTS)
    assert current, "run: python tools/write_examples.py"


@pytest.fixture(scope="module")
def bench():
    with running() as bench:
        yield bench


def test_the_page_loads_nothing_from_elsewhere(bench):
    answer = httpx.get(f"{bench.service.base_url}/docs", trust_env=False, timeout=120)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    loaded = re.findall(r'(?:src|href|spec-url)="([^"]+)"', answer.text)
    assert {"/openapi.json", "/docs/rapidoc-min.js"} <= set(loaded)
    assert not [url for url in loaded if not url.startswith(("/", "data:"))]
    for url in loaded:
        if url.startswith("/"):
            got = httpx.get(bench.service.base_url + url, trust_env=False, timeout=120)
            assert got.status_code == 200
            assert len(got.content) < 1_500_000
    assert (ROOT / "simulator" / "service" / "pages" / "LICENSE-rapidoc.txt").is_file()


def test_the_served_document_is_the_one_made_of_the_endpoints(bench):
    served = httpx.get(f"{bench.service.base_url}/openapi.json", trust_env=False, timeout=120).json()
    assert served["paths"].keys() == DOCUMENT["paths"].keys()


def test_a_changed_vocabulary_has_every_member_that_the_document_requires(bench):
    product_id = bench.product()
    word = {"name": "open", "title": None, "description": None, "payload_schema": None}
    changed = bench.http.put(f"/products/{product_id}", json={"commands": [{"name": "open"}]})
    assert changed.json()["commands"] == [word]
    assert bench.http.get(f"/products/{product_id}/commands").json()["data"] == [word]
