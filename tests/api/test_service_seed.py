"""Seeds: what is missing is made, what differs is changed, problems name their line."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.wire.secret import Secret
from simulator.service.config import ServiceConfig
from simulator.service.control import seed
from simulator.service.control.seed import SeedClient, SeedDevice, SeedProduct, SeedRule, SeedUser
from simulator.service.server import RunningService
from tests.support.service_running import Bench, running

EXAMPLE = Path(__file__).parents[2] / "configs" / "seed.yaml"
SEED = """
products:
  - name: Door controller
    category: doors
    commands:
      - name: unlock
        payload_schema: {type: object}
devices:
  - product: Door controller
    device_identifier: SN-000001
    user_id: user-0001
users:
  - email: ada@example.com
    password: correct horse
    user_id: user-0001
"""


@pytest.fixture
def bench():
    with running() as bench:
        yield bench


def sow(bench: Bench, text: str = SEED, **query: str):
    headers = {"content-type": "application/yaml"}
    return bench.http.post("/_emulator/seed", content=text, headers=headers, params=query)


def test_a_seed_makes_what_is_missing_and_the_same_seed_again_changes_nothing(bench):
    assert sow(bench).json() == {"created": 3, "changed": 0, "unchanged": 0}
    before = [bench.http.get(path).json() for path in ("/products", "/devices")]
    bench.clock.advance(60)
    assert sow(bench).json() == {"created": 0, "changed": 0, "unchanged": 3}
    assert [bench.http.get(path).json() for path in ("/products", "/devices")] == before
    answer = bench.http.post("/auth/signin", json={"email": "ada@example.com", "password": "correct horse"})
    assert answer.status_code == 200
    assert answer.json()["user"]["user_id"] == "user-0001"


def test_a_changed_seed_changes_what_differs(bench):
    sow(bench)
    product_id = bench.http.get("/products").json()["data"][0]["product_id"]
    answer = sow(bench, SEED.replace("category: doors", "category: gates").replace("correct horse", "battery"))
    assert answer.json() == {"created": 0, "changed": 2, "unchanged": 1}
    (product,) = bench.http.get("/products").json()["data"]
    assert (product["product_id"], product["category"]) == (product_id, "gates")


def test_a_seed_can_be_json_and_go_to_one_account(bench):
    other = bench.add_account("other")
    answer = bench.http.post(
        "/_emulator/seed", json={"products": [{"name": "theirs"}]}, params={"api_key": other.api_key}
    )
    assert answer.json()["created"] == 1
    assert bench.http.get("/products").json()["data"] == []
    assert sow(bench, api_key="mk_nobody").json()["error"] == "account_not_found"


def test_all_faults_of_a_seed_come_at_once_with_their_lines_and_nothing_is_stored(bench):
    text = """products:
  - name: fine
  - category: nameless
  - name: 7
devices:
  - product: fine
    device_identifier: x
gadgets: []
"""
    answer = sow(bench, text)
    assert answer.status_code == 400
    assert [row["field"] for row in answer.json()["details"]] == [
        "line 3 products.1.name",
        "line 4 products.2.name",
        "line 6 devices.0.user_id",
        "line 8 gadgets",
    ]
    assert bench.http.get("/products").json()["data"] == []


RULES = """products:
  - name: Door controller
    rules:
      - name: Too hot
        trigger: {reading: t, op: ">", value: 60}
        actions:
          - type: command
            command_payload: {command: open_door, note: null}
      - name: Noted
        enabled: false
        trigger: {reading: t, op: ">", value: 80, for_seconds: 30}
        actions: [{type: record, table_name: command_results, data_payload: {command_id: c, status: failed}}]
devices:
  - {product: Door controller, device_identifier: SN-000001, user_id: user-0001}
"""


def test_a_seeds_rules_really_fire_and_the_same_seed_again_changes_nothing(bench):
    assert sow(bench, RULES).json() == {"created": 4, "changed": 0, "unchanged": 0}
    before = bench.http.get("/rules").json()["data"]
    assert [(rule["name"], rule["enabled"]) for rule in before] == [("Too hot", True), ("Noted", False)]
    assert "rules" not in bench.http.get("/products").json()["data"][0]
    device_id = bench.http.get("/devices").json()["data"][0]["device_id"]
    bench.post_reading(device_id, sensor_data={"t": 61})
    (command,) = bench.poll(device_id).json()["data"]
    assert command["command_payload"] == {"command": "open_door", "note": None}
    fired = bench.http.get("/rules").json()["data"]
    bench.clock.advance(60)
    assert sow(bench, RULES).json() == {"created": 0, "changed": 0, "unchanged": 4}
    assert bench.http.get("/rules").json()["data"] == fired


def test_a_changed_rule_of_a_seed_is_changed_and_fires_by_its_new_trigger(bench):
    sow(bench, RULES)
    (rule_id, _) = [rule["id"] for rule in bench.http.get("/rules").json()["data"]]
    assert sow(bench, RULES.replace("value: 60", "value: 20")).json() == {"created": 0, "changed": 1, "unchanged": 3}
    assert bench.http.get(f"/rules/{rule_id}").json()["trigger"]["value"] == 20
    device_id = bench.http.get("/devices").json()["data"][0]["device_id"]
    bench.post_reading(device_id, sensor_data={"t": 21})
    assert len(bench.poll(device_id).json()["data"]) == 1


def test_faults_of_a_seeds_rules_come_with_the_lines_of_the_rules(bench):
    twice = """products:
  - name: Door controller
    rules:
      - {name: Twice, trigger: {reading: t, op: ">", value: 60}, actions: [{type: command, command_payload: {}}]}
      - {name: Twice, trigger: {reading: t, op: ">", value: 60}, actions: [{type: command, command_payload: {}}]}
"""
    bad = """products:
  - name: Other
    rules:
      - name: Bad
        trigger: {reading: t, op: "=>", value: 60}
        actions: [{type: command, command_payload: {}}]
"""
    (row,) = sow(bench, twice).json()["details"]
    assert row == {"field": "line 5 products.0.rules.1", "issue": "the product has a rule 'Twice' already"}
    (row,) = sow(bench, bad).json()["details"]
    assert row["field"] == "line 5 products.0.rules.0.trigger.op"
    large = RULES.replace("note: null", f"note: {'x' * 65_536}")
    for wrong, line, issue in (
        (RULES.replace("command_results", "nowhere"), 9, "There is no table 'nowhere'"),
        (RULES.replace("command_id: c,", "command_id: 7,"), 9, "actions.0.data_payload.command_id"),
        (large, 4, "actions.0.command_payload is larger than the limit"),
    ):
        (row,) = sow(bench, wrong).json()["details"]
        assert row["field"].startswith(f"line {line} products.0.rules.")
        assert row["issue"].startswith(issue)
    assert bench.http.get("/products").json()["data"] == []
    assert bench.http.get("/rules").json()["data"] == []


def test_what_does_not_fit_the_storage_is_told_at_once_too_and_rolls_back(bench):
    sow(bench)
    text = """products:
  - name: new
  - name: bad
    commands: [{name: x, payload_schema: {type: nonsense}}]
devices:
  - {product: Door controller, device_identifier: SN-000001, user_id: somebody-else}
  - {product: nowhere, device_identifier: SN-2, user_id: u}
"""
    details = sow(bench, text).json()["details"]
    assert [row["field"] for row in details] == ["line 3 products.1", "line 6 devices.0", "line 7 devices.1"]
    assert len(bench.http.get("/products").json()["data"]) == 1


@pytest.mark.parametrize(
    "text",
    [
        "- a list",
        "products: {}",
        "products: [{name: .nan}]",
        'products: [{name: "a\\0b"}]',
        "products: [{name: a, name: b}]",
        "products: [&a {name: x}, *a]",
        "products: [{name: x, metadata: {n: 99999999999999999999999}}]",
        "products: [{name: x, metadata: " + "[" * 5000 + "]" * 5000 + "}]",
        "products: [",
        "\x01",
        "products: [{name: !!python/object:os.system x}]",
        "products: []\nproducts: []",
    ],
)
def test_a_seed_that_is_no_seed_is_400(bench, text):
    answer = sow(bench, text)
    assert answer.status_code == 400, answer.text
    assert answer.json()["details"][0]["field"].startswith("line ")


def test_a_seed_file_is_there_from_the_start_and_its_faults_end_the_start(tmp_path):
    file = tmp_path / "seed.yaml"
    file.write_text(SEED)
    for created in (1, 1):
        with running(data_dir=tmp_path / "data", seed_file=file, api_key="mk_a", secret_key=Secret("msk_a")) as bench:
            assert len(bench.http.get("/devices").json()["data"]) == created
    file.write_text("products:\n  - name: ''\n")
    with pytest.raises(ConfigurationError, match="seed.yaml line 2: products.0.name"):
        RunningService(ServiceConfig(seed_file=file))


def test_the_example_is_a_seed_and_twice_changes_nothing():
    with running(seed_file=EXAMPLE) as bench:
        again = sow(bench, EXAMPLE.read_text()).json()
    assert (again["created"], again["changed"]) == (0, 0)
    assert again["unchanged"] >= 4


def test_a_seed_in_json_may_write_what_it_names_in_escapes(bench):
    names = ["T\u00fcr \U0001f6aa", "on", "2026-01-01"]
    products = [{"name": name, "metadata": {name: 1}} for name in names]
    assert sow(bench, json.dumps({"products": products})).status_code == 200
    found = bench.http.get("/products").json()["data"]
    assert [{"name": each["name"], "metadata": each["metadata"]} for each in found] == products


def test_half_a_surrogate_pair_is_refused_wherever_it_is_written(bench):
    for text in (
        'products: [{name: "Door", metadata: {"\\ud83d": 1}}]',
        '"\\ud83d": []',
        'products: [{name: "\\ud83d"}]',
        'devices: [{product: "\\ud83d", device_identifier: x, user_id: u}]',
    ):
        answer = sow(bench, text)
        assert answer.status_code == 400, (text, answer.text)
        assert "a character that JSON text cannot" in answer.json()["message"], text


@pytest.mark.parametrize("kind", ["application/json", "application/yaml"])
def test_a_seed_is_an_object_or_nothing_in_json_as_in_yaml(bench, kind):
    def send(text: str) -> int:
        return bench.http.post("/_emulator/seed", content=text, headers={"content-type": kind}).status_code

    assert [send(text) for text in ("null", "{}", "[]", "7")] == [200, 200, 400, 400]


def test_faults_of_the_text_and_of_what_it_says_come_together(bench):
    text = """products:
  - {name: "\\ud83d alone"}
  - {name: twice, name: twice}
  - name: fine
    metadata: {n: .nan}
  - name: ''
    commands:
      - payload_schema: {}
"""
    assert [row["field"] for row in sow(bench, text).json()["details"]] == [
        "line 2 products.0.name",
        "line 3 products.1.name",
        "line 5 products.2.metadata.n",
        "line 6 products.3.name",
        "line 8 products.3.commands.0.name",
    ]


@pytest.mark.parametrize("nothing", ["", "# products: later", "---", "~"])
def test_a_seed_without_anything_changes_nothing(bench, nothing):
    assert sow(bench, nothing).json() == {"created": 0, "changed": 0, "unchanged": 0}


ACTION = {"type": "command", "command_payload": {"command": "cool"}}
TRIGGER = {"reading": "t", "op": ">", "value": 60}
# What an item is known by, the group that it stands in, another value for each other member, and those that cannot be
# changed and say so.
ITEMS = {
    SeedProduct: (
        {"name": "Door"},
        {
            "category": "doors",
            "model": "D-2",
            "description": "opens",
            "commands": [{"name": "unlock"}],
            "image_url": "https://example.com/a.png",
            "metadata": {"batch": 7},
            "status": "active",
            "label_key": "hmac-sha256:" + "A" * 22,
            "rules": None,  # each counts by itself
            "colour": "red",  # members that nobody knows are kept
        },
        (),
    ),
    SeedRule: (
        {"name": "Hot", "trigger": TRIGGER, "actions": [ACTION]},
        {"enabled": False, "trigger": {**TRIGGER, "for_seconds": 5}, "actions": [ACTION, ACTION]},
        (),
    ),
    SeedDevice: (
        {"product": "Door", "device_identifier": "SN-1", "user_id": "u"},
        {"device_name": "Front", "qr_info": {"batch": 7}, "user_id": "v"},
        ("user_id",),
    ),
    SeedUser: (
        {"email": "ada@example.com", "password": "correct horse", "user_id": "u"},
        {"password": "battery staple", "user_id": "v", "has_account": False},
        ("user_id", "has_account"),
    ),
    SeedClient: (
        {"client_id": "c", "client_secret": "s" * 32, "name": "C", "redirect_uris": ["https://c.example.com/cb"]},
        {
            "client_secret": "t" * 32,
            "name": "D",
            "redirect_uris": ["https://d.example.com/cb"],
            "scopes": ["manufacturer:data"],
            "public": True,
            "grant_types": ["authorization_code"],
            "description": "shows doors",
        },
        (),
    ),
}


def seed_of(model, item):
    """A seed with this item, and the product that a device or a rule needs."""
    product = {"name": "Door"}
    if model is SeedProduct:
        return {"products": [item]}
    if model is SeedRule:
        return {"products": [{**product, "rules": [item]}]}
    group = {SeedDevice: "devices", SeedUser: "users", SeedClient: "clients"}[model]
    return {"products": [product], group: [item]}


@pytest.mark.parametrize("model", ITEMS)
def test_every_member_of_every_kind_that_differs_is_changed_or_refused_and_never_passed_over(bench, model):
    known, others, fixed = ITEMS[model]
    by_others = {"name"} if model in {SeedProduct, SeedRule} else {"product", "device_identifier", "email", "client_id"}
    assert set(model.model_fields) - by_others <= set(others)  # a new member belongs here
    item = dict(known)
    assert sow(bench, json.dumps(seed_of(model, item))).json()["changed"] == 0
    for name, value in others.items():
        if value is None:
            continue
        differing = {**item, name: value}
        if name == "public":
            del differing["client_secret"]
        answer = sow(bench, json.dumps(seed_of(model, differing)))
        if name in fixed:
            assert answer.status_code == 400, name
            continue
        counts = answer.json()
        assert (counts["created"], counts["changed"]) == (0, 1), (name, counts)
        assert sow(bench, json.dumps(seed_of(model, differing))).json()["changed"] == 0, name
        item = differing


def test_a_device_shows_what_the_changed_seed_says(bench):
    item = {"product": "Door", "device_identifier": "SN-1", "user_id": "u"}
    for name in ("Alpha", "Beta"):
        sow(bench, json.dumps(seed_of(SeedDevice, {**item, "device_name": name})))
    assert [device["device_name"] for device in bench.http.get("/devices").json()["data"]] == ["Beta"]


def test_passwords_are_not_hashed_on_the_event_loop(bench, monkeypatch):
    threads = []
    really = seed.hash_password

    def hash_password(password):
        threads.append(threading.current_thread().name)
        return really(password)

    monkeypatch.setattr(seed, "hash_password", hash_password)
    assert sow(bench).json()["created"] == 3
    assert len(threads) == 1
    assert threads[0] != "service-http"
