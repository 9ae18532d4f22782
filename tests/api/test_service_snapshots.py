"""``/_emulator/snapshots``: the state comes back as it was."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.wire.secret import Secret
from simulator.service.control import state
from tests.support.service_running import client, running

SNAPSHOTS = "/_emulator/snapshots"
OWN = {"api_key": "mk_own", "secret_key": Secret("msk_own")}
LISTS = (
    *("/products", "/devices", "/sensor-data", "/rules", "/database/runtime-data", "/_emulator/accounts"),
    "/onboarding/user/user-0001/devices",
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with running(data_dir=tmp_path_factory.mktemp("data"), **OWN) as bench:
        fill(bench)
        save(bench, "good")
        yield bench


@pytest.fixture
def bench():
    with running(**OWN) as bench:
        yield bench


def save(bench, name):
    answer = bench.http.post(SNAPSHOTS, json={"name": name})
    assert answer.status_code == 201, answer.text
    return answer.json()


def load(bench, name, status=200):
    answer = bench.http.post(f"{SNAPSHOTS}/{name}/load")
    assert answer.status_code == status, answer.text
    return answer.json()


def fill(bench):
    """Something of every kind; the id of the device."""
    product_id = bench.product(commands=[{"name": "ping"}])
    device_id = bench.device(product_id)
    bench.post_reading(device_id, key="a-key-of-idempotency")
    done = bench.send(device_id)
    bench.poll(device_id)
    assert bench.report(device_id, done, "succeeded", result={"text": "säule\u2028\n\"'\\"}).status_code == 200
    bench.send(device_id, "open_door", ttl_seconds=120)
    rule = {
        "product_id": product_id,
        "name": "Too warm",
        "trigger": {"reading": "t", "op": ">", "value": 30, "for_seconds": 0},
        "actions": [{"type": "command", "command_payload": {"command": "fan"}}],
    }
    assert bench.http.post("/rules", json=rule).status_code == 201
    assert bench.post_reading(device_id, sensor_data={"t": 31}).status_code == 201
    assert bench.http.put(f"/products/{product_id}/dashboard", json={"name": "Board", "widgets": []}).status_code == 200
    schema = bench.http.post(f"/products/{product_id}/database/schemas", json={"name": "main"}).json()
    columns = [{"name": "n", "type": "integer", "required": True}]
    table = {"schema_id": schema["schema_id"], "table_name": "notes", "columns": columns}
    assert bench.http.post("/database/tables", json=table).status_code == 201
    record = {"product_id": product_id, "device_id": device_id, "table_name": "notes", "data_payload": {"n": 2**53}}
    assert bench.http.post("/database/runtime-data", json=record).status_code == 201
    body = {
        "name": "second",
        "quota": 7,
        "variant": {"list_shape": "bare"},
        "keys": [{"api_key": "mk_second", "secret_key": "msk_second"}],
    }
    assert bench.http.post("/_emulator/accounts", json=body).status_code == 201
    bench.add_user("ada@example.com", "right", user_id="ada", api_key="mk_second")
    return device_id


def shown(bench):
    """Everything that the service shows, of both accounts."""
    found = {}
    with (
        client(bench.service, "mk_own", "msk_own") as first,
        client(bench.service, "mk_second", "msk_second") as second,
    ):
        for path in LISTS:
            found[path] = first.get(path).json()
        for device in found["/devices"]["data"]:
            found[device["device_id"]] = first.get(f"/devices/{device['device_id']}/commands").json()
        found["second"] = second.get("/products", headers={"x-emulator-variant": "complete"}).json()
    return found


# --- there and back ---------------------------------------------------------------------------------------------


def test_everything_comes_back_as_it_was(bench):
    fill(bench)
    before, saved = shown(bench), save(bench, "before")
    device = next(iter(before["/devices"]["data"]))["device_id"]
    bench.device(identifier="SN-2", product_id=bench.product(name="another"))
    bench.send(device, "later")
    bench.http.delete("/_emulator/accounts/second")
    assert bench.http.post("/_emulator/accounts", json={"name": "third"}).status_code == 201
    loaded = load(bench, "before")
    assert loaded == saved
    assert shown(bench) == before
    bench.post_reading(device, key="a-key-of-idempotency")
    assert len(bench.http.get("/sensor-data").json()["data"]) == 2, "the key of idempotency is known as well"
    assert bench.http.post("/_emulator/reset").status_code == 204
    load(bench, "before")
    assert shown(bench) == before


def test_the_new_state_lives_on_rules_fire_ids_are_new_and_rows_find_their_numbers(bench):
    device = fill(bench)
    save(bench, "state")
    bench.http.post("/_emulator/reset")
    load(bench, "state")
    commands = len(bench.http.get(f"/devices/{device}/commands").json()["data"])
    bench.post_reading(device, sensor_data={"t": 1})
    bench.post_reading(device, sensor_data={"t": 99})
    assert len(bench.http.get(f"/devices/{device}/commands").json()["data"]) == commands + 1, "the rule fires"
    for number in range(3):
        bench.device(identifier=f"NEW-{number}", product_id=bench.product(name=f"new {number}"))
    assert bench.http.post("/_emulator/accounts", json={}).status_code == 201


def test_the_clock_comes_back_and_commands_end_by_it(bench):
    device = bench.device()
    command = bench.send(device, ttl_seconds=60)
    bench.http.put("/_emulator/clock", json={"mode": "frozen"})
    before = bench.http.get("/_emulator/clock").json()
    save(bench, "frozen")
    bench.http.post("/_emulator/clock/advance", json={"seconds": 3_600})
    assert bench.command(device, command)["status"] == "expired"
    load(bench, "frozen")
    assert bench.http.get("/_emulator/clock").json() == before
    assert bench.command(device, command)["status"] == "queued"
    bench.http.post("/_emulator/clock/advance", json={"seconds": 61})
    assert bench.command(device, command)["status"] == "expired"


def test_keys_quotas_and_presence_are_those_of_the_state():
    with running(rate_limit=40, **OWN) as bench:
        device = fill(bench)
        old = bench.http.post("/_emulator/accounts/second/keys", json={}).json()
        bench.poll(device)
        save(bench, "state")
        bench.http.delete(f"/_emulator/accounts/second/keys/{old['api_key']}")
        new = bench.http.post("/_emulator/accounts/second/keys", json={}).json()
        with client(bench.service, old["api_key"], old["secret_key"]) as http:
            assert http.get("/products").status_code == 401
        bench.clock.advance(600)
        while bench.http.get("/products").status_code == 200:
            pass
        load(bench, "state")
        assert bench.http.get("/devices").json()["data"][0]["last_seen_at"] == "2026-01-01T00:00:00.000Z"
        with client(bench.service, old["api_key"], old["secret_key"]) as http:
            answer = http.get("/products", headers={"x-emulator-variant": "complete"})
            assert answer.headers["x-ratelimit-limit"] == "7"
        with client(bench.service, new["api_key"], new["secret_key"]) as http:
            assert http.get("/products").status_code == 401


def test_a_state_of_another_service_leaves_this_ones_own_keys_good(tmp_path):
    with running(data_dir=tmp_path / "a", api_key="mk_other", secret_key=Secret("msk_other")) as other:
        product = other.product()
        file = save(other, "theirs")["file"]
    with running(data_dir=tmp_path / "b") as bench:
        own = bench.service.api_key
        shutil.copytree(Path(file).parent, tmp_path / "b" / "snapshots")
        load(bench, "theirs")
        assert bench.service.api_key == own
        for keys in ((None, None), ("mk_other", "msk_other")):
            with client(bench.service, *keys) as http:
                assert [one["product_id"] for one in http.get("/products").json()["data"]] == [product]
    with running(data_dir=tmp_path / "c", api_key="mk_other", secret_key=Secret("msk_not_theirs")) as bench:
        shutil.copytree(Path(file).parent, tmp_path / "c" / "snapshots")
        assert load(bench, "theirs", 400)["details"][0]["field"] == "api_keys"
        assert bench.http.get("/products").json()["data"] == []


# --- while requests run -----------------------------------------------------------------------------------------


def test_a_held_poll_looks_again_when_a_state_is_loaded(bench):
    device = bench.device()
    command = bench.send(device)
    save(bench, "with-a-command")
    assert bench.report(device, command, "succeeded").status_code == 200
    tag = bench.poll(device).headers["etag"]
    with ThreadPoolExecutor(1) as threads, client(bench.service) as http:
        path = f"/devices/{device}/commands"
        query = {"status": "open", "wait": 30}
        poll = threads.submit(http.get, path, params=query, headers={"if-none-match": tag})
        bench.wait_until_held()
        load(bench, "with-a-command")
        assert [one["id"] for one in poll.result(60).json()["data"]] == [command]


def _wait_for(condition):
    pause = threading.Event()
    for _ in range(6000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it never came to be")


def test_a_held_poll_whose_account_is_not_in_the_new_state_ends_with_401(bench):
    save(bench, "empty")
    made = bench.http.post("/_emulator/accounts", json={}).json()["keys"][0]
    with client(bench.service, made["api_key"], made["secret_key"]) as http, ThreadPoolExecutor(1) as threads:
        device = bench.of(http).device()
        tag = http.get(f"/devices/{device}/commands", params={"status": "open"}).headers["etag"]
        query = {"status": "open", "wait": 30}
        poll = threads.submit(http.get, f"/devices/{device}/commands", params=query, headers={"if-none-match": tag})
        bench.wait_until_held()
        load(bench, "empty")
        assert poll.result(60).status_code == 401


def test_what_is_answered_while_states_are_saved_and_loaded_is_true_afterwards(bench):
    """Four writers: each product that was answered since the last load is there, and none that was not answered."""
    base = bench.product(name="base")
    save(bench, "base")
    stop = threading.Event()
    answered: list[tuple[int, str]] = []
    rounds = [0]

    def write():
        with client(bench.service) as http:
            while not stop.is_set():
                before = rounds[0]
                answer = http.post("/products", json={"name": "p"})
                assert answer.status_code in {201, 503}, answer.text
                if answer.status_code == 201:
                    answered.append((before, answer.json()["product_id"]))

    with ThreadPoolExecutor(4) as threads:
        writers = [threads.submit(write) for _ in range(4)]
        try:
            for number in range(5):
                seen = len(answered)
                _wait_for(lambda seen=seen: len(answered) > seen + 5 or any(one.done() for one in writers))
                save(bench, f"during-{number}")
                load(bench, "base")
                rounds[0] += 1
            seen = len(answered)
            _wait_for(lambda: len(answered) > seen + 5 or any(one.done() for one in writers))
        finally:
            stop.set()
        for one in writers:
            one.result(60)
    there = {one["product_id"] for one in bench.http.get("/products", params={"limit": 1000}).json()["data"]}
    assert base in there
    assert {product for since, product in answered if since == rounds[0]} <= there
    assert there - {base} <= {product for _, product in answered}
    for number in range(5):
        load(bench, f"during-{number}")
        assert base in {one["product_id"] for one in bench.http.get("/products").json()["data"]}


# --- names ------------------------------------------------------------------------------------------------------


def test_snapshots_are_listed_shown_and_deleted(bench):
    assert bench.http.get(SNAPSHOTS).json() == {"data": [], "next_cursor": None, "has_more": False}
    made = bench.http.post(SNAPSHOTS, json={})
    assert made.headers["location"] == f"{SNAPSHOTS}/{made.json()['name']}"
    saved = save(bench, "b.v1-2_x")
    assert [one["name"] for one in bench.http.get(SNAPSHOTS).json()["data"]] == ["b.v1-2_x", made.json()["name"]]
    assert bench.http.get(f"{SNAPSHOTS}/b.v1-2_x").json() == saved
    assert bench.http.delete(f"{SNAPSHOTS}/b.v1-2_x").status_code == 204
    assert not Path(saved["file"]).exists()
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/load")):
        gone = bench.http.request(method, f"{SNAPSHOTS}/b.v1-2_x{path}")
        assert (gone.status_code, gone.json()["error"]) == (404, "snapshot_not_found")


def test_what_is_no_snapshot_in_the_folder_does_not_hide_the_others(bench):
    saved = Path(save(bench, "good")["file"])
    (saved.parent / "a-folder.db").mkdir()
    os.mkfifo(saved.parent / "a-pipe.db")
    assert [one["name"] for one in bench.http.get(SNAPSHOTS).json()["data"]] == ["good"]
    gone = bench.http.get(f"{SNAPSHOTS}/a-folder")
    assert gone.json()["error"] == "snapshot_not_found"


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "ä", "x" * 101, "a b", "a\0", "-a", "."])
def test_a_name_that_could_be_another_file_is_400(shared, name):
    answer = shared.http.post(SNAPSHOTS, json={"name": name})
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error"), answer.text
    assert answer.json()["details"][0]["field"] in {"name", "body"}


def test_no_way_out_of_the_folder_leads_through_the_path(shared):
    outside = Path(shared.http.get(f"{SNAPSHOTS}/good").json()["file"]).parent.parent / "out.db"
    shutil.copy(shared.http.get(f"{SNAPSHOTS}/good").json()["file"], outside)
    for path in ("..%2Fout", "%2e%2e%2fout", ".good", "good%00"):
        for method, ending in (("GET", ""), ("DELETE", ""), ("POST", "/load")):
            assert shared.http.request(method, f"{SNAPSHOTS}/{path}{ending}").status_code in {400, 404}, path
    assert outside.exists()


def test_a_name_is_taken_once_and_there_are_so_many_at_most(bench, monkeypatch):
    saved = save(bench, "taken")
    before = Path(saved["file"]).read_bytes()
    answer = bench.http.post(SNAPSHOTS, json={"name": "taken"})
    assert (answer.status_code, answer.json()["error"]) == (409, "snapshot_exists")
    assert answer.json()["details"][0]["field"] == "name"
    assert Path(saved["file"]).read_bytes() == before
    monkeypatch.setattr(state, "SNAPSHOTS_MAX", 2)
    save(bench, "second")
    answer = bench.http.post(SNAPSHOTS, json={"name": "third"})
    assert (answer.status_code, answer.json()["error"]) == (409, "snapshot_limit_reached")


def test_saves_of_one_name_at_once_are_answered_once(bench):
    with ThreadPoolExecutor(4) as threads:
        statuses = list(threads.map(lambda _: bench.http.post(SNAPSHOTS, json={"name": "one"}).status_code, range(4)))
    assert sorted(statuses) == [201, 409, 409, 409]


def test_a_file_is_its_owners_holds_no_secret_and_reads_with_sqlite(shared):
    file = Path(shared.http.get(f"{SNAPSHOTS}/good").json()["file"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"msk_" not in file.read_bytes()
    with contextlib.closing(sqlite3.connect(file)) as copy:
        assert copy.execute("SELECT count(*) FROM devices").fetchone() == (1,)


def spoil_rows(statement):
    def spoil(file):
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as copy:
            copy.execute(statement)

    return spoil


SPOILT = {
    "empty": (lambda file: file.write_bytes(b""), "file"),
    "another program's": (lambda file: file.write_text('{"products": []}'), "file"),
    "a database of nobody": (spoil_rows("DROP TABLE snapshot"), "file"),
    "cut off": (lambda file: os.truncate(file, file.stat().st_size // 2), "file"),
    "another release": (spoil_rows("PRAGMA user_version = 7"), "schema"),
    "no keys": (spoil_rows("DELETE FROM api_keys"), "api_keys"),
    "a table is missing": (spoil_rows("DROP TABLE devices"), "schema"),
    "null where none may be": (
        lambda file: (
            spoil_rows("PRAGMA writable_schema = ON")(file),
            spoil_rows("ALTER TABLE readings RENAME COLUMN sensor_data TO other")(file),
        ),
        "schema",
    ),
    "a variant of another release": (
        spoil_rows('UPDATE accounts SET variant = \'{"list_shape": "x"}\''),
        "accounts",
    ),
}


@pytest.mark.parametrize(("spoil", "field"), SPOILT.values(), ids=SPOILT)
def test_a_file_that_cannot_be_loaded_is_400_and_the_state_is_as_it_was(shared, spoil, field):
    good = Path(shared.http.get(f"{SNAPSHOTS}/good").json()["file"])
    bad = good.with_name("bad.db")
    bad.unlink(missing_ok=True)
    shutil.copy(good, bad)
    spoil(bad)
    before = shown(shared)
    answer = load(shared, "bad", 400)
    assert (answer["error"], answer["details"][0]["field"]) == ("invalid_snapshot", field)
    assert shown(shared) == before
    load(shared, "good")


def test_what_cannot_be_written_is_one_clear_error_and_leaves_nothing_behind(bench):
    place = Path(save(bench, "good")["file"]).parent
    (place / ".never.db.part").mkdir()
    answer = bench.http.post(SNAPSHOTS, json={"name": "never"})
    assert (answer.status_code, answer.json()["error"]) == (503, "snapshot_not_saved")
    assert sorted(one.name for one in place.iterdir()) == [".never.db.part", "good.db"]


def test_a_relative_data_folder_is_found_by_whatever_reads_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with running(data_dir=Path("data")) as bench:
        monkeypatch.chdir("/")
        assert bench.http.get("/analytics/devices").status_code == 200
        save(bench, "a")
        load(bench, "a")
    assert (tmp_path / "data" / "snapshots" / "a.db").exists()
