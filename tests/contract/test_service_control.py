"""``/_emulator/...``: the clock, seeds and resets, on each database."""

from __future__ import annotations

import time

import pytest

from agent.errors import ConfigurationError
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.service_running import client, running

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


def _clock(bench):
    return bench.http.get("/_emulator/clock").json()


def _set(bench, **members):
    return bench.http.put("/_emulator/clock", json=members)


def _advance(bench, **members):
    return bench.http.post("/_emulator/clock/advance", json=members)


def _sow(bench, text=SEED, **query):
    headers = {"content-type": "application/yaml"}
    return bench.http.post("/_emulator/seed", content=text, headers=headers, params=query)


# --- the clock --------------------------------------------------------------------------------------------------


def test_the_clock_goes_with_the_machines_until_it_is_set(bench):
    assert _clock(bench) == {
        "time": "2026-01-01T00:00:00.000Z",
        "mode": "real",
        "rate": 1.0,
        "system_time": "2026-01-01T00:00:00.000Z",
    }
    bench.clock.advance(5)
    assert _clock(bench)["time"] == "2026-01-01T00:00:05.000Z"


@pytest.mark.parametrize(
    ("setting", "after_10_s"),
    [
        ({"mode": "frozen", "time": "2027-05-01T12:00:00Z"}, "2027-05-01T12:00:00.000Z"),
        ({"mode": "frozen"}, "2026-01-01T00:00:00.000Z"),
        ({"mode": "offset", "offset_s": 60}, "2026-01-01T00:01:10.000Z"),
        ({"mode": "offset", "offset_s": -60}, "2025-12-31T23:59:10.000Z"),
        ({"mode": "offset", "time": "2026-02-01T00:00:00Z"}, "2026-02-01T00:00:10.000Z"),
        ({"mode": "scaled", "rate": 360}, "2026-01-01T01:00:00.000Z"),
        ({"mode": "scaled", "rate": 0.5}, "2026-01-01T00:00:05.000Z"),
    ],
)
def test_each_mode_goes_its_way_and_real_goes_back(bench, setting, after_10_s):
    assert _set(bench, **setting).json()["mode"] == setting["mode"]
    bench.clock.advance(10)
    assert _clock(bench)["time"] == after_10_s
    assert _set(bench, mode="real").json()["time"] == "2026-01-01T00:00:10.000Z"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"mode": "sideways"},
        {"mode": "scaled"},
        {"mode": "scaled", "rate": 0},
        {"mode": "scaled", "rate": True},
        {"mode": "frozen", "rate": 2},
        {"mode": "offset"},
        {"mode": "offset", "time": "2026-02-01T00:00:00Z", "offset_s": 1},
        {"mode": "real", "time": "2026-02-01T00:00:00Z"},
        {"mode": "frozen", "time": "yesterday"},
        {"mode": "frozen", "time": "0001-01-01T00:00:00Z"},
        {"mode": "frozen", "time": "9999-12-31T00:00:00Z"},
    ],
)
def test_a_clock_that_cannot_be_is_400_and_changes_nothing(bench, body):
    assert _set(bench, **body).status_code == 400
    assert _clock(bench)["mode"] == "real"


@pytest.mark.parametrize("body", [{}, {"seconds": -1}, {"seconds": 1, "to": 5}, {"to": "2025-01-01T00:00:00Z"}])
def test_time_is_advanced_forward_by_one_measure(bench, body):
    assert _advance(bench, **body).status_code == 400


def test_advancing_ends_commands_at_their_own_instants_before_it_answers(bench):
    device_id = bench.device()
    early = bench.send(device_id, ttl_seconds=10)
    late = bench.send(device_id, ttl_seconds=20)
    assert _set(bench, mode="frozen").status_code == 200
    assert _advance(bench, seconds=15).json()["time"] == "2026-01-01T00:00:15.000Z"
    assert bench.command(device_id, early)["status"] == "expired"
    assert bench.command(device_id, early)["completed_at"] == "2026-01-01T00:00:10.000Z"
    assert bench.command(device_id, late)["status"] == "queued"
    assert _set(bench, mode="frozen", time="2026-01-01T00:01:00Z").status_code == 200
    assert bench.command(device_id, late)["completed_at"] == "2026-01-01T00:00:20.000Z"


def test_presence_and_the_quota_go_by_the_same_clock():
    with running(rate_limit=6) as bench:
        device_id = bench.device()
        bench.poll(device_id)
        assert bench.http.get("/devices").json()["data"][0]["status"] == "online"
        _advance(bench, seconds=121)
        assert bench.http.get("/devices").json()["data"][0]["status"] == "offline"
        while bench.http.get("/products").status_code == 200:
            pass
        assert bench.http.get("/products").status_code == 429
        _advance(bench, seconds=60)
        assert bench.http.get("/products").status_code == 200


# --- seeds ------------------------------------------------------------------------------------------------------


def test_a_seed_makes_what_is_missing_and_the_same_seed_again_changes_nothing(bench):
    assert _sow(bench).json() == {"created": 3, "changed": 0, "unchanged": 0}
    before = [bench.http.get(path).json() for path in ("/products", "/devices")]
    bench.clock.advance(60)
    assert _sow(bench).json() == {"created": 0, "changed": 0, "unchanged": 3}
    assert [bench.http.get(path).json() for path in ("/products", "/devices")] == before
    answer = bench.http.post("/auth/signin", json={"email": "ada@example.com", "password": "correct horse"})
    assert answer.status_code == 200
    assert answer.json()["user"]["user_id"] == "user-0001"


def test_a_changed_seed_changes_what_differs(bench):
    _sow(bench)
    product_id = bench.http.get("/products").json()["data"][0]["product_id"]
    answer = _sow(bench, SEED.replace("category: doors", "category: gates").replace("correct horse", "battery"))
    assert answer.json() == {"created": 0, "changed": 2, "unchanged": 1}
    (product,) = bench.http.get("/products").json()["data"]
    assert (product["product_id"], product["category"]) == (product_id, "gates")


def test_a_seed_can_be_json_and_go_to_one_account(bench):
    other = bench.service.add_account("other")
    answer = bench.http.post(
        "/_emulator/seed", json={"products": [{"name": "theirs"}]}, params={"api_key": other.api_key}
    )
    assert answer.json()["created"] == 1
    assert bench.http.get("/products").json()["data"] == []
    assert _sow(bench, api_key="mk_nobody").json()["error"] == "account_not_found"


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
    answer = _sow(bench, text)
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
    assert _sow(bench, RULES).json() == {"created": 4, "changed": 0, "unchanged": 0}
    before = bench.http.get("/rules").json()["data"]
    assert [(rule["name"], rule["enabled"]) for rule in before] == [("Too hot", True), ("Noted", False)]
    assert "rules" not in bench.http.get("/products").json()["data"][0]
    device_id = bench.http.get("/devices").json()["data"][0]["device_id"]
    bench.post_reading(device_id, sensor_data={"t": 61})
    (command,) = bench.poll(device_id).json()["data"]
    assert command["command_payload"] == {"command": "open_door", "note": None}
    fired = bench.http.get("/rules").json()["data"]
    bench.clock.advance(60)
    assert _sow(bench, RULES).json() == {"created": 0, "changed": 0, "unchanged": 4}
    assert bench.http.get("/rules").json()["data"] == fired


def test_a_changed_rule_of_a_seed_is_changed_and_fires_by_its_new_trigger(bench):
    _sow(bench, RULES)
    (rule_id, _) = [rule["id"] for rule in bench.http.get("/rules").json()["data"]]
    assert _sow(bench, RULES.replace("value: 60", "value: 20")).json() == {"created": 0, "changed": 1, "unchanged": 3}
    assert bench.http.get(f"/rules/{rule_id}").json()["trigger"]["value"] == 20
    device_id = bench.http.get("/devices").json()["data"][0]["device_id"]
    bench.post_reading(device_id, sensor_data={"t": 21})
    assert len(bench.poll(device_id).json()["data"]) == 1


def test_faults_of_a_seeds_rules_come_with_the_lines_of_the_rules(bench):
    text = """products:
  - name: Door controller
    rules:
      - name: Twice
        trigger: {reading: t, op: ">", value: 60}
        actions: [{type: command, command_payload: {}}]
      - name: Twice
        trigger: {reading: t, op: ">", value: 60}
        actions: [{type: command, command_payload: {}}]
  - name: Other
    rules:
      - name: Bad
        trigger: {reading: t, op: "=>", value: 60}
        actions: [{type: command, command_payload: {}}]
"""
    details = _sow(bench, text).json()["details"]
    assert [row["field"] for row in details] == ["line 7 products.0.rules.1", "line 13 products.1.rules.0.trigger.op"]
    assert details[0]["issue"] == "the product has a rule 'Twice' already"
    large = RULES.replace("note: null", f"note: {'x' * 65_536}")
    for wrong, line, issue in (
        (RULES.replace("command_results", "nowhere"), 9, "There is no table 'nowhere'"),
        (RULES.replace("command_id: c,", "command_id: 7,"), 9, "actions.0.data_payload.command_id"),
        (large, 4, "actions.0.command_payload is larger than the limit"),
    ):
        (row,) = _sow(bench, wrong).json()["details"]
        assert row["field"].startswith(f"line {line} products.0.rules.")
        assert row["issue"].startswith(issue)
    assert bench.http.get("/products").json()["data"] == []
    assert bench.http.get("/rules").json()["data"] == []


def test_what_does_not_fit_the_storage_is_told_at_once_too_and_rolls_back(bench):
    _sow(bench)
    text = """products:
  - name: new
  - name: bad
    commands: [{name: x, payload_schema: {type: nonsense}}]
devices:
  - {product: Door controller, device_identifier: SN-000001, user_id: somebody-else}
  - {product: nowhere, device_identifier: SN-2, user_id: u}
"""
    details = _sow(bench, text).json()["details"]
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
    answer = _sow(bench, text)
    assert answer.status_code == 400, answer.text
    assert answer.json()["details"][0]["field"].startswith("line ")


def test_a_seed_file_is_there_from_the_start_and_its_faults_end_the_start(tmp_path):
    file = tmp_path / "seed.yaml"
    file.write_text(SEED)
    for created in (1, 1):
        with running(data_dir=tmp_path / "data", seed_file=file, api_key="mk_a", secret_key=_secret()) as bench:
            assert len(bench.http.get("/devices").json()["data"]) == created
    file.write_text("products:\n  - name: ''\n")
    with pytest.raises(ConfigurationError, match="seed.yaml line 2: products.0.name"):
        RunningService(ServiceConfig(seed_file=file))


def _secret():
    from agent.wire.secret import Secret

    return Secret("msk_a")


# --- resets -----------------------------------------------------------------------------------------------------


def test_a_reset_takes_less_than_50_ms_and_leaves_nothing_but_the_keys(bench):
    took = []
    for _ in range(20):  # whichever of them has the machine to itself
        _sow(bench)
        device_id = bench.device()
        bench.send(device_id)
        batch = [{"device_id": device_id, "sensor_data": {"t": n}} for n in range(500)]
        for _ in range(5):
            assert bench.http.post("/sensor-data", json=batch).status_code == 200
        began = time.perf_counter()
        assert bench.http.post("/_emulator/reset").status_code == 204
        took.append(time.perf_counter() - began)
        for path in ("/products", "/devices", "/sensor-data"):
            assert bench.http.get(path).json()["data"] == []
        if took[-1] < 0.05:
            break
    assert min(took) < 0.05, took


def test_a_reset_of_one_account_leaves_the_others_as_they_were(bench):
    other = bench.service.add_account("other")
    with client(bench.service, other.api_key, other.secret_key.reveal()) as http:
        http.post("/products", json={"name": "theirs"})
        mine = bench.device()
        bench.poll(mine)
        assert bench.http.post("/_emulator/reset", params={"api_key": other.api_key}).status_code == 204
        assert http.get("/products").json()["data"] == []
    (device,) = bench.http.get("/devices").json()["data"]
    assert (device["device_id"], device["status"]) == (mine, "online")
    assert bench.http.post("/_emulator/reset", params={"api_key": "mk_nobody"}).status_code == 404


def test_a_device_registered_after_a_reset_was_never_seen(bench):
    bench.poll(bench.device())
    assert bench.http.post("/_emulator/reset", params={"api_key": bench.service.api_key}).status_code == 204
    record = bench.http.get(f"/devices/{bench.device()}").json()  # SQLite gives it the row number of the other one
    assert (record["status"], record["last_seen_at"]) == ("never_seen", None)


def test_an_identifier_that_no_index_can_keep_is_400_on_every_database(bench):
    product_id = bench.product()
    for length, status in ((512, 201), (513, 400)):
        text = "".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(length))  # no database can compress it
        body = {"user_id": text, "product_id": product_id, "device_identifier": text}
        assert bench.http.post("/onboarding/device", json=body).status_code == status


def test_the_control_surface_has_a_document_of_its_own(bench):
    document = bench.http.get("/_emulator/openapi.json").json()
    assert {"/_emulator/clock", "/_emulator/clock/advance", "/_emulator/seed", "/_emulator/reset"} <= set(
        document["paths"]
    )
    assert not any(path.startswith("/_emulator") for path in bench.http.get("/openapi.json").json()["paths"])
