"""Schemathesis over the whole document with all its checks: no 5xx, no undocumented answer, no accepted nonsense.

The examples are the same in each run. ``OPENAPI_FUZZ_EXAMPLES`` asks for as many as it says.
"""

from __future__ import annotations

import copy
from types import ModuleType

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from agent.wire.secret import Secret
from simulator.service.app import ENDPOINTS
from simulator.service.routes.event_streams import MEDIA_TYPE
from tests.service_running import running

pytestmark = pytest.mark.long

# An answer that never ends has tests of its own.
STREAMS = [
    endpoint.name
    for endpoint in ENDPOINTS
    if any(reply.status == 200 and reply.media_type == MEDIA_TYPE for reply in endpoint.replies)
]
OPERATIONS = [endpoint.name for endpoint in ENDPOINTS if endpoint.name not in STREAMS]


@pytest.fixture(scope="module")
def fuzzed() -> ModuleType:
    from tests.contract import fuzzed_document

    return fuzzed_document


@pytest.fixture(scope="module")
def schema(fuzzed):
    return fuzzed.make_schema(without=STREAMS)


@pytest.fixture(scope="module")
def world(fuzzed):
    with running(api_key="mk_fuzz", secret_key=Secret("msk_fuzz")) as bench:
        made = fuzzed.World(bench)
        with made.session:
            yield made


def test_the_document_is_valid_openapi(schema):
    schema.validate()


def test_every_operation_of_the_document_is_tried(fuzzed, schema):
    documented = [fuzzed.operation_id_of(operation) for operation in fuzzed.operations(schema)]
    assert sorted(documented) == sorted(OPERATIONS)


@pytest.mark.parametrize("operation_id", OPERATIONS)
def test_whatever_comes_the_answer_is_one_that_the_document_announces(operation_id, fuzzed, schema, world):
    fuzzed.try_operation(schema, operation_id, world)


def test_what_is_wrong_on_purpose_is_not_made_right(fuzzed, schema, world):
    @given(fuzzed.wrong_cases(schema))
    @settings(
        max_examples=25,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],  # the first one found tells enough
        suppress_health_check=list(HealthCheck),
    )
    def settle(case):
        def wrong():
            parts = {"path": case.path_parameters, "query": case.query, "body": case.body}
            return {
                name: copy.deepcopy(part)
                for name, part in parts.items()
                if case.meta.is_negative_at(fuzzed.ParameterLocation(name))
            }

        before = wrong()
        world.settle(case)
        after = wrong()
        for part in (before.get("query"), after.get("query")):
            if isinstance(part, dict) and fuzzed.may_be_held(part.get("wait")):
                del part["wait"]  # one right wait for another
        assert after == before
        seen.update(before)

    seen = set()
    settle()
    assert {"query", "body"} <= seen
