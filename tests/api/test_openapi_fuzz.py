"""Schemathesis over both documents: whatever comes, the answer is one that the document announces, and never a 5xx.

The examples are the same in each run. ``OPENAPI_FUZZ_EXAMPLES`` asks for as many as it says.
"""

from __future__ import annotations

import contextlib
import os
import zlib

import pytest
import schemathesis
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from simulator.service.app import CONTROL_ROUTERS, ROUTERS
from tests.support.service_running import running

pytestmark = pytest.mark.long

EXAMPLES = int(os.environ.get("OPENAPI_FUZZ_EXAMPLES", "15"))
CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
CONFIG = {
    "generation": {"deterministic": True, "allow-x00": False, "codec": "utf-8"},
    "checks": {
        "negative_data_rejection": {
            "expected-statuses": ["400", "401", "403", "404", "405", "409", "413", "415", "422", "429"]
        }
    },
}
STREAM = "stream_command_events"
"""An answer that never ends has tests of its own."""
OPERATIONS = [
    (path, route.name, mode)
    for path, routers in (("/openapi.json", ROUTERS), ("/_emulator/openapi.json", CONTROL_ROUTERS))
    for router in routers
    for route in router.routes
    if isinstance(route, APIRoute) and route.include_in_schema and route.name != STREAM
    for mode in GenerationMode
]


@pytest.fixture(scope="module")
def bench():
    with running() as bench:
        yield bench


@pytest.fixture(scope="module")
def ids(bench):
    """Of one resource of each kind: half of the ids that are made up are exchanged for them."""
    product_id = bench.product()
    device_id = bench.device(product_id)
    action = {"type": "command", "command_payload": {"command": "cool"}}
    trigger = {"reading": "t", "op": ">", "value": 60}
    rule = {"product_id": product_id, "name": "Too hot", "trigger": trigger, "actions": [action]}
    return {
        "product_id": product_id,
        "device_id": device_id,
        "command_id": bench.send(device_id),
        "rule_id": bench.http.post("/rules", json=rule).json()["id"],
        "user_id": "user-0001",
    }


@pytest.fixture(scope="module")
def operations(bench):
    """(document, name) -> the operation."""
    config = SchemathesisConfig.from_dict(CONFIG)
    return {
        (path, operation.definition.raw["operationId"]): operation
        for path in ("/openapi.json", "/_emulator/openapi.json")
        for result in schemathesis.openapi.from_dict(bench.http.get(path).json(), config=config).get_all_operations()
        for operation in [result.ok()]
    }


def test_every_operation_of_the_documents_is_tried(operations):
    assert {key for key in operations if key[1] != STREAM} == {(path, name) for path, name, _ in OPERATIONS}


@pytest.mark.parametrize(("path", "name", "mode"), OPERATIONS)
def test_whatever_comes_the_answer_is_one_that_the_document_announces(path, name, mode, operations, bench, ids):
    @given(operations[path, name].as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    def whatever_comes(case):
        check(case, bench, ids)

    # Where there is no parameter and no body, nothing can be wrong.
    with contextlib.suppress(*([Unsatisfiable] if mode is GenerationMode.NEGATIVE else [])):
        whatever_comes()


def check(case, bench, ids):
    """Send it and look at the answer. What is wrong on purpose stays as it is: a real id could make it right."""
    for location, place in (
        (ParameterLocation.PATH, case.path_parameters),
        (ParameterLocation.QUERY, case.query),
        (ParameterLocation.BODY, case.body),
    ):
        if isinstance(place, dict) and not case.meta.is_negative_at(location):
            for name, real in ids.items():
                if isinstance(place.get(name), str) and zlib.crc32(place[name].encode()) % 2:
                    place[name] = real
            if "wait" in place:
                place["wait"] = 0  # a held poll is tested elsewhere
    headers = {name: value for name, value in bench.http.headers.items() if name.startswith("x-")}
    answer = case.call(base_url=bench.service.base_url, headers=headers)
    # Of an array each reading is judged by itself, and the answer is 200 whatever became of them.
    # A wrong bearer token beside the two keys is not looked at: the keys win.
    has_token = any(name.lower() == "authorization" for name in case.headers or {})
    excluded = [negative_data_rejection] if isinstance(case.body, list) or has_token else []
    case.validate_response(answer, checks=CHECKS, excluded_checks=excluded, headers=headers)
