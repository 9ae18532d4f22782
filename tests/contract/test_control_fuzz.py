"""Schemathesis over the control paths of faults and requests: no 5xx, no undocumented answer, no accepted nonsense."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulator.console.runs.runs import RunSettings
from simulator.service.routes import control_replay, control_requests
from simulator.service.routes.control_faults import ENDPOINTS
from tests.service_running import Bench, running

pytestmark = pytest.mark.long

OPERATIONS = [endpoint.name for endpoint in ENDPOINTS]
OF_REQUESTS = [endpoint.name for endpoint in (*control_requests.ENDPOINTS, *control_replay.ENDPOINTS)]


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with running() as bench:
        yield bench


@pytest.mark.parametrize("operation_id", OPERATIONS)
def test_whatever_comes_the_answer_is_one_that_the_document_announces(bench: Bench, operation_id: str) -> None:
    from tests.contract import fuzzed_control

    document = bench.http.get("/_emulator/openapi.json").json()
    schema = fuzzed_control.make_schema(document, "/_emulator/faults")
    schema.validate()
    statuses = fuzzed_control.try_operation(schema, operation_id, bench.service.base_url)
    assert statuses[201 if operation_id == "add_fault" else 200] or operation_id not in {"add_fault", "list_faults"}
    assert bench.http.get("/_emulator/faults").json() == {"data": []}


@pytest.mark.parametrize("operation_id", OF_REQUESTS)
def test_whatever_is_asked_of_the_log_of_requests_the_answer_is_announced(bench: Bench, operation_id: str) -> None:
    from tests.contract import fuzzed_control

    bench.http.get("/products")
    document = bench.http.get("/_emulator/openapi.json").json()
    schema = fuzzed_control.make_schema(document, "/_emulator/requests")
    schema.validate()
    statuses = fuzzed_control.try_operation(schema, operation_id, bench.service.base_url)
    assert set(statuses) & {200, 204, 404}


# What the console adds, but for streams without end, and what takes a picture or starts a program.
OF_CONSOLE = [
    ("/_emulator/device-table", "show_device_table"),
    ("/_emulator/console-links", "add_console_link"),
    ("/_emulator/runs", "list_runs"),
    ("/_emulator/runs/{id}", "show_run"),
    ("/_emulator/runs/{id}/stop", "stop_run"),
    ("/_emulator/runs/{id}/report", "show_report"),
    ("/_emulator/runs/{id}/{name}", "show_run_file"),
    ("/_emulator/scenarios/{name}", "show_scenario"),
    ("/_emulator/scenarios", "list_scenarios"),
    ("/_emulator/qr-codes", "draw_qr_code"),
]


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    from tests.console_pages import running_console

    folder = tmp_path_factory.mktemp("console")
    with running_console(RunSettings(folder / "runs", folder)) as bench:
        yield bench


@pytest.mark.parametrize(("path", "operation_id"), OF_CONSOLE)
def test_whatever_is_asked_of_the_console_the_answer_is_announced(console: Bench, path: str, operation_id: str) -> None:
    from tests.contract import fuzzed_control

    document = console.http.get("/_emulator/openapi.json").json()
    schema = fuzzed_control.make_schema({**document, "paths": {path: document["paths"][path]}}, path)
    schema.validate()
    assert fuzzed_control.try_operation(schema, operation_id, console.service.base_url)
