"""The OpenAPI document, the page and docs/service.md tell the same, and the truth."""

from __future__ import annotations

import ast
import importlib.util
import json
import re

import httpx
import pytest
from jsonschema import Draft202012Validator

from simulator.service.app import ENDPOINTS
from simulator.service.document import EXAMPLES, make_document
from simulator.service.gate import PUBLIC
from tests.service_running import running
from tests.source_search import ROOT, defined_in, trees

PAGE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
DOCUMENT = make_document(ENDPOINTS, "under test")
OPERATIONS = {
    (method.upper(), path): operation for path, item in DOCUMENT["paths"].items() for method, operation in item.items()
}
SPECIFIED = 28
"""Endpoints that the specification names."""


def rows(heading: str) -> list[list[str]]:
    section = PAGE.split(f"# {heading}\n", 1)[1].split("\n#", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def endpoint_rows() -> dict[tuple[str, str], tuple[bool, str]]:
    found = {}
    for name, test in rows("Endpoints"):
        match = re.fullmatch(r"`([A-Z]+) (\S+)`( \(extension\))?", name)
        assert match, name
        found[match[1], match[2]] = (match[3] is not None, test)
    return found


def test_the_table_names_every_operation_of_the_document_and_no_other():
    table = endpoint_rows()
    there = {key for key, (_, test) in table.items() if test != "not yet"}
    assert there == set(OPERATIONS), "docs/service.md, section Endpoints, must have one row for each operation"
    for key in there:
        assert table[key][0] == ("x-extension" in OPERATIONS[key]), key


def test_the_table_names_every_endpoint_of_the_specification():
    assert sum(not extension for extension, _ in endpoint_rows().values()) >= SPECIFIED


def test_every_named_test_exists():
    named = {test for _, test in rows("Endpoints")} | {test for _, _, test in rows("Rules")}
    for test in sorted(named - {"not yet"}):
        match = re.fullmatch(r"`(tests/\S+\.py)::(test_\w+)`", test)
        assert match, test
        path = ROOT / match[1]
        assert path.is_file(), test
        assert match[2] in defined_in(path), test


def test_every_numbered_rule_has_a_row():
    named = {rule for rule, _, _ in rows("Rules")}
    wanted = {f"E{n}" for n in range(1, 6)}
    wanted |= {f"Authentication {n}" for n in range(1, 6)} | {f"Errors {n}" for n in range(1, 6)}
    assert wanted <= named


WORD_AT = {
    "HttpError": 1,
    "OAuthFault": 1,
    "RedirectError": 1,
    "Conflict": 0,
    "Invalid": 0,
    "KeyInUse": 0,
    "KeyReused": 0,
    "TooLarge": 0,
    "TooManyStreams": 0,
    "Unavailable": 0,
    "not_found": 0,
    "ErrorPage": 0,
    "Refusal": 0,
}
"""Which argument is the word, of each call that makes an error."""


def words_in_the_code() -> set[str]:
    """Each ``error`` that the code can answer."""
    found = set()
    for _, tree in trees("simulator/service"):
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            place = WORD_AT.get(node.func.id)
            if place is None or len(node.args) <= place or not isinstance(node.args[place], ast.Constant):
                continue
            word = node.args[place].value
            found.add(f"{word}_not_found" if node.func.id == "not_found" else word)
    return found


def test_the_catalogue_has_every_error_of_the_code_and_of_the_document():
    catalogue = {word.strip("`") for _, word, _ in rows("Errors")}
    missing = words_in_the_code() - catalogue
    assert not missing, f"docs/service.md, section Errors, lacks {sorted(missing)}"
    endings = ("found", "error", "exists", "credentials", "token", "full", "use", "large", "client", "grant")
    told = json.dumps([operation["responses"] for operation in OPERATIONS.values()])
    announced = {
        word
        for word in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", " ".join(re.findall(r'"description": "([^"]*)"', told)))
        if word.endswith(tuple(f"_{ending}" for ending in endings))
    }
    assert announced <= catalogue
    assert len(announced) > 10


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
