"""The client sends exactly the golden requests and reads the golden answers; every golden body has its model."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from agent.wire.answers import CommandList
from agent.wire.encoding import parse_time
from agent.wire.models import CommandResult, CommandResultPayload, NewRuntimeRecord, PostSensorData, Sent
from agent.wire.secret import KeyPair, Secret
from gateway.client import RegisterDevice, SendCommand
from simulator.wire.client import ServiceClient
from simulator.wire.models import (
    NewDashboard,
    NewProduct,
    NewRule,
    NewSchema,
    NewTable,
    ProductChange,
    RuleChange,
    RuntimeRecordChange,
    ScanQr,
    SignIn,
)
from simulator.wire.qr import LabelText, encode_label, parse_label
from tests.api.golden_bodies import EXCHANGES, GOLDEN, RECORD, ROWS, RULE, C, D, P, golden

BASE = "http://service.test/base"
T0 = 1767225600.0
TX = T0 + 3600


REQUESTS: dict[str, type[Sent]] = {
    "product_create_request": NewProduct,
    "product_change_request": ProductChange,
    "dashboard_put_request": NewDashboard,
    "command_send_request": SendCommand,
    "command_send_with_ttl_request": SendCommand,
    "command_result_request": CommandResult,
    "command_result_failed_request": CommandResult,
    "command_result_progress_request": CommandResult,
    "command_result_runtime_request": NewRuntimeRecord,
    "sensor_data_post": PostSensorData,
    "sensor_data_post_without_time": PostSensorData,
    "schema_create_request": NewSchema,
    "table_create_request": NewTable,
    "runtime_data_create_request": NewRuntimeRecord,
    "runtime_data_replace_request": RuntimeRecordChange,
    "scan_request": ScanQr,
    "register_request": RegisterDevice,
    "register_minimal_request": RegisterDevice,
    "rule_create_request": NewRule,
    "rule_change_request": RuleChange,
    "sign_in_request": SignIn,
}


def request(name: str) -> Any:
    return REQUESTS[name].model_validate(golden(name))


CALLS: dict[str, Callable[[ServiceClient], Any]] = {
    "list products": lambda c: list(c.products()),
    "create a product": lambda c: c.create_product(request("product_create_request")),
    "change a product": lambda c: c.change_product(P, ProductChange(description="Opens two doors.", category=None)),
    "delete a product": lambda c: c.delete_product(P),
    "list the command vocabulary": lambda c: list(c.product_commands(P)),
    "read a dashboard": lambda c: c.dashboard(P),
    "replace a dashboard": lambda c: c.put_dashboard(P, request("dashboard_put_request")),
    "list devices": lambda c: list(c.devices()),
    "list devices of a product": lambda c: list(
        c.devices(product_id=P, status="online", user_id="user-0001", limit=10)
    ),
    "list commands of a device": lambda c: c.device_commands(D),
    "poll open commands": lambda c: c.device_commands(D, status="open", wait_s=25, etag='"v1"'),
    "send a command": lambda c: c.send_command(request("command_send_request")),
    "send a command with a time to live": lambda c: c.send_command(
        request("command_send_with_ttl_request"), idempotency_key="key-1"
    ),
    "report a result": lambda c: c.report_result(D, C, request("command_result_request")),
    "report a failure": lambda c: c.report_result(D, C, request("command_result_failed_request")),
    "report progress": lambda c: c.report_result(D, C, request("command_result_progress_request")),
    "report a result to a plain server": lambda c: c.create_runtime_record(
        NewRuntimeRecord(
            product_id=P,
            device_id=D,
            table_name="command_results",
            data_payload=CommandResultPayload(
                command_id=C,
                status="succeeded",
                result={"opened": True},
                started_at="2026-01-01T00:00:01.250Z",
                finished_at="2026-01-01T00:00:02.500Z",
            ).to_wire(),
        )
    ),
    "post sensor data": lambda c: c.post_sensor_data(request("sensor_data_post"), idempotency_key="key-2"),
    "post sensor data without a time": lambda c: c.post_sensor_data(request("sensor_data_post_without_time")),
    "post a batch of sensor data": lambda c: c.post_sensor_data_batch(
        [PostSensorData.model_validate(item) for item in golden("sensor_data_batch_post")]
    ),
    "read sensor data": lambda c: list(
        c.sensor_data(D, from_=T0, to=TX, keys=["temperature_c", "load"], order="desc", limit=5)
    ),
    "read aggregated sensor data": lambda c: list(c.sensor_data_buckets(D, from_=T0, to=TX, agg="avg", interval_s=60)),
    "list schemas": lambda c: list(c.schemas(P)),
    "create a schema": lambda c: c.create_schema(P, request("schema_create_request")),
    "create a table": lambda c: c.create_table(request("table_create_request")),
    "create a runtime record": lambda c: c.create_runtime_record(request("runtime_data_create_request")),
    "list runtime data": lambda c: list(
        c.runtime_data(**{"product_id": P, "device_id": D, "table_name": "visits", "data.status": "succeeded"})
    ),
    "replace a runtime record": lambda c: c.replace_runtime_record(RECORD, {"command_id": C, "status": "failed"}),
    "delete a runtime record": lambda c: c.delete_runtime_record(RECORD),
    "scan a QR": lambda c: c.scan_qr(golden("scan_request")["qr_data"]),
    "register a device": lambda c: c.register_device(request("register_request")),
    "register a device with the required fields only": lambda c: c.register_device(request("register_minimal_request")),
    "list devices of a user": lambda c: list(c.user_devices("user-0001")),
    "remove a device": lambda c: c.remove_device(D),
    "list rules": lambda c: list(c.rules()),
    "create a rule": lambda c: c.create_rule(request("rule_create_request")),
    "read a rule": lambda c: c.rule(RULE),
    "change a rule": lambda c: c.change_rule(RULE, RuleChange(enabled=False)),
    "delete a rule": lambda c: c.delete_rule(RULE),
    "read analytics": lambda c: c.device_analytics(from_=T0, to=TX, interval_s=3600),
    "sign in": lambda c: c.sign_in("person@example.com", Secret("made-up-password")),
    "discover extensions": lambda c: c.discover().extensions,
}


WITHOUT_ANSWER = {name for name in CALLS if name.startswith(("report ", "post sensor data", "create a runtime record"))}
"""What a device sends: a 2xx says all, whatever its body."""


def client_for(answer: httpx.Response, asked: list[httpx.Request] | None = None) -> ServiceClient:
    def handle(req: httpx.Request) -> httpx.Response:
        if asked is not None:
            asked.append(req)
        return answer

    return ServiceClient(BASE, KeyPair("mk_golden", Secret("msk_golden")), transport=httpx.MockTransport(handle))


def answer_to(row: dict[str, Any]) -> httpx.Response:
    if "response" in row:
        return httpx.Response(row["status"], json=golden(row["response"]))
    return httpx.Response(row["status"])


def assert_same(received: Any, expected: Any, where: str = "answer") -> None:
    """What was received says the same as the golden body; null is absent, a time is its number."""
    if isinstance(received, Secret):
        assert received.reveal() == expected, where
    elif isinstance(received, BaseModel):
        members = {name.rstrip("_"): getattr(received, name) for name in type(received).model_fields}
        members |= received.model_extra or {}
        for name, value in expected.items():
            assert_same(members[name], value, f"{where}.{name}")
    elif expected is None:
        assert not received, where
    elif isinstance(received, (tuple, list)):
        assert len(received) == len(expected), where
        for index, (ours, theirs) in enumerate(zip(received, expected, strict=True)):
            assert_same(ours, theirs, f"{where}.{index}")
    elif isinstance(received, float) and isinstance(expected, str):
        assert received == pytest.approx(parse_time(expected), abs=1e-6), where
    else:
        assert received == expected, where


def test_every_golden_body_is_used():
    used = {row[part] for row in ROWS for part in ("request", "response") if part in row}
    used |= {"exchanges", "exchanges_records", "label", "validation_error", "dashboard_empty", "device_list_empty"}
    used |= {"command_list_first_page", "command_list_last_page", "token_answer"}
    left = {path.stem for path in GOLDEN.glob("*.json")} - used
    assert {name for name in left if not name.startswith("error_")} == set()


@pytest.mark.parametrize("name", EXCHANGES)
def test_the_client_sends_the_golden_request_and_reads_the_golden_answer(name):
    row = EXCHANGES[name]
    asked: list[httpx.Request] = []
    with client_for(answer_to(row), asked) as client:
        received = CALLS[name](client)
    [sent] = asked
    assert (sent.method, sent.url.path) == (row["method"], f"/base{row['path']}")
    assert dict(sent.url.params) == row.get("query", {})
    assert (sent.headers["x-api-key"], sent.headers["x-secret-key"]) == ("mk_golden", "msk_golden")
    for header in ("if-none-match", "idempotency-key"):
        assert sent.headers.get(header) == row.get("headers", {}).get(header)
    if "request" in row:
        assert sent.headers["content-type"] == "application/json"
        assert json.loads(sent.content) == golden(row["request"])
    else:
        assert sent.content == b""
    expected = golden(row["response"]) if "response" in row else None
    if expected is None or name in WITHOUT_ANSWER:
        assert received is None
    elif isinstance(received, frozenset):
        assert received == frozenset(expected["extensions"])
    elif isinstance(received, CommandList):
        assert_same(received.records, expected["data"])
        assert received.malformed == []
    else:
        assert_same(received, expected["data"] if isinstance(received, list) else expected)


def test_the_golden_label_is_read_and_written_to_the_letter():
    text = json.dumps(golden("label"), separators=(",", ":"))
    label = parse_label(text)
    assert label == LabelText(P, "SN-000001", "bWFkZS11cA")
    assert encode_label(label) == text


def test_a_list_in_two_golden_pages_is_read_to_its_end():
    pages = {"": "command_list_first_page", "cursor-2": "command_list_last_page"}
    asked: list[httpx.Request] = []

    def handle(req: httpx.Request) -> httpx.Response:
        asked.append(req)
        return httpx.Response(200, json=golden(pages[req.url.params.get("cursor", "")]), headers={"ETag": '"v2"'})

    with ServiceClient(BASE, None, transport=httpx.MockTransport(handle)) as client:
        listed = client.device_commands(D, status="open", wait_s=5, etag='"v1"')
    assert [record.status for record in listed.records] == ["succeeded", "delivered"]
    assert listed.etag is None
    assert [(r.url.params.get("status"), r.url.params.get("wait"), r.headers.get("if-none-match")) for r in asked] == [
        ("open", "5", '"v1"'),
        ("open", None, None),
    ]
