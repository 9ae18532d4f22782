"""The document of the control paths has what ``golden/control.json`` names: what a client may rely on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service_running import running

GOLDEN = json.loads((Path(__file__).parent / "golden" / "control.json").read_text())
METHODS = {"get", "put", "post", "delete", "patch"}


class Document:
    """An OpenAPI document, with its references followed."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self.operations = {
            f"{method.upper()} {path}": operation
            for path, item in document["paths"].items()
            for method, operation in item.items()
            if method in METHODS
        }

    def follow(self, value: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in value:
            found: Any = self._document
            for step in value["$ref"].removeprefix("#/").split("/"):
                found = found[step]
            value = found
        return value

    def shapes(self, schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The schema, or each that may take its place."""
        schema = self.follow(schema)
        yield schema
        for one in [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]:
            yield from self.shapes(one)

    def find(self, schema: dict[str, Any], member: str) -> tuple[list[dict[str, Any]], bool]:
        """The shapes of a member such as ``keys[].api_key``, and whether it has to be there where its parent is."""
        found, required = list(self.shapes(schema)), True
        for step in member.split("."):
            name = step.removesuffix("[]")
            parents = [one for one in found if name in one.get("properties", {})]
            assert parents, f"there is no {member}"
            required = any(name in one.get("required", ()) for one in parents)
            found = [shape for one in parents for shape in self.shapes(one["properties"][name])]
            if step.endswith("[]"):
                found = [shape for one in found if "items" in one for shape in self.shapes(one["items"])]
                assert found, f"{member} is no list"
        return found, required

    def body(self, content: dict[str, Any]) -> dict[str, Any]:
        return content["content"]["application/json"]["schema"]


@pytest.fixture(scope="module")
def document():
    with running() as bench:
        yield Document(bench.http.get("/_emulator/openapi.json").json())


def test_the_document_has_the_golden_operations_and_no_other(document):
    assert sorted(document.operations) == sorted(row["operation"] for row in GOLDEN)


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: row["operation"])
def test_each_operation_takes_and_answers_what_a_client_may_rely_on(document, row):
    operation = document.operations[row["operation"]]
    parameters = [document.follow(one) for one in operation.get("parameters", ())]
    assert [one["name"] for one in parameters if one["in"] == "query"] == row.get("query", [])
    assert not [one["name"] for one in parameters if one["in"] == "query" and one.get("required")]
    assert ("requestBody" in operation) == ("body" in row)
    for status, wanted in row["answers"].items():
        answer = document.follow(operation["responses"][status])
        if isinstance(wanted, str):
            assert [kind.partition(";")[0] for kind in answer["content"]] == [wanted]
            continue
        for member in wanted:
            _, is_there = document.find(document.body(answer), member)
            assert is_there, f"{status}: {member} may be absent"


@pytest.mark.parametrize("row", [row for row in GOLDEN if "body" in row], ids=lambda row: row["operation"])
def test_each_body_has_the_golden_members_and_needs_no_others(document, row):
    schema = document.body(document.operations[row["operation"]]["requestBody"])
    for given in row["body"]:
        _, required = document.find(schema, given.removesuffix("!"))
        assert required == given.endswith("!"), given
    for member, wanted in row.get("values", {}).items():
        shapes, _ = document.find(schema, member)
        values = [
            value for one in shapes for value in [*one.get("enum", ()), *([one["const"]] if "const" in one else [])]
        ]
        assert set(values) == set(wanted), member
    needed = {name for one in document.shapes(schema) for name in one.get("required", ())}
    assert needed <= {given.removesuffix("!") for given in row["body"]}
