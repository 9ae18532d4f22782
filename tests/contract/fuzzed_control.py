"""The document of the control paths in the hands of schemathesis; a module of its own, as ``fuzzed_document``."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import load_all_checks
from schemathesis.config import SchemathesisConfig
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test

EXAMPLES = int(os.environ.get("OPENAPI_FUZZ_EXAMPLES", "15"))
# What no schema can say: whether what a match names is there, and whether two members fit together.
CHECKS = {
    "positive_data_acceptance": {"expected-statuses": ["2xx", "400", "404", "409"]},
    "negative_data_rejection": {"expected-statuses": ["400", "404", "405", "409", "415"]},
}


def make_schema(document: dict[str, Any], begin: str) -> Any:
    """The operations of the document whose paths begin so."""
    generation = {"mode": "all", "deterministic": True, "allow-x00": False, "codec": "utf-8"}
    paths = {path: found for path, found in document["paths"].items() if path.startswith(begin)}
    config = SchemathesisConfig.from_dict({"generation": generation, "checks": CHECKS})
    return schemathesis.openapi.from_dict({**document, "paths": paths}, config=config)


def try_operation(schema: Any, operation_id: str, base_url: str) -> Counter[int]:
    """Send every case of one operation and check each answer; how often each status came. What is made is deleted."""
    statuses: Counter[int] = Counter()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def whatever_comes(case: Any) -> None:
        answer = case.call(base_url=base_url, session=session)
        statuses[answer.status_code] += 1
        if answer.status_code == 201 and "location" in answer.headers:
            session.delete(base_url + answer.headers["location"][0])
        case.validate_response(answer, transport_kwargs={"base_url": base_url})

    load_all_checks()
    every = [found.ok() for found in schema.get_all_operations()]
    [operation] = [one for one in every if one.definition.raw["operationId"] == operation_id]
    with requests.Session() as session:
        session.trust_env = False
        build_operation_test(
            config=schema.config,
            operation=operation,
            test_func=whatever_comes,
            given_kwargs={},
            feedback=FeedbackSources(),
        )()
    return statuses
