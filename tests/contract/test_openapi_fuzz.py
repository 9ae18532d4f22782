"""Schemathesis over the whole document with all its checks: no 5xx, no undocumented answer, no accepted nonsense.

Every request goes to a service on SQLite and then, as it is, to one on PostgreSQL: what costs is to make a request and
to look at its answer, so an answer that is the same on both is looked at once. The examples are the same in each run.
``OPENAPI_FUZZ_EXAMPLES`` asks for more of them.
"""

from __future__ import annotations

import copy
import os
import zlib
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from agent.wire.limits import INT_MAX, INT_MIN
from agent.wire.secret import Secret
from simulator.service.app import ENDPOINTS
from simulator.service.document import make_document
from tests.service_running import running, stored_on

EXAMPLES = int(os.environ.get("OPENAPI_FUZZ_EXAMPLES", "25"))
ACCEPTED = ["2xx", "3xx", "401", "403", "404", "409", "422", "429"]
REFUSED = ["400", "401", "403", "404", "405", "409", "413", "415", "422", "429"]

# What no schema can say, so that a body which fits the schema may still be refused with 400.
UNSAYABLE = {
    "scan_qr": "the text must be a label",
    "create_runtime_record": "the columns of the table",
    "replace_runtime_record": "the columns of the table",
    "create_table": "a column's default must be of its type",
    "create_rule": "the columns of an action's table",
    "change_rule": "the columns of an action's table",
    "device_analytics": "the span of time must not be turned round or too long",
    "list_runtime_data": "the columns of the table",
    "show_authorize_page": "a registered client and one of its addresses",
    "issue_tokens": "a registered client, and a code or refresh token that it has",
    "revoke_token": "a registered client",
    "introspect_token": "a registered client",
}

# What is looked at again where the other database's answer is not the same to the letter.
ANSWER_CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def _config() -> SchemathesisConfig:
    refused = {"negative_data_rejection": {"expected-statuses": REFUSED}}
    accepted = {**refused, "positive_data_acceptance": {"expected-statuses": ACCEPTED}}
    refusing = {**refused, "positive_data_acceptance": {"expected-statuses": [*ACCEPTED, "400"]}}
    return SchemathesisConfig.from_dict(
        {
            "generation": {"mode": "all", "deterministic": True, "allow-x00": False, "codec": "utf-8"},
            "checks": accepted,
            "operations": [{"include-operation-id": name, "checks": refusing} for name in UNSAYABLE],
        }
    )


document = make_document(ENDPOINTS, "the service under test")
WAIT_MAX_S = max(
    parameter["schema"]["maximum"]
    for item in document["paths"].values()
    for operation in item.values()
    for parameter in operation.get("parameters", ())
    if parameter["name"] == "wait"
)
# An answer that never ends has tests of its own.
STREAMS = [
    operation["operationId"]
    for item in document["paths"].values()
    for operation in item.values()
    if "text/event-stream" in operation["responses"].get("200", {}).get("content", {})
]
schema = schemathesis.openapi.from_dict(document, config=_config())
if STREAMS:
    schema = schema.exclude(operation_id=STREAMS)


class World:
    """A running service with one of everything; half of the ids that are made up are exchanged for real ones.

    Attributes:
        twin_url: the same world, seeded and set up alike, on another database.
    """

    def __init__(self, bench: Any, twin_url: str = "") -> None:
        self.base_url, self.twin_url = bench.service.base_url, twin_url
        # Connections stay open; the checks that ask once more, without keys or with others, open their own.
        self.session = requests.Session()
        self.session.trust_env = False
        self.headers = {name: value for name, value in bench.http.headers.items() if name.startswith("x-")}
        self.product_id = bench.product()
        self.device_id = bench.device(self.product_id, user_id="user-0001")
        self.command_id = bench.send(self.device_id)
        trigger = {"reading": "t", "op": ">", "value": 60}
        action = {"type": "command", "command_payload": {"command": "cool"}}
        rule = {"product_id": self.product_id, "name": "Too hot", "trigger": trigger, "actions": [action]}
        self.ids = {
            "rule_id": bench.http.post("/rules", json=rule).json()["id"],
            "product_id": self.product_id,
            "device_id": self.device_id,
            "command_id": self.command_id,
            "user_id": "user-0001",
        }

    def transport(self) -> dict[str, Any]:
        """How the checks that send more requests reach the first service."""
        return {"base_url": self.base_url, "headers": dict(self.headers)}

    def call(self, case: Any) -> Any:
        """Send the case to both; the first one's answer, of which all is left to check."""
        answer = case.call(base_url=self.base_url, session=self.session, headers=self.headers)
        again = answer.request.copy()
        again.url = again.url.replace(self.base_url, self.twin_url, 1)
        twin = self.session.send(again, allow_redirects=False, timeout=120)
        assert twin.status_code == answer.status_code, f"{answer.text} is on PostgreSQL: {twin.text}"
        if twin.content != answer.content:
            case.validate_response(twin, checks=ANSWER_CHECKS, headers=self.headers)
        return answer

    def settle(self, case: Any) -> Any:
        """The case with real ids where it has text, and without what only an answer can give.

        What is wrong on purpose stays as it is: a real id, or another wait, could make it right.
        """
        positive = case.meta is not None and case.meta.generation.mode == GenerationMode.POSITIVE
        places = {
            ParameterLocation.PATH: case.path_parameters,
            ParameterLocation.QUERY: case.query,
            ParameterLocation.BODY: case.body,
        }
        for location, place in places.items():
            if isinstance(place, dict) and not (case.meta is not None and case.meta.is_negative_at(location)):
                for name, real in self.ids.items():
                    if isinstance(place.get(name), str) and place[name] and zlib.crc32(place[name].encode()) % 2:
                        place[name] = real
        if isinstance(case.query, dict) and _may_be_held(case.query.get("wait")):
            case.query["wait"] = 0  # a held poll is tested elsewhere
        if positive and isinstance(case.query, dict):
            case.query.pop("cursor", None)
            case.query = {name: value for name, value in case.query.items() if not name.startswith("data.")}
            if not {"agg", "interval"} <= case.query.keys():  # they go together
                case.query.pop("agg", None)
                case.query.pop("interval", None)
            if "from" in case.query and "to" in case.query:
                del case.query["to"]
        if positive and isinstance(case.body, (dict, list)):
            case.body = _plain(case.body)
        return case


def _may_be_held(wait: Any) -> bool:
    """Whether it is a wait that the service knows; any other is refused, and has to be."""
    return isinstance(wait, (int, float)) and not isinstance(wait, bool) and 0 <= wait <= WAIT_MAX_S


def _plain(value: Any) -> Any:
    """The value within the limits that hold for every body, and without names given twice in one list."""
    if isinstance(value, dict):
        plain = {name: _plain(member) for name, member in value.items()}
        for name, told_apart_by in (("commands", "name"), ("columns", "name"), ("widgets", "id")):
            if isinstance(plain.get(name), list) and all(isinstance(item, dict) for item in plain[name]):
                plain[name] = list({item.get(told_apart_by): item for item in plain[name]}.values())
        return plain
    if isinstance(value, list):
        return [_plain(member) for member in value]
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 1.0 is an integer to JSON Schema, and not to the service
    if isinstance(value, int) and not isinstance(value, bool):
        return min(max(value, INT_MIN), INT_MAX)
    return value


@pytest.fixture(scope="module")
def world(postgresql):
    keys = {"api_key": "mk_fuzz", "secret_key": Secret("msk_fuzz")}
    with running(**keys) as bench, stored_on(postgresql), running(**keys) as twin:
        made = World(bench, twin.service.base_url)
        assert World(twin).ids == made.ids, "the same seed makes the same ids"
        with made.session:
            yield made


def test_the_document_is_valid_openapi():
    schema.validate()


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_whatever_comes_the_answer_is_one_that_the_document_announces(case, world):
    answer = world.call(world.settle(case))
    case.validate_response(answer, headers=world.headers, transport_kwargs=world.transport())


@given(
    st.one_of(
        schema[path][method].as_strategy(generation_mode=GenerationMode.NEGATIVE)
        for path, method in (("/devices/{device_id}/commands", "GET"), ("/sensor-data", "GET"), ("/rules", "POST"))
    )
)
@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # the first one found tells enough
    suppress_health_check=list(HealthCheck),
)
def test_what_is_wrong_on_purpose_is_not_made_right(world, case):
    def wrong():
        parts = {"path": case.path_parameters, "query": case.query, "body": case.body}
        return {
            name: copy.deepcopy(part)
            for name, part in parts.items()
            if case.meta.is_negative_at(ParameterLocation(name))
        }

    before = wrong()
    assert before or case.meta.is_negative_at(ParameterLocation.HEADER)
    world.settle(case)
    after = wrong()
    for part in (before.get("query"), after.get("query")):
        if isinstance(part, dict) and _may_be_held(part.get("wait")):
            del part["wait"]  # one right wait for another
    assert after == before


def test_what_links_lead_to_is_there_until_it_is_deleted(world):
    """Create -> read -> delete along the document's links, in many orders."""

    class Walk(schema.as_state_machine()):
        def before_call(self, case):
            world.settle(case)

        def call(self, case, **_):
            return world.call(case)

        def get_call_kwargs(self, case):
            return world.transport()

    schemathesis_settings = settings(
        max_examples=max(EXAMPLES // 3, 5),
        stateful_step_count=8,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    Walk.run(settings=schemathesis_settings)
