"""``/_emulator/requests`` over a real socket: what went over the wire is what the log shows."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

import httpx
import pytest

from agent.wire.secret import MASK
from simulator.service.variant import PLAIN
from tests.support.service_running import running

PATH = "/_emulator/requests"


@pytest.fixture
def bench():
    """A service."""
    with running() as bench:
        yield bench


def entries(bench, **query):
    """The list, newest first."""
    answer = bench.http.get(PATH, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


def verify(bench, **body):
    """The answer of ``verify``."""
    answer = bench.http.post(f"{PATH}/verify", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def header(message, name):
    """The value of a header of a logged message."""
    return next((one["value"] for one in message["headers"] if one["name"] == name), None)


def test_a_request_and_its_answer_are_kept_as_they_went_over_the_wire(bench):
    device_id = bench.device()
    answer = bench.post_reading(device_id, "key-1")
    (entry,) = entries(bench, path="/sensor-data")
    assert (entry["method"], entry["path"], entry["path_template"]) == ("POST", "/sensor-data", "/sensor-data")
    assert (entry["account"], entry["caller"]) == (bench.service.api_key, bench.service.api_key)
    assert (entry["outcome"], entry["faults"]) == ("answered", [])
    assert entry["request_id"] == answer.headers["x-request-id"]
    assert json.loads(entry["request"]["body"]) == {"device_id": device_id, "sensor_data": {"t": 21.5}}
    assert header(entry["request"], "idempotency-key") == "key-1"
    assert header(entry["request"], "x-api-key") == bench.service.api_key
    assert header(entry["request"], "x-secret-key") == MASK
    assert entry["answer"]["status"] == 201
    assert entry["answer"]["body"] == answer.text
    assert [(one["name"], one["value"]) for one in entry["answer"]["headers"]] == [
        (name.decode().lower(), value.decode()) for name, value in answer.headers.raw
    ]
    assert bench.http.get(f"{PATH}/{entry['id']}").json() == entry


def test_the_filters_narrow_and_the_list_comes_in_pages(bench):
    device_id, other = bench.device(), bench.device()
    bench.http.delete(PATH)
    bench.poll(device_id)
    bench.post_reading(device_id)
    bench.post_reading(other)
    bench.post_reading("nobody")
    queries = filters(device_id)
    ids = {name: [one["id"] for one in entries(bench, **query)] for name, query in queries.items()}
    newest = int(entries(bench)[0]["id"])
    poll, first, second, refused = (str(newest - 3), str(newest - 2), str(newest - 1), str(newest))
    assert ids == {
        "all": [refused, second, first, poll],
        "method": [poll],
        "template": [poll],
        "ids in the path": [poll],
        "device": [first, poll],
        "status": [refused],
        "class": [second, first, poll],
        "text": [refused],
        "oldest first": [poll, first, second, refused],
    }
    page = bench.http.get(PATH, params={"limit": 3, "status": "2xx"})
    assert [one["id"] for one in page.json()["data"]] == [second, first, poll]
    page = bench.http.get(PATH, params={"limit": 2})
    bench.post_reading(device_id)  # a newer one moves no page
    assert [one["id"] for one in bench.http.get(page.links["next"]["url"]).json()["data"]] == [first, poll]
    assert [one["id"] for one in entries(bench, after=refused)] == [str(newest + 1)]


def filters(device_id):
    """Name -> query."""
    return {
        "all": {},
        "method": {"method": "get"},
        "template": {"path": "/devices/{device_id}/commands"},
        "ids in the path": {"path": f"/devices/{device_id}/commands"},
        "device": {"device_id": device_id},
        "status": {"status": "404"},
        "class": {"status": "2xx"},
        "text": {"text": "NOBODY"},
        "oldest first": {"order": "asc"},
    }


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"path": "/nowhere"}, "path"),
        ({"method": "BREW"}, "method"),
        ({"device_id": "nobody"}, "device_id"),
        ({"account_id": "mk_nobody"}, "account_id"),
        ({"status": "9xx"}, "status"),
        ({"after": "-1"}, "after"),
        ({"cursor": "x"}, "cursor"),
        ({"pth": "/sensor-data"}, "pth"),
    ],
)
def test_a_filter_that_cannot_be_used_is_named(bench, query, field):
    answer = bench.http.get(PATH, params=query)
    assert (answer.status_code, [one["field"] for one in answer.json()["details"]]) == (400, [field])


def test_what_is_refused_is_kept_too(bench):
    bench.http.get("/nowhere/at-all")
    at = urlsplit(bench.service.base_url)
    with socket.create_connection((at.hostname, at.port)) as connection:  # head and body in one piece
        connection.sendall(b'POST /sensor-data HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n{"x":1}')
        assert connection.recv(100).startswith(b"HTTP/1.1 401")
    bench.http.post("/sensor-data", content=b"x" * 300_000, headers={"content-type": "application/json"})
    large, wrong, nowhere = entries(bench)
    assert (large["answer"]["status"], large["request"]["body_bytes"]) == (413, 300_000)
    assert large["request"]["truncated"]  # refused by its Content-Length, before it had come
    assert (wrong["answer"]["status"], wrong["account"]) == (401, None)
    assert (wrong["request"]["body_bytes"], wrong["request"]["truncated"]) == (7, True)  # nobody has read it
    assert (nowhere["answer"]["status"], nowhere["path_template"]) == (404, None)


def test_control_requests_are_not_kept_and_a_reset_or_delete_clears(bench):
    bench.http.get("/_emulator/health")
    assert entries(bench) == []
    bench.http.get("/products")
    assert len(entries(bench)) == 1
    bench.http.post("/_emulator/reset")
    assert entries(bench) == []
    bench.http.get("/products")
    assert bench.http.delete(PATH).status_code == 204
    assert entries(bench) == []
    made = bench.http.post("/_emulator/accounts", json={}).json()
    (pair,) = made["keys"]
    keys = {"x-api-key": pair["api_key"], "x-secret-key": pair["secret_key"]}
    bench.http.get("/products")
    bench.http.get("/devices", headers=keys)
    bench.http.post("/_emulator/reset", params={"api_key": pair["api_key"]})
    assert [one["path"] for one in entries(bench)] == ["/products"]


def test_no_secret_of_any_kind_is_shown(bench):
    bench.add_user("ada@example.com", "correct horse battery staple")
    signed_in = bench.http.post(
        "/auth/signin", json={"email": "ada@example.com", "password": "correct horse battery staple"}
    )
    token = signed_in.json()["access_token"]
    bench.http.get("/products", headers={"x-api-key": "", "authorization": f"Bearer {token}", "cookie": "a=Zq7-s3c"})
    bench.http.post("/products", json={"name": "a", "metadata": {"mqtt": {"password": "Zq7-s3c"}}})
    bench.http.post("/functions/v1/partner-oauth-token", data={"grant_type": "authorization_code", "code": "Zq7-s3c"})
    bench.http.get("/partner-oauth-authorize", params={"client_id": "x", "state": "Zq7-s3c"})
    secret_key = bench.service.secret_key.reveal()
    for name in ("x-odd", "idempotency-key", "user-agent", "referer", "x-request-id", "accept"):
        bench.http.get("/products", headers={name: f"a {secret_key}"})
    bench.http.get(f"/devices/{secret_key}/commands", params={"status": secret_key})
    bench.http.post("/commands/send", json={"device_id": secret_key, "command_payload": {secret_key: secret_key}})
    shown = bench.http.get(PATH).text + str(verify(bench, match={"path": "/rules"}, exactly=9))
    for secret in (
        token,
        signed_in.json()["refresh_token"],
        "battery",
        "Zq7-s3c",
        bench.service.secret_key.reveal(),
    ):
        assert secret not in shown
    assert shown.count(MASK) > 10


def test_a_body_that_is_no_text_is_shown_with_its_bytes_written_out_and_without_its_secrets(bench):
    body = b'\xff msk_Zq7-s3c {"password": "Zq7-s3c\xe9"}'
    bench.http.post("/sensor-data", content=body, headers={"content-type": "application/json"})
    (entry,) = entries(bench)
    assert entry["request"]["body"].startswith(f"\\xff {MASK} ")
    assert entry["request"]["body_bytes"] == len(body)
    assert "Zq7" not in str(entry)


def test_under_a_profile_the_log_shows_what_went_over_the_wire(bench):
    bench.service.set_variant(PLAIN.model_copy(update={"list_shape": "bare"}))
    answer = bench.http.get("/products")
    (entry,) = entries(bench)
    assert entry["answer"]["body"] == answer.text == "[]"
    assert (entry["account"], entry["outcome"]) == (bench.service.api_key, "answered")


def test_verify_says_how_many_came_and_what_the_nearest_others_have_instead(bench):
    device_id = bench.device()
    bench.post_reading(device_id)
    bench.post_reading("nobody")
    match = {"method": "POST", "path": "/sensor-data", "device_id": device_id}
    done = verify(bench, match=match, exactly=1)
    assert (done["holds"], done["verdict"], done["count"], done["unknown"], done["reason"]) == (
        True,
        "holds",
        1,
        0,
        None,
    )
    nearest = done["nearest"][0]
    assert (nearest["method"], nearest["path"], nearest["status"]) == ("POST", "/sensor-data", 404)
    assert nearest["differs"] == [{"field": "device_id", "wanted": device_id, "found": "nobody"}]
    assert verify(bench, match=match, at_least=2)["verdict"] == "does_not_hold"
    assert verify(bench, match=match, at_most=0)["holds"] is False
    assert verify(bench, match=match, exactly=1, status="2xx")["holds"] is True
    assert verify(bench, match=match, exactly=0, after=entries(bench)[0]["id"])["holds"] is True


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"exactly": 1}, "match"),
        ({"match": {}}, "body"),
        ({"match": {}, "exactly": 1, "at_least": 1}, "body"),
        ({"match": {}, "at_least": 2, "at_most": 1}, "body"),
        ({"match": {}, "exactly": -1}, "exactly"),
        ({"match": {"path": "/nowhere"}, "exactly": 1}, "match.path"),
        ({"match": {"headers": {}}, "exactly": 0}, "match.headers"),
        ({"match": {}, "exactly": 0, "status": "abc"}, "status"),
    ],
)
def test_a_verify_that_cannot_be_used_is_400(bench, body, field):
    answer = bench.http.post(f"{PATH}/verify", json=body)
    assert (answer.status_code, [one["field"] for one in answer.json()["details"]]) == (400, [field])


def test_what_cannot_be_judged_is_never_said_to_hold():
    with running(keep_requests=2) as bench:
        for _ in range(4):
            bench.http.get("/products")
        match = {"path": "/devices"}
        cut = verify(bench, match=match, exactly=0)
        assert (cut["holds"], cut["verdict"], cut["count"], cut["unknown"]) == (False, "inconclusive", 0, 2)
        assert "--keep-requests" in cut["reason"]
        assert verify(bench, match=match, at_most=2)["verdict"] == "holds"  # whatever those two were
        assert verify(bench, match=match, at_least=3)["verdict"] == "does_not_hold"
        assert verify(bench, match=match, exactly=0, after="2")["verdict"] == "holds"
        bench.http.delete(PATH)
        assert verify(bench, match=match, exactly=0)["verdict"] == "holds"
    with running() as bench:
        device_id = bench.device()
        batch = [{"device_id": "nobody", "sensor_data": {"t": 1.0}} for _ in range(400)]
        bench.http.post("/sensor-data", json=[*batch, {"device_id": device_id, "sensor_data": {"t": 1.0}}])
        match = {"path": "/sensor-data", "device_id": device_id}
        assert verify(bench, match=match, exactly=0)["verdict"] == "inconclusive"


def test_without_a_log_the_control_paths_say_so():
    with running(keep_requests=0) as bench:
        for answer in (
            bench.http.get(PATH),
            bench.http.get(f"{PATH}/1"),
            bench.http.post(f"{PATH}/verify", json={"match": {}, "exactly": 0}),
        ):
            assert (answer.status_code, answer.json()["error"]) == (409, "request_log_off")


def test_a_held_poll_counts_while_it_is_held_and_is_logged_at_its_end(bench):
    device_id = bench.device()
    etag = bench.poll(device_id).headers["etag"]
    at = urlsplit(bench.service.base_url)
    keys = f"x-api-key: {bench.service.api_key}\r\nx-secret-key: {bench.service.secret_key.reveal()}\r\n"
    with socket.create_connection((at.hostname, at.port)) as connection:
        head = f"GET /devices/{device_id}/commands?status=open&wait=30 HTTP/1.1\r\nHost: a\r\nIf-None-Match: {etag}\r\n"
        connection.sendall(f"{head}{keys}\r\n".encode())
        match = {"path": "/devices/{device_id}/commands", "device_id": device_id}
        while verify(bench, match=match, exactly=2)["verdict"] != "holds":
            pass
        assert verify(bench, match=match, exactly=2, status="2xx")["verdict"] == "inconclusive"
        assert len(entries(bench, path=match["path"])) == 1
    while len(found := entries(bench, path=match["path"])) < 2:
        pass
    assert (found[0]["outcome"], found[0]["answer"]) == ("caller_gone", None)


def test_a_request_that_met_a_fault_says_so_and_what_went_over_the_wire(bench):
    device_id = bench.device()
    body = {"match": {"path": "/sensor-data"}, "times": {"next": 1}, "effect": {"lose": "answer"}}
    fault_id = bench.http.post("/_emulator/faults", json=body).json()["fault_id"]
    with pytest.raises(httpx.RemoteProtocolError):
        bench.post_reading(device_id)
    reading = {"device_id": device_id, "sensor_data": {"t": 1.0}}
    bench.http.post("/sensor-data", json=reading, headers={"x-emulator-fault": "answer=503"})
    with pytest.raises(httpx.RemoteProtocolError):
        bench.http.get("/products", headers={"x-emulator-fault": "truncate=5"})
    cut, chosen, lost = entries(bench, limit=3)
    assert (lost["outcome"], lost["answer"], lost["faults"]) == ("no_answer", None, [fault_id])
    assert json.loads(lost["request"]["body"])["device_id"] == device_id
    assert lost["account"] == bench.service.api_key  # it was carried out
    assert (chosen["outcome"], chosen["answer"]["status"], chosen["faults"]) == ("answered", 503, ["header"])
    assert chosen["account"] is None  # nobody looked at its keys
    assert (cut["outcome"], cut["answer"]["body"]) == ("cut", '{"dat')
