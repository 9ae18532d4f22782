"""``/_emulator/accounts``: accounts side by side, their keys, quotas and variants."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from agent.wire.secret import Secret
from simulator.service.service import Service
from tests.support.service_running import client, running

ACCOUNTS = "/_emulator/accounts"


@pytest.fixture(scope="module")
def shared():
    with running() as bench:
        yield bench


@pytest.fixture
def bench():
    with running() as bench:
        yield bench


def make(bench, **body):
    answer = bench.http.post(ACCOUNTS, json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def opened(bench, account, number=0):
    """A client with one of the account's key pairs."""
    pair = account["keys"][number]
    return client(bench.service, pair["api_key"], pair["secret_key"])


def test_an_account_has_everything_of_its_own_and_is_shown_without_its_secrets(shared):
    answer = shared.http.post(
        ACCOUNTS,
        json={
            "name": "Acme Doors",
            "quota": 5,
            "variant": {"base": "plain"},
            "keys": [{}, {"api_key": "mk_acme", "secret_key": "msk_acme_secret"}],
        },
    )
    made = answer.json()
    assert answer.status_code == 201, made
    assert answer.headers["cache-control"] == "no-store"
    assert made["keys"][0]["secret_key"].startswith("msk_")
    assert made["keys"][1]["secret_key"] == "msk_acme_secret"
    shown = shared.http.get(answer.headers["location"]).json()
    assert shown == {
        "account_id": made["account_id"],
        "name": "Acme Doors",
        "created_at": "2026-01-01T00:00:00.000Z",
        "quota": 5,
        "variant": "plain",
        "keys": sorted(
            ({"api_key": pair["api_key"], "created_at": pair["created_at"]} for pair in made["keys"]),
            key=lambda key: key["api_key"],
        ),
    }
    for name in ("mk_acme", "Acme%20Doors"):
        assert shared.http.get(f"{ACCOUNTS}/{name}").json() == shown
    assert "msk_" not in shared.http.get(ACCOUNTS).text
    assert shared.http.get(f"{ACCOUNTS}/Acme%20Doors/keys/mk_acme").status_code == 405, "a secret is shown once"
    shared.add_user("Ada@acme.example", "right password", api_key="mk_acme")
    with opened(shared, made) as http:
        signed_in = http.post("/auth/signin", json={"email": "ada@acme.example", "password": "right password"})
        assert signed_in.status_code == 200, signed_in.text
        assert isinstance(http.get("/devices").json(), dict)
        assert http.get("/.well-known/device-service").status_code == 404, "a plain server announces nothing"


def test_accounts_come_in_pages_the_oldest_first(bench):
    names = [f"account {number}" for number in range(5)]
    for name in names:
        make(bench, name=name)
    found, query = [], {"limit": 2}
    while True:
        page = bench.http.get(ACCOUNTS, params=query).json()
        found += [one["name"] for one in page["data"]]
        assert len(page["data"]) <= 2
        if not page["has_more"]:
            break
        query["cursor"] = page["next_cursor"]
    assert found == ["default", *names]


def test_each_key_counts_by_its_accounts_quota_and_several_keys_count_apart():
    with running(rate_limit=4) as bench:
        usual, tight, free = make(bench), make(bench, quota=2, keys=[{}, {}]), make(bench, quota=0)

        def allowed(account, number=0):
            with opened(bench, account, number) as http:
                statuses = [http.get("/products").status_code for _ in range(6)]
            assert statuses == sorted(statuses)
            return statuses.count(200)

        assert allowed(usual) == 4
        assert (allowed(tight), allowed(tight, 1)) == (2, 2)
        assert allowed(free) == 6
        with opened(bench, free) as http:
            assert "ratelimit" not in http.get("/products").headers
        with opened(bench, tight) as http:
            refused = http.get("/products")
        assert refused.headers["ratelimit-policy"] == '"default";q=2;w=60'
        assert refused.json()["message"].startswith("More than 2 requests")
        tight_path = f"{ACCOUNTS}/{tight['account_id']}"
        assert bench.http.patch(tight_path, json={"quota": 10}).json()["quota"] == 10
        assert allowed(tight) == 3, "seven requests of this minute are counted already"
        assert bench.http.patch(tight_path, json={"quota": None}).json()["quota"] is None
        bench.clock.advance(60)
        assert allowed(tight) == 4


def test_the_quota_and_the_keys_are_there_after_a_restart(tmp_path):
    with running(data_dir=tmp_path, api_key="mk_a", secret_key=Secret("msk_a")) as bench:
        made = make(bench, name="acme", quota=1)
    with running(data_dir=tmp_path, api_key="mk_a", secret_key=Secret("msk_a")) as bench, opened(bench, made) as http:
        assert [http.get("/products").status_code for _ in range(2)] == [200, 429]


def test_key_pairs_are_rotated_one_by_one(shared):
    account = make(shared)
    path = f"{ACCOUNTS}/{account['account_id']}/keys"
    added = shared.http.post(path, json={})
    assert added.status_code == 201
    new, old = added.json(), account["keys"][0]
    both = {"keys": [old, new]}
    with opened(shared, both) as http:
        product = http.post("/products", json={"name": "Lock"}).json()["product_id"]
    assert shared.http.delete(f"{path}/{old['api_key']}").status_code == 204
    with opened(shared, both) as http:
        assert http.get("/products").status_code == 401
    with opened(shared, both, 1) as http:
        assert [one["product_id"] for one in http.get("/products").json()["data"]] == [product]
    last = shared.http.delete(f"{path}/{new['api_key']}")
    assert (last.status_code, last.json()["error"]) == (409, "last_key")
    gone = shared.http.delete(f"{path}/{old['api_key']}")
    assert (gone.status_code, gone.json()["error"]) == (404, "key_not_found")


def test_the_first_accounts_own_keys_rotate_too_and_the_service_uses_those_that_are_left(bench):
    path = f"{ACCOUNTS}/{bench.service.api_key}/keys"
    make(bench, name="a later account")
    pair = bench.http.post(path, json={"api_key": "mk_second", "secret_key": "msk_second"}).json()
    assert bench.http.delete(f"{path}/{bench.service.api_key}").status_code == 204
    assert bench.service.api_key == "mk_second"
    with client(bench.service, pair["api_key"], pair["secret_key"]) as http:
        assert http.get("/products").status_code == 200
    seeded = bench.http.post("/_emulator/seed", json={"products": [{"name": "of the first account"}]})
    assert seeded.json()["created"] == 1
    with client(bench.service, pair["api_key"], pair["secret_key"]) as http:
        assert len(http.get("/products").json()["data"]) == 1


@pytest.mark.parametrize(
    ("body", "status", "error", "fields"),
    [
        ({"name": "taken"}, 409, "account_exists", ["name"]),
        ({"keys": [{"api_key": "mk_taken", "secret_key": "msk_x"}]}, 409, "key_exists", ["keys.0.api_key"]),
        ({"quota": -1}, 400, "validation_error", ["quota"]),
        ({"quota": True}, 400, "validation_error", ["quota"]),
        ({"name": ""}, 400, "validation_error", ["name"]),
        ({"name": "two\nlines"}, 400, "validation_error", ["name"]),
        ({"nam": "typo"}, 400, "validation_error", ["nam"]),
        ({"variant": {"list_shpe": "bare"}}, 400, "validation_error", ["variant.list_shpe"]),
        ({"keys": [{"api_key": "mk_half"}]}, 400, "validation_error", ["keys.0.secret_key"]),
        (
            {"keys": [{"api_key": "x", "secret_key": "y"}]},
            400,
            "validation_error",
            ["keys.0.api_key", "keys.0.secret_key"],
        ),
        ({"name": "x" * 201, "quota": -1}, 400, "validation_error", ["name", "quota"]),
    ],
)
def test_what_cannot_be_is_refused_by_field_and_nothing_is_made(shared, body, status, error, fields):
    if shared.http.get(f"{ACCOUNTS}/taken").status_code == 404:
        make(shared, name="taken", keys=[{"api_key": "mk_taken", "secret_key": "msk_taken"}])
    before = shared.http.get(ACCOUNTS).json()
    answer = shared.http.post(ACCOUNTS, json=body)
    assert (answer.status_code, answer.json()["error"]) == (status, error), answer.text
    assert [row["field"] for row in answer.json()["details"]] == fields
    assert shared.http.get(ACCOUNTS).json() == before


def test_what_is_not_there_is_404_and_the_first_account_stays(shared):
    for method, path, error in (
        ("GET", f"{ACCOUNTS}/nobody", "account_not_found"),
        ("PATCH", f"{ACCOUNTS}/nobody", "account_not_found"),
        ("DELETE", f"{ACCOUNTS}/nobody", "account_not_found"),
        ("POST", f"{ACCOUNTS}/nobody/keys", "account_not_found"),
        ("DELETE", f"{ACCOUNTS}/nobody/keys/mk_x", "account_not_found"),
    ):
        body = {"json": {"quota": 1} if method == "PATCH" else {}} if method in {"PATCH", "POST"} else {}
        answer = shared.http.request(method, path, **body)
        assert (answer.status_code, answer.json()["error"]) == (404, error), path
    refused = shared.http.delete(f"{ACCOUNTS}/{shared.service.api_key}")
    assert (refused.status_code, refused.json()["error"]) == (409, "first_account")
    assert shared.http.get("/products").status_code == 200
    assert shared.http.patch(f"{ACCOUNTS}/default", json={}).status_code == 400


def test_two_accounts_work_side_by_side_and_a_deleted_one_takes_everything_with_it(bench):
    one = make(bench, name="one")
    bench.add_user("one@example.com", "x", api_key=one["keys"][0]["api_key"])
    two = make(bench, name="two")
    with opened(bench, one) as first, opened(bench, two) as second:
        for http in (first, second):
            own = bench.of(http)
            assert own.post_reading(own.device()).status_code == 201
        token = first.post("/auth/signin", json={"email": "one@example.com", "password": "x"}).json()["access_token"]
        bearer = {"authorization": f"Bearer {token}"}
        assert bench.http.delete(f"{ACCOUNTS}/one").status_code == 204
        assert first.get("/products").json()["error"] == "invalid_credentials"
        with httpx.Client(base_url=bench.service.base_url, headers=bearer, trust_env=False) as partner:
            assert partner.get("/products").json()["error"] == "invalid_token"
        assert len(second.get("/devices").json()["data"]) == 1
        assert len(second.get("/sensor-data").json()["data"]) == 1
    assert bench.http.get(f"{ACCOUNTS}/one").status_code == 404
    again = make(bench, name="one")
    bench.add_user("one@example.com", "y", api_key=again["keys"][0]["api_key"])
    with opened(bench, again) as http:
        for path in ("/products", "/devices", "/sensor-data"):
            assert http.get(path).json()["data"] == []


def test_an_account_that_cannot_be_deleted_is_as_it_was(bench, monkeypatch):
    one = make(bench, name="one")
    fault = {"effect": {"answer": 503}, "match": {"account_id": "one", "path": "/rules"}}
    assert bench.http.post("/_emulator/faults", json=fault).status_code == 201
    empty = Service.empty

    def fail(self, sql, account):
        empty(self, sql, account)
        raise sqlite3.OperationalError("disk I/O error")

    with opened(bench, one) as http:
        http.post("/products", json={"name": "kept"})
        monkeypatch.setattr(Service, "empty", fail)
        refused = bench.http.delete(f"{ACCOUNTS}/one")
        assert (refused.status_code, refused.json()["error"]) == (503, "storage_unavailable")
        monkeypatch.undo()
        assert [product["name"] for product in http.get("/products").json()["data"]] == ["kept"]
        assert http.get("/rules").status_code == 503, "its fault is there as well"
        assert bench.http.delete(f"{ACCOUNTS}/one").status_code == 204
        assert bench.http.get("/_emulator/faults").json() == {"data": []}


def test_a_held_poll_and_a_stream_of_a_deleted_account_end_and_those_of_another_go_on(bench):
    gone, kept = make(bench), make(bench)
    with opened(bench, gone) as theirs, opened(bench, kept) as ours, ThreadPoolExecutor(2) as threads:
        devices = []
        for http in (theirs, ours):
            devices.append(bench.of(http).device())

        def held(http, device):
            path = f"/devices/{device}/commands"
            tag = http.get(path, params={"status": "open"}).headers["etag"]
            waiting.release()
            return http.get(path, params={"status": "open", "wait": 30}, headers={"if-none-match": tag})

        waiting = threading.Semaphore(0)
        with theirs.stream("GET", "/commands/events") as ended, ours.stream("GET", "/commands/events") as open_one:
            pieces, lines = ended.iter_bytes(), open_one.iter_lines()
            assert next(pieces).startswith(b": commands")
            polls = [threads.submit(held, http, device) for http, device in zip((theirs, ours), devices, strict=True)]
            for _ in polls:
                assert waiting.acquire(timeout=60)
            bench.wait_until_held(2)
            assert bench.http.delete(f"{ACCOUNTS}/{gone['account_id']}").status_code == 204
            assert b"".join(pieces) == b"", "the stream ends"
            assert polls[0].result(60).status_code == 401
            assert devices[0] not in bench.http.get("/_emulator/requests").text, "its requests are gone with it"
            sent = ours.post("/commands/send", json={"device_id": devices[1], "command_payload": {"command": "ping"}})
            assert polls[1].result(60).json()["data"][0]["id"] == sent.json()["id"]
            assert any(sent.json()["id"] in line for line in lines)
