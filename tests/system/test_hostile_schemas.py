"""Payload schemas and patterns from outside: whatever one costs, the service answers others, and ends when told."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

KEYS = {"x-api-key": "mk_test", "x-secret-key": "msk_test"}
PROGRAM = [sys.executable, "-m", "simulator.cli", "service", "--port", "0", "--rate-limit", "0", "--validate-commands"]

STRING = {"type": "string"}
DOUBLING = {
    "$ref": "#/$defs/d0",
    "$defs": {
        **{f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(24)},
        "d24": {"type": "object"},
    },
}
COSTLY = {
    "a pattern": {"properties": {"x": {"pattern": "^(a+)+$"}}},
    "a pattern of names": {"patternProperties": {"^(a|a)*$": STRING}, "additionalProperties": False},
    "references that double": DOUBLING,
    "items that are compared": {"properties": {"many": {"uniqueItems": True}}},
}
PAYLOAD = {"x": "a" * 40 + "!", "a" * 40 + "!": 1, "many": [{"n": n} for n in range(4000)]}
LOOPS = {
    "itself": {"$ref": "#"},
    "in turns": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    "dynamic": {"$dynamicAnchor": "node", "$dynamicRef": "#node"},
}


class Service:
    """The program ``fleet-simulator service``, and a client with its keys."""

    def __init__(self, process):
        self.process = process
        self.base_url = next(word for line in process.stdout for word in line.split() if word.startswith("http://"))
        self.http = httpx.Client(base_url=self.base_url, headers=KEYS, trust_env=False, timeout=30)

    def children(self):
        return Path(f"/proc/{self.process.pid}/task").glob("*/children")

    def has_children(self):
        return any(one.read_text().strip() for one in self.children())


@pytest.fixture
def service():
    environment = {**os.environ, "FLEET_SIMULATOR_SERVICE_API_KEY": "mk_test"}
    environment["FLEET_SIMULATOR_SERVICE_SECRET_KEY"] = "msk_test"
    process = subprocess.Popen(PROGRAM, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    started = None
    try:
        started = Service(process)
        yield started
    finally:
        if started is not None:
            started.http.close()
        process.kill()
        process.communicate()


def send(service, schema, payload):
    product_id = service.http.post(
        "/products", json={"name": "p", "commands": [{"name": "c", "payload_schema": schema}]}
    ).json()["product_id"]
    body = {"user_id": "u", "product_id": product_id, "device_identifier": "SN-1"}
    device_id = service.http.post("/onboarding/device", json=body).json()["device_id"]
    return service.http.post("/commands/send", json={"device_id": device_id, "command_payload": payload})


@pytest.mark.parametrize("schema", COSTLY.values(), ids=COSTLY)
def test_a_schema_that_costs_too_much_is_refused_and_others_are_answered_meanwhile(service, schema):
    answers = []
    sender = threading.Thread(target=lambda: answers.append(send(service, schema, {"command": "c", **PAYLOAD})))
    sender.start()
    while sender.is_alive():
        assert service.http.get("/products").status_code == 200
        sender.join(0.05)
    assert answers[0].status_code == 400, answers[0].text
    assert "payload_schema" in answers[0].json()["message"] or "uniq" in answers[0].json()["message"]
    good = send(service, {"required": ["x"]}, {"command": "c", "x": 1})
    assert good.status_code == 202, good.text


@pytest.mark.parametrize("schema", LOOPS.values(), ids=LOOPS)
def test_a_schema_that_refers_to_itself_without_end_is_refused(service, schema):
    answer = send(service, schema, {"command": "c"})
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
    assert "without end" in answer.json()["message"]


@pytest.mark.parametrize("pattern", ["(" * 5_000 + ")" * 5_000, "a{99999999999999999999}", "(?P<x>a)(?P<x>a)"])
def test_a_pattern_that_no_regular_expression_can_be_made_of_is_refused_with_the_product(service, pattern):
    command = {"name": "c", "payload_schema": {"properties": {"x": {"pattern": pattern}}}}
    answer = service.http.post("/products", json={"name": "p", "commands": [command]})
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")


def test_a_rule_that_would_send_such_a_payload_is_refused(service):
    product = {"name": "p", "commands": [{"name": "c", "payload_schema": COSTLY["a pattern"]}]}
    product_id = service.http.post("/products", json=product).json()["product_id"]
    action = {"type": "command", "command_payload": {"command": "c", "x": PAYLOAD["x"]}}
    rule = {"product_id": product_id, "name": "r", "trigger": {"reading": "t", "op": ">", "value": 1}}
    answer = service.http.post("/rules", json={**rule, "actions": [action]}, timeout=30)
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
    assert service.http.get("/rules").json()["data"] == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc for the process that checks")
def test_sigterm_ends_the_service_while_a_schema_is_checked(service):
    def send_costly():
        with contextlib.suppress(httpx.HTTPError):
            send(service, COSTLY["a pattern"], {"command": "c", **PAYLOAD})

    sender = threading.Thread(target=send_costly)
    sender.start()
    while not service.has_children():
        sender.join(0.01)
        assert sender.is_alive()
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(30) == 0
    sender.join()
