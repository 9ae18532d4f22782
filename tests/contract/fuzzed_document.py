"""The service's OpenAPI document in the hands of schemathesis.

A module of its own: whoever looks for tests need not import schemathesis, and only who runs them makes the cases.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from agent.wire.limits import INT_MAX, INT_MIN, LONG_POLL_MAX_S
from simulator.service.app import ENDPOINTS
from simulator.service.document import make_document

EXAMPLES = int(os.environ.get("OPENAPI_FUZZ_EXAMPLES", "15"))
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


def make_schema(without: Sequence[str]) -> Any:
    """The document as schemathesis sees it.

    Args:
        without: operations that are left out.
    """
    schema = schemathesis.openapi.from_dict(make_document(ENDPOINTS, "the service under test"), config=_config())
    return schema.exclude(operation_id=list(without)) if without else schema


def operations(schema: Any) -> list[Any]:
    """All operations that are not left out; one that the document describes wrongly raises."""
    return [result.ok() for result in schema.get_all_operations()]


def operation_id_of(operation: Any) -> str:
    """Its name in the document."""
    return str(operation.definition.raw["operationId"])


def try_operation(schema: Any, operation_id: str, world: World) -> None:
    """Send every case of one operation and check the answer, as ``schema.parametrize()`` would in a test of its own.

    That one makes most cases of all operations before the first test runs, in each process that looks for tests.
    """
    settled = settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )

    @settled
    def whatever_comes(case: Any) -> None:
        answer = world.call(world.settle(case))
        world.check(case, answer)

    load_all_checks()
    [operation] = [made for made in operations(schema) if operation_id_of(made) == operation_id]
    build_operation_test(
        config=schema.config,
        operation=operation,
        test_func=whatever_comes,
        given_kwargs={},
        feedback=FeedbackSources(),
    )()


class World:
    """A running service with one of everything; half of the ids that are made up are exchanged for real ones."""

    def __init__(self, bench: Any) -> None:
        self.base_url = bench.service.base_url
        # Connections stay open; the checks that ask once more, without keys or with others, open their own.
        self.session = requests.Session()
        self.session.trust_env = False
        self.headers = {name: value for name, value in bench.http.headers.items() if name.startswith("x-")}
        self._refuses_without_keys: set[tuple[str, int, Any]] = set()
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
        """How the checks that send more requests reach the service."""
        return {"base_url": self.base_url, "headers": dict(self.headers)}

    def call(self, case: Any) -> Any:
        """Send the case; its answer."""
        return case.call(base_url=self.base_url, session=self.session, headers=self.headers)

    def check(self, case: Any, answer: Any) -> None:
        """All checks of an answer.

        Whether the same request without keys is refused, is asked once for each operation, status and kind of case:
        schemathesis's own runner, which asks once for each operation, calls it a property of the operation. It takes
        three more requests for each success.
        """
        mode = None if case.meta is None else case.meta.generation.mode
        what = (case.operation.label, answer.status_code, mode)
        asked = [ignored_auth] if what in self._refuses_without_keys else []
        case.validate_response(answer, excluded_checks=asked, headers=self.headers, transport_kwargs=self.transport())
        self._refuses_without_keys.add(what)

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
        if isinstance(case.query, dict) and may_be_held(case.query.get("wait")):
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


def may_be_held(wait: Any) -> bool:
    """Whether it is a wait that the service knows; any other is refused, and has to be."""
    return isinstance(wait, (int, float)) and not isinstance(wait, bool) and 0 <= wait <= LONG_POLL_MAX_S


def wrong_cases(schema: Any) -> st.SearchStrategy[Any]:
    """Cases that are wrong somewhere, of operations with ids in their path, query and body."""
    operations = (("/devices/{device_id}/commands", "GET"), ("/sensor-data", "GET"), ("/rules", "POST"))
    return st.one_of(
        schema[path][method].as_strategy(generation_mode=GenerationMode.NEGATIVE) for path, method in operations
    )


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
