"""Rules over real sockets: kept, changed, and really fired by sensor data and by time."""

from __future__ import annotations

import pytest

from tests.support.service_running import Bench, client, running

TRIGGER = {"reading": "t", "op": ">", "value": 60}
OPEN_DOOR = {"type": "command", "command_payload": {"command": "open_door", "note": None}}


@pytest.fixture
def bench():
    with running() as bench:
        yield bench


@pytest.fixture
def device(bench):
    product_id = bench.product()
    return product_id, bench.device(product_id)


def rule(bench: Bench, product_id: str, **members):
    body = {"product_id": product_id, "name": "Too hot", "trigger": TRIGGER, "actions": [OPEN_DOOR], **members}
    answer = bench.http.post("/rules", json=body)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/rules/{answer.json()['id']}"
    return answer.json()["id"]


def post(bench: Bench, device_id: str, value: float, **members):
    answer = bench.post_reading(device_id, sensor_data={"t": value}, **members)
    assert answer.status_code == 201, answer.text


def sent(bench: Bench, device_id: str) -> int:
    return len(bench.http.get(f"/devices/{device_id}/commands", params={"limit": 1000}).json()["data"])


def last_fired_at(bench: Bench, rule_id: str) -> str | None:
    return bench.http.get(f"/rules/{rule_id}").json()["last_fired_at"]


def advance(bench: Bench, seconds: float) -> None:
    assert bench.http.post("/_emulator/clock/advance", json={"seconds": seconds}).status_code == 200


def freeze(bench: Bench) -> None:
    assert bench.http.put("/_emulator/clock", json={"mode": "frozen"}).status_code == 200


def test_a_reading_that_meets_the_trigger_really_sends_the_command_once_until_the_condition_has_ended(bench, device):
    product_id, device_id = device
    rule_id = rule(bench, product_id)
    for value, count in ((60, 0), (61, 1), (99, 1), (60, 1), (61, 2)):
        bench.clock.advance(1)
        post(bench, device_id, value)
        assert sent(bench, device_id) == count
    command = bench.poll(device_id).json()["data"][0]
    assert command["command_payload"] == OPEN_DOOR["command_payload"]
    assert command["created_at"] == "2026-01-01T00:00:02.000Z"
    assert last_fired_at(bench, rule_id) == "2026-01-01T00:00:05.000Z"


def test_other_readings_other_products_and_disabled_rules_fire_nothing_and_each_device_has_its_state(bench, device):
    product_id, device_id = device
    rule(bench, product_id, enabled=False)
    other, second = bench.device(bench.product(), "SN-2"), bench.device(product_id, "SN-3")
    rule(bench, product_id)
    post(bench, other, 99)
    assert bench.post_reading(device_id, sensor_data={"humidity": 99}).status_code == 201
    assert sent(bench, other) == sent(bench, device_id) == 0
    for one in (device_id, second, device_id):
        post(bench, one, 99)
    assert (sent(bench, device_id), sent(bench, second)) == (1, 1)


def test_a_batch_fires_as_the_readings_by_themselves_do(bench, device):
    product_id, device_id = device
    rule(bench, product_id)
    batch = [{"device_id": device_id, "sensor_data": {"t": value}} for value in (61, 62, 10, 70, 10, 61)]
    batch.insert(3, {"device_id": "none", "sensor_data": {"t": 99}})
    assert bench.http.post("/sensor-data", json=batch).json()["accepted"] == 6
    assert sent(bench, device_id) == 3


def test_the_same_reading_sent_again_with_its_key_fires_once(bench, device):
    product_id, device_id = device
    rule(bench, product_id)
    post(bench, device_id, 61, key="k")
    post(bench, device_id, 60, key="k2")
    post(bench, device_id, 61, key="k")
    assert sent(bench, device_id) == 1


# Name -> seconds that the condition must last, and what happens: a reading with its value and perhaps the time that it
# says, seconds that pass, or a time that the clock is set to; with each, how many commands have been sent then.
STORIES = {
    "it fires once when its time has passed though no further reading comes": (
        30,
        [("post", 61, 0), ("wait", 29.999, 0), ("wait", 0.001, 1), ("wait", 3600, 1)],
    ),
    "a reading in between ends the condition and the timer": (
        30,
        [("post", 61, 0), ("wait", 20, 0), ("post", 10, 0), ("wait", 100, 0)],
    ),
    "a reading that was taken before the latest one changes nothing": (
        30,
        [("wait", 60, 0), ("post", 61, 0), ("post", (10, "2026-01-01T00:00:30Z"), 0), ("wait", 30, 1)],
    ),
    "readings that come late together fire at what they say": (
        30,
        [("wait", 120, 0), ("post", (61, "2026-01-01T00:01:00Z"), 0), ("post", (10, "2026-01-01T00:01:31Z"), 1)],
    ),
    "a clock that is set back holds no rule up": (
        30,
        [
            ("set", "2027-01-01T00:00:00Z", 0), ("post", 61, 0),
            ("set", "2026-01-01T00:00:00Z", 0), ("post", 61, 0), ("wait", 30, 1),
        ],
    ),
    "a backlog fires nothing, ends what is over, and leaves the present to fire": (
        0,
        [
            ("post", (61, "2025-12-31T12:00:00Z"), 0),
            ("post", (61, "2025-12-31T23:44:59.999Z"), 0),
            ("post", (61, "2025-12-31T23:45:00Z"), 1),
            ("wait", 86_400, 1),
            ("post", (10, "2026-01-01T00:00:00Z"), 1),
            ("post", 61, 2),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("for_seconds", "steps"), STORIES.values(), ids=STORIES.keys())
def test_a_condition_fires_in_its_time(bench, device, for_seconds, steps):
    product_id, device_id = device
    rule(bench, product_id, trigger={**TRIGGER, "for_seconds": for_seconds})
    freeze(bench)
    for number, (step, what, count) in enumerate(steps):
        if step == "wait":
            advance(bench, what)
        elif step == "set":
            bench.http.put("/_emulator/clock", json={"mode": "frozen", "time": what})
        else:
            value, *at = what if isinstance(what, tuple) else (what,)
            post(bench, device_id, value, **({"recorded_at": at[0]} if at else {}))
        assert sent(bench, device_id) == count, (number, step)


def test_advancing_the_clock_fires_what_is_due_in_order_and_at_its_time(bench, device):
    product_id, device_id = device
    late = rule(bench, product_id, name="late", trigger={**TRIGGER, "for_seconds": 300})
    early = rule(bench, product_id, name="early", trigger={**TRIGGER, "for_seconds": 100})
    freeze(bench)
    post(bench, device_id, 61)
    advance(bench, 100_000)
    times = [last_fired_at(bench, rule_id) for rule_id in (early, late)]
    assert times == ["2026-01-01T00:01:40.000Z", "2026-01-01T00:05:00.000Z"]
    listed = bench.http.get(f"/devices/{device_id}/commands?order=asc").json()["data"]
    assert [row["created_at"] for row in listed] == times
    assert {row["status"] for row in listed} == {"expired"}


def test_each_comparison_is_what_it_says(bench):
    meeting = {">": (61,), ">=": (60, 61), "<": (59,), "<=": (59, 60), "==": (60,), "!=": (59, 61)}
    for op, meets in meeting.items():
        product_id = bench.product()
        rule(bench, product_id, trigger={**TRIGGER, "op": op})
        for value in (59, 60, 61):
            device_id = bench.device(product_id, f"at {value}")
            post(bench, device_id, value)
            assert sent(bench, device_id) == (value in meets), (op, value)


def test_many_devices_whose_time_ends_at_once_all_fire(bench, device):
    product_id, _ = device
    devices = [bench.device(product_id, f"D-{number}") for number in range(12)]
    rule(bench, product_id, trigger={**TRIGGER, "for_seconds": 30})
    freeze(bench)
    bench.http.post("/sensor-data", json=[{"device_id": one, "sensor_data": {"t": 61}} for one in devices])
    advance(bench, 30)
    assert [sent(bench, one) for one in devices] == [1] * 12


def test_a_held_poll_hears_at_once_of_a_command_that_a_rule_sent(bench, device):
    from concurrent.futures import ThreadPoolExecutor

    product_id, device_id = device
    rule(bench, product_id)
    tag = bench.poll(device_id).headers["etag"]
    with ThreadPoolExecutor() as pool:
        held = pool.submit(bench.poll, device_id, tag, wait=15)
        post(bench, device_id, 61)
        assert held.result(60).json()["data"][0]["command_payload"]["command"] == "open_door"


def test_a_full_queue_is_logged_and_the_reading_is_stored_all_the_same(bench, device, caplog):
    product_id, device_id = device
    rule_id = rule(bench, product_id)
    for _ in range(100):
        bench.send(device_id)
    post(bench, device_id, 61)
    assert len(bench.http.get("/sensor-data").json()["data"]) == 1
    assert sent(bench, device_id) == 100
    (line,) = [record.getMessage() for record in caplog.records if record.name == "simulator.service.api.rules"]
    assert rule_id in line
    assert device_id in line
    assert "command_queue_full" in line


def test_a_record_action_writes_into_the_products_table_and_a_failing_neighbour_does_not_matter(bench, device):
    product_id, device_id = device
    target = bench.device(product_id, "SN-2")
    record = {
        "type": "record",
        "table_name": "command_results",
        "data_payload": {"command_id": "-", "status": "hot"},
    }
    rule(bench, product_id, actions=[{**OPEN_DOOR, "device_id": target}, record])
    post(bench, device_id, 61)
    assert (sent(bench, device_id), sent(bench, target)) == (0, 1)
    (stored,) = bench.http.get("/database/runtime-data").json()["data"]
    assert stored["device_id"] == device_id
    assert stored["data_payload"] == record["data_payload"]
    assert bench.http.delete(f"/onboarding/device/{target}").status_code == 204
    post(bench, device_id, 10)
    post(bench, device_id, 61)
    assert len(bench.http.get("/database/runtime-data").json()["data"]) == 2


def test_changing_the_trigger_or_switching_makes_a_rule_begin_anew_and_a_new_name_does_not(bench, device):
    product_id, device_id = device
    rule_id = rule(bench, product_id)
    post(bench, device_id, 61)
    bench.http.put(f"/rules/{rule_id}", json={"name": "x", "trigger": {**TRIGGER, "for_seconds": 0}})
    post(bench, device_id, 61)
    assert sent(bench, device_id) == 1
    bench.http.put(f"/rules/{rule_id}", json={"enabled": False})
    post(bench, device_id, 61)
    assert sent(bench, device_id) == 1
    bench.http.put(f"/rules/{rule_id}", json={"enabled": True})
    post(bench, device_id, 61)
    assert sent(bench, device_id) == 2
    bench.http.put(f"/rules/{rule_id}", json={"trigger": {**TRIGGER, "value": 50}})
    post(bench, device_id, 61)
    assert sent(bench, device_id) == 3
    bench.http.delete(f"/rules/{rule_id}")
    post(bench, device_id, 10)
    post(bench, device_id, 61)
    assert sent(bench, device_id) == 3


def test_a_removed_device_fires_nothing_any_more(bench, device):
    product_id, device_id = device
    rule_id = rule(bench, product_id, trigger={**TRIGGER, "for_seconds": 30})
    freeze(bench)
    post(bench, device_id, 61)
    bench.http.delete(f"/onboarding/device/{device_id}")
    advance(bench, 100)
    assert last_fired_at(bench, rule_id) is None
    assert bench.http.delete(f"/products/{product_id}").status_code == 204
    assert bench.http.get("/rules").json()["data"] == []


def test_a_reset_forgets_rules_and_timers(bench, device):
    product_id, device_id = device
    rule(bench, product_id, trigger={**TRIGGER, "for_seconds": 30})
    freeze(bench)
    post(bench, device_id, 61)
    assert bench.http.post("/_emulator/reset").status_code == 204
    advance(bench, 100)
    assert bench.http.get("/rules").json()["data"] == []
    again = bench.device(bench.product())
    post(bench, again, 61)
    assert sent(bench, again) == 0


def test_payloads_of_rules_are_checked_against_the_vocabulary_when_the_service_does_so():
    with running(validate_commands=True) as bench:
        other = bench.device(bench.product(commands=[{"name": "open_door"}]), "SN-2")
        schema = {"required": ["at"]}
        product_id = bench.product(commands=[{"name": "ping"}, {"name": "wake", "payload_schema": schema}])
        body = {"product_id": product_id, "name": "x", "trigger": TRIGGER}
        for payload in (OPEN_DOOR["command_payload"], {"command": "wake"}):
            actions = [{"type": "command", "command_payload": payload}]
            assert bench.http.post("/rules", json={**body, "actions": actions}).json()["error"] == "validation_error"
        rule_id = rule(bench, product_id, actions=[{**OPEN_DOOR, "device_id": other}])
        assert bench.http.put(f"/rules/{rule_id}", json={"actions": [OPEN_DOOR]}).status_code == 400
        post(bench, bench.device(product_id), 61)
        assert sent(bench, other) == 1


def test_a_rule_names_no_device_of_another_manufacturer(bench, device):
    other = bench.add_account("other")
    with client(bench.service, other.api_key, other.secret_key) as http:
        mine = http.post("/products", json={"name": "mine"}).json()["product_id"]
        body = {"product_id": mine, "name": "x", "trigger": TRIGGER, "actions": [{**OPEN_DOOR, "device_id": device[1]}]}
        answer = http.post("/rules", json=body)
        assert (answer.status_code, answer.json()["error"]) == (404, "device_not_found")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"trigger": {**TRIGGER, "op": "=>"}}, "trigger.op"),
        ({"trigger": {**TRIGGER, "value": True}}, "trigger.value"),
        ({"trigger": {**TRIGGER, "for_seconds": 2**62}}, "trigger.for_seconds"),
        ({"actions": [OPEN_DOOR] * 17}, "actions"),
        ({"actions": [{"type": "mail"}]}, "actions.0"),
        ({"actions": [{"type": "command", "command_payload": 1}]}, "actions.0.command.command_payload"),
        (
            {"actions": [{"type": "record", "table_name": "command_results", "data_payload": {"x": 1}}]},
            "actions.0.data_payload.command_id",
        ),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_by_the_field(bench, device, change, field):
    body = {"product_id": device[0], "name": "Too hot", "trigger": TRIGGER, "actions": [OPEN_DOOR], **change}
    answer = bench.http.post("/rules", json=body)
    assert answer.status_code == 400, answer.text
    assert field in [detail["field"] for detail in answer.json()["details"]], answer.text
    assert bench.http.get("/rules").json()["data"] == []


def test_what_a_rule_names_must_be_there_and_not_too_large(bench, device):
    body = {"product_id": device[0], "name": "x", "trigger": TRIGGER}
    table = {"type": "record", "table_name": "nowhere", "data_payload": {}}
    assert bench.http.post("/rules", json={**body, "actions": [table]}).json()["error"] == "table_not_found"
    large = {"type": "command", "command_payload": {"x": "x" * 70_000}}
    assert bench.http.post("/rules", json={**body, "actions": [large]}).status_code == 413
    rule_id = rule(bench, device[0])
    assert bench.http.put(f"/rules/{rule_id}", json={}).status_code == 400
    assert bench.http.put(f"/rules/{rule_id}", json={"product_id": device[0]}).status_code == 400
    assert bench.http.put(f"/rules/{rule_id}", json={"actions": [table]}).json()["error"] == "table_not_found"


def test_a_product_takes_a_hundred_rules(bench, device):
    for _ in range(100):
        rule(bench, device[0], enabled=False)
    body = {"product_id": device[0], "name": "x", "trigger": TRIGGER, "actions": [OPEN_DOOR]}
    answer = bench.http.post("/rules", json=body)
    assert (answer.status_code, answer.json()["error"]) == (409, "rule_limit_reached")
