"""The HTTP front on a real socket: the device paths of the specification, each token for its own device only."""

from __future__ import annotations

import json
import socket
import threading

import httpx
import pytest

from agent.adapters.discovery import Discovery
from agent.adapters.http_source import HttpSource
from agent.adapters.http_uplink import HttpUplink
from agent.core.values import Moment, Reading, Report, StoredReading
from agent.errors import NotFound, StorageError, Unauthorized
from agent.wire.auth import BearerToken
from agent.wire.device_client import DeviceClient
from agent.wire.extensions import ALL, COMMAND_EVENTS, COMMAND_TTL, LIST_PARAMETERS
from agent.wire.secret import Secret
from gateway.http import app as http_app
from gateway.http.app import Limits
from gateway.http.front import HttpFront, HttpSettings
from gateway.ports import StoreFull, Transport
from tests.fake_backend import FakeBackend, FakeTokens
from tests.fakes import FakeClock

READING = {"device_id": "d1", "sensor_data": {"t": 21.5}}


class Bench:
    """A front on a free port, with the tokens ``t1`` of device ``d1`` and ``t2`` of device ``d2``."""

    def __init__(self, **settings):
        self.backend, self.tokens = FakeBackend(), FakeTokens(t1="d1", t2="d2")
        self.front = HttpFront(HttpSettings(port=0, **settings), self.backend, self.tokens)
        self.front.start()
        self.http = self.client("t1")

    def begin_anew(self):
        """As if it had just been started, without the fifth of a second that a server needs to end."""
        self.backend, self.tokens = FakeBackend(), FakeTokens(t1="d1", t2="d2")
        self.front._app.__init__(self.backend, self.tokens)
        return self

    def client(self, token):
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.front.base_url, headers=headers, trust_env=False, timeout=120)

    def close(self):
        self.http.close()
        assert self.front.stop(60)


@pytest.fixture(scope="module")
def running():
    bench = Bench()
    yield bench
    bench.close()


@pytest.fixture
def bench(running):
    return running.begin_anew()


def error_of(answer):
    body = answer.json()
    assert set(body) <= {"error", "message", "details"}
    assert body["message"]
    return answer.status_code, body["error"]


def test_a_state_that_went_back_and_two_agents_of_one_device_are_told(bench, caplog):
    def poll(instance: str) -> str | None:
        answer = bench.http.get("/devices/d1/commands", headers={"Agent-Instance": instance})
        assert answer.status_code == 200
        return answer.headers.get("agent-conflict")

    first, next_start, copied = "7-aaaaaaaa", "8-bbbbbbbb", "8-cccccccc"
    assert [poll(each) for each in (first, first, next_start)] == [None, None, None]
    assert [poll(each) for each in (copied, copied)] == ["older-state"] * 2
    assert [poll(each) for each in (next_start, copied)] == ["two-agents"] * 2
    assert poll("no instance") is None
    assert caplog.text.count("device=d1 identity=two-agents") == 1


# --- who is it ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/devices/d1/commands", "/sensor-data", "/no/such/path"])
def test_without_a_token_everything_is_401(bench, path):
    answer = httpx.get(bench.front.base_url + path, trust_env=False, timeout=120)
    assert error_of(answer) == (401, "missing_token")
    assert answer.headers["www-authenticate"] == 'Bearer realm="device-gateway"'


@pytest.mark.parametrize("token", ["wrong", "t1x", "T1", "dat_" + "x" * 32])
def test_a_wrong_token_is_401_invalid_token(bench, token, caplog):
    with bench.client(token) as http:
        answers = [http.get("/devices/d1/commands") for _ in range(3)]
    assert error_of(answers[0]) == (401, "invalid_token")
    assert 'error="invalid_token"' in answers[0].headers["www-authenticate"]
    assert sum("invalid_token" in line for line in caplog.messages) == 1
    assert token not in caplog.text
    assert bench.front.status().counts["invalid_token"] == 3


def test_a_token_that_was_issued_this_very_moment_is_not_refused(bench):
    token = "dat_" + "n" * 32

    class IssuedMeanwhile(dict[str, str]):
        """The token is there after it was asked for."""

        def get(self, key: str, default: str | None = None) -> str | None:
            found = super().get(key, default)
            self[token] = "d1"
            return found

    bench.tokens.tokens = IssuedMeanwhile(bench.tokens.tokens)
    with bench.client(token) as http:
        assert http.get("/devices/d1/commands").status_code == 200


def test_a_token_that_is_revoked_meanwhile_is_401(bench):
    assert bench.http.get("/devices/d1/commands").status_code == 200
    del bench.tokens.tokens["t1"]
    assert error_of(bench.http.get("/devices/d1/commands")) == (401, "invalid_token")


def test_a_key_pair_is_told_that_it_does_not_belong_here(bench):
    headers = {"x-api-key": "mk_1", "x-secret-key": "msk_1"}
    answer = httpx.get(f"{bench.front.base_url}/devices/d1/commands", headers=headers, trust_env=False, timeout=120)
    assert error_of(answer) == (401, "missing_token")
    assert "no key pair" in answer.json()["message"]


def test_each_token_opens_the_paths_of_its_own_device_only(bench):
    """The matrix: each device's token on each device's paths."""
    for device in ("d1", "d2"):
        bench.backend.send(device, f"c-{device}")
    for token, own in (("t1", "d1"), ("t2", "d2")):
        with bench.client(token) as http:
            for device in ("d1", "d2", "d3"):
                answers = [
                    http.get(f"/devices/{device}/commands", params={"status": "open"}),
                    http.get(f"/devices/{device}/commands/c-{device}"),
                    http.post(f"/devices/{device}/commands/c-{device}/result", json={"status": "in_progress"}),
                    http.post("/sensor-data", json={**READING, "device_id": device}),
                ]
                if device == own:
                    assert [answer.status_code for answer in answers] == [200, 200, 200, 201]
                else:
                    assert [error_of(answer) for answer in answers] == [(404, "device_not_found")] * 4
    assert {device for device, _ in bench.backend.readings} == {"d1", "d2"}
    assert [(device, command) for device, command, _ in bench.backend.results] == [("d1", "c-d1"), ("d2", "c-d2")]
    assert bench.front.status().counts["foreign_device"] == 16


def test_a_foreign_device_and_one_that_does_not_exist_look_alike(bench):
    foreign, missing = (bench.http.get(f"/devices/{device}/commands").json() for device in ("d2", "d9"))
    assert json.dumps(foreign).replace("d2", "d9") == json.dumps(missing)


def test_a_command_of_another_device_is_not_found(bench):
    bench.backend.send("d2", "c2")
    answer = bench.http.post("/devices/d1/commands/c2/result", json={"status": "succeeded"})
    assert error_of(answer) == (404, "command_not_found")


def test_a_device_that_the_service_does_not_know_is_404(bench):
    bench.backend.unknown.add("d1")
    assert error_of(bench.http.get("/devices/d1/commands", params={"status": "open"})) == (404, "device_not_found")
    assert error_of(bench.http.post("/sensor-data", json=READING)) == (404, "device_not_found")


# --- paths and methods --------------------------------------------------------------------------------------------


def test_what_the_gateway_offers_is_told_without_a_token(bench):
    answer = httpx.get(f"{bench.front.base_url}/.well-known/device-service", trust_env=False, timeout=120)
    assert set(answer.json()["extensions"]) == ALL - {COMMAND_EVENTS, COMMAND_TTL, LIST_PARAMETERS}


@pytest.mark.parametrize("path", ["/", "/devices", "/products", "/devices/d1", "/devices/d1/commands/", "/database"])
def test_only_the_paths_of_devices_exist(bench, path):
    assert error_of(bench.http.get(path)) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/devices/d1/commands", "GET, HEAD"),
        ("GET", "/sensor-data", "POST"),
        ("DELETE", "/devices/d1/commands/c1/result", "POST"),
        ("POST", "/.well-known/device-service", "GET, HEAD"),
    ],
)
def test_a_method_that_a_path_lacks_is_405_with_allow(bench, method, path, allow):
    answer = bench.http.request(method, path)
    assert error_of(answer) == (405, "method_not_allowed")
    assert answer.headers["allow"] == allow


def test_an_id_is_decoded_after_the_path_was_split(bench):
    bench.tokens.tokens["t3"] = "a b:ü"
    bench.backend.send("a b:ü", "c/1")
    with bench.client("t3") as http:
        assert http.get("/devices/a%20b%3A%C3%BC/commands").json()["data"][0]["id"] == "c/1"
        assert http.get("/devices/a%20b%3A%C3%BC/commands/c%2F1").status_code == 200
        assert error_of(http.get("/devices/a%20b%3A%FF/commands")) == (404, "not_found")


def test_the_request_id_comes_back(bench):
    answer = bench.http.get("/devices/d1/commands", headers={"x-request-id": "r-1"})
    assert answer.headers["x-request-id"] == "r-1"


# --- commands -----------------------------------------------------------------------------------------------------


def test_the_poll_lists_what_is_open_oldest_first(bench):
    bench.backend.send("d1", "c1")
    bench.backend.send("d1", "c2")
    answer = bench.http.get("/devices/d1/commands", params={"status": "open"})
    assert [record["id"] for record in answer.json()["data"]] == ["c1", "c2"]
    assert answer.json()["has_more"] is False
    assert ("d1", Transport.HTTP) in bench.backend.heard


def test_without_status_all_are_listed_newest_first(bench):
    bench.backend.send("d1", "c1")
    bench.backend.send("d1", "c2")
    bench.http.post("/devices/d1/commands/c1/result", json={"status": "succeeded"})
    answer = bench.http.get("/devices/d1/commands")
    assert [record["id"] for record in answer.json()["data"]] == ["c2", "c1"]
    only = bench.http.get("/devices/d1/commands", params={"status": "succeeded"})
    assert [record["id"] for record in only.json()["data"]] == ["c1"]


def test_a_list_that_is_known_is_304(bench):
    bench.backend.send("d1", "c1")
    tag = bench.http.get("/devices/d1/commands", params={"status": "open"}).headers["etag"]
    for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        answer = bench.http.get("/devices/d1/commands", params={"status": "open"}, headers={"if-none-match": known})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == tag


def test_a_held_poll_answers_as_soon_as_a_command_comes(bench):
    tag = bench.http.get("/devices/d1/commands", params={"status": "open"}).headers["etag"]
    answers = []

    def poll():
        params, headers = {"status": "open", "wait": "30"}, {"if-none-match": tag}
        answers.append(bench.http.get("/devices/d1/commands", params=params, headers=headers))

    thread = threading.Thread(target=poll)
    thread.start()
    assert bench.backend.watched.wait(60)
    bench.backend.send("d2", "c2")
    bench.backend.send("d1", "c1")
    thread.join(60)
    assert [record["id"] for record in answers[0].json()["data"]] == ["c1"]
    assert answers[0].elapsed.total_seconds() < 25
    assert bench.backend.watchers == 0


@pytest.mark.parametrize("command", [True, False])
def test_a_token_that_is_revoked_during_a_held_poll_ends_it_without_a_command(bench, command):
    tag = bench.http.get("/devices/d1/commands", params={"status": "open"}).headers["etag"]
    answers = []

    def poll():
        params, headers = {"status": "open", "wait": "30"}, {"if-none-match": tag}
        answers.append(bench.http.get("/devices/d1/commands", params=params, headers=headers))

    thread = threading.Thread(target=poll)
    thread.start()
    assert bench.backend.watched.wait(60)
    del bench.tokens.tokens["t1"]
    if command:
        bench.backend.send("d1", "c1")
    thread.join(60)
    assert error_of(answers[0]) == (401, "invalid_token")
    assert answers[0].elapsed.total_seconds() < 25


def test_a_held_poll_ends_with_304_when_its_time_is_up(bench):
    tag = bench.http.get("/devices/d1/commands", params={"status": "open"}).headers["etag"]
    params, headers = {"status": "open", "wait": "0.05"}, {"if-none-match": tag}
    assert bench.http.get("/devices/d1/commands", params=params, headers=headers).status_code == 304
    assert bench.backend.watchers == 0


def test_held_polls_are_let_go_when_the_front_stops():
    bench = Bench()
    tag = bench.http.get("/devices/d1/commands", params={"status": "open"}).headers["etag"]
    statuses = []

    def poll():
        params, headers = {"status": "open", "wait": "30"}, {"if-none-match": tag}
        statuses.append(bench.http.get("/devices/d1/commands", params=params, headers=headers).status_code)

    thread = threading.Thread(target=poll)
    thread.start()
    assert bench.backend.watched.wait(60)
    assert bench.front.stop(60)
    thread.join(60)
    assert statuses == [304]
    bench.http.close()


def test_a_device_that_hangs_up_is_watched_no_longer(bench):
    host, port = bench.front.base_url.removeprefix("http://").split(":")
    request = b"GET /devices/d1/commands?status=open&wait=30 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer t1\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(request + b'if-none-match: "v"\r\n\r\n')
        assert bench.backend.watched.wait(60)
    ended = threading.Event()
    for _ in range(1200):
        if not bench.backend.watchers:
            break
        ended.wait(0.05)
    assert bench.backend.watchers == 0


def test_a_list_comes_in_pages(bench):
    for number in range(5):
        bench.backend.send("d1", f"c{number}")
    with DeviceClient(bench.front.base_url, BearerToken(Secret("t1"))) as client:
        found = client.device_commands("d1", status="open")
        assert [record.id for record in found.records] == [f"c{number}" for number in range(5)]
    first = bench.http.get("/devices/d1/commands", params={"status": "open", "limit": 2})
    assert first.json()["next_cursor"] == "c1"
    assert 'rel="next"' in first.headers["link"]
    link = first.headers["link"].split(";")[0].strip("<>")
    second = bench.http.get(link)
    assert [record["id"] for record in second.json()["data"]] == ["c2", "c3"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=nonsense", "status"),
        ("wait=31", "wait"),
        ("wait=nan", "wait"),
        ("wait=1_0", "wait"),
        ("limit=0", "limit"),
        ("order=up", "order"),
        ("cursor=c9", "cursor"),
        ("stauts=open", "stauts"),
        ("status=open&status=open", "status"),
        ("status=%FF", "query"),
    ],
)
def test_a_wrong_query_is_400_and_names_the_parameter(bench, query, field):
    answer = bench.http.get(f"/devices/d1/commands?{query}")
    assert error_of(answer) == (400, "validation_error")
    assert answer.json()["details"][0]["field"] == field


@pytest.mark.parametrize("status", ["in_progress", "succeeded", "failed", "rejected"])
def test_a_result_answers_the_record(bench, status):
    bench.backend.send("d1", "c1")
    answer = bench.http.post("/devices/d1/commands/c1/result", json={"status": status, "result": {"n": 1}})
    assert answer.status_code == 200
    assert answer.json()["status"] == status
    assert bench.backend.results[0][2].result == {"n": 1}


def test_a_result_that_is_none_is_400(bench):
    bench.backend.send("d1", "c1")
    answer = bench.http.post("/devices/d1/commands/c1/result", json={"status": "done", "extra": 1})
    assert error_of(answer) == (400, "validation_error")
    assert {detail["field"] for detail in answer.json()["details"]} == {"status", "extra"}
    assert bench.backend.results == []


# --- readings -----------------------------------------------------------------------------------------------------


def test_a_reading_is_answered_once_it_is_stored(bench):
    answer = bench.http.post("/sensor-data", json={**READING, "recorded_at": "2026-01-01T00:00:00Z"})
    assert answer.status_code == 201
    assert answer.json()["recorded_at"] == "2026-01-01T00:00:00.000Z"
    [(device_id, reading)] = bench.backend.readings
    assert (device_id, reading.values, reading.recorded_at, reading.key) == ("d1", {"t": 21.5}, 1767225600.0, None)


def test_the_same_idempotency_key_stores_a_reading_once(bench):
    for _ in range(2):
        assert bench.http.post("/sensor-data", json=READING, headers={"idempotency-key": "k"}).status_code == 201
    assert len(bench.backend.readings) == 1


def test_a_bad_idempotency_key_is_400(bench):
    answer = bench.http.post("/sensor-data", json=READING, headers={"idempotency-key": "x" * 256})
    assert error_of(answer) == (400, "validation_error")


def test_in_an_array_one_bad_reading_hides_none_of_the_others(bench):
    values = [READING, {**READING, "device_id": "d2"}, {"device_id": "d1", "sensor_data": {"t": "warm"}}, READING]
    answer = bench.http.post("/sensor-data", json=values, headers={"idempotency-key": "k"})
    assert answer.status_code == 200
    assert answer.json()["accepted"] == 2
    refused = [(fault["index"], fault["error"]) for fault in answer.json()["errors"]]
    assert refused == [(1, "device_not_found"), (2, "validation_error")]
    assert [reading.key for _, reading in bench.backend.readings] == ["k/0", "k/3"]


@pytest.mark.parametrize("count", [0, 501])
def test_an_array_of_none_or_too_many_is_400(bench, count):
    assert error_of(bench.http.post("/sensor-data", json=[READING] * count)) == (400, "validation_error")
    assert bench.backend.readings == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b'"x"',
        b"\xff\xfe",
        b'{"device_id":"d1","sensor_data":{"t":NaN}}',
        b'{"device_id":"d1","sensor_data":{"t":1e999}}',
        b'{"device_id":"d1","sensor_data":{"t":99999999999999999999}}',
        b'{"device_id":"d1","sensor_data":{"t":1,"t":2}}',
        b'{"device_id":"d1","sensor_data":{"t":"1"}}',
        b'{"device_id":"d1","sensor_data":{"t":true}}',
        b'{"device_id":"d1","sensor_data":{}}',
        b'{"device_id":"d1"}',
        b'{"sensor_data":{"t":1}}',
        b'{"device_id":"d1","sensor_data":{"t":1},"recorded_at":"yesterday"}',
        b'{"device_id":"d1","sensor_data":{"\\u0000":1}}',
        b'{"device_id":"d1","sensor_data":' + b'{"a":' * 40 + b"1" + b"}" * 41,
    ],
)
def test_a_body_that_is_none_is_400_and_nothing_is_stored(bench, body, caplog):
    answer = bench.http.post("/sensor-data", content=body, headers={"content-type": "application/json"})
    assert error_of(answer) == (400, "validation_error")
    assert answer.json()["details"]
    assert bench.backend.readings == []
    assert "http=refused device d1: 400 validation_error" in caplog.text


@pytest.mark.parametrize("chunked", [False, True])
def test_a_megabyte_is_413_and_nothing_is_stored(bench, chunked):
    payload = json.dumps({**READING, "sensor_data": {f"t{number:06}": number for number in range(60_000)}}).encode()
    assert len(payload) > 1_000_000
    content = iter([payload[begin : begin + 50_000] for begin in range(0, len(payload), 50_000)])
    try:
        answer = bench.http.post(
            "/sensor-data",
            content=content if chunked else payload,
            headers={"content-type": "application/json"},
        )
    except (httpx.WriteError, httpx.ReadError):
        assert chunked  # it closed the connection on what is still being sent
    else:
        assert error_of(answer) == (413, "payload_too_large")
    assert bench.backend.readings == []
    assert bench.http.post("/sensor-data", json=READING).status_code == 201
    assert bench.front.status().counts["payload_too_large"] == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
def test_another_media_type_is_415(bench, headers):
    answer = bench.http.post("/sensor-data", content=json.dumps(READING), headers=headers)
    assert error_of(answer) == (415, "unsupported_media_type")


# --- when the gateway cannot --------------------------------------------------------------------------------------


def test_a_full_store_is_503_and_says_when_to_come_again(bench):
    bench.backend.fault = StoreFull("1000000 readings wait for the service", retry_after_s=12)
    answer = bench.http.post("/sensor-data", json=READING)
    assert error_of(answer) == (503, "gateway_full")
    assert answer.headers["retry-after"] == "12"


def test_a_store_that_refuses_is_503(bench):
    bench.backend.fault = StorageError("gateway.db: there is no room left for it: free space on its disk")
    for answer in (bench.http.post("/sensor-data", json=READING), bench.http.get("/devices/d1/commands")):
        assert error_of(answer) == (503, "storage_unavailable")
        assert answer.headers["retry-after"] == "30"


def test_a_store_that_does_not_answer_is_503_in_time(bench, monkeypatch):
    monkeypatch.setattr(http_app, "_STORE_S", 0.05)
    bench.backend.stuck = True
    assert error_of(bench.http.post("/sensor-data", json=READING)) == (503, "storage_unavailable")


def test_a_fault_of_ours_is_500_and_the_log_says_why(bench, monkeypatch, caplog):
    monkeypatch.setattr(bench.backend, "open_commands", lambda _device_id: 1 / 0)
    answer = bench.http.get("/devices/d1/commands", params={"status": "open"})
    assert error_of(answer) == (500, "internal_error")
    assert "ZeroDivisionError" in caplog.text


def test_a_device_that_runs_wild_is_429_and_another_one_is_not():
    bench = Bench(limits=Limits(requests_per_minute=5))
    answers = [bench.http.post("/sensor-data", json=READING) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [201] * 5 + [429]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
    with bench.client("t2") as other:
        assert other.get("/devices/d2/commands").status_code == 200
    bench.close()


# --- the agent's own adapters -------------------------------------------------------------------------------------


def test_the_agents_own_adapters_work_against_it(bench):
    with DeviceClient(bench.front.base_url, BearerToken(Secret("t1"))) as client:
        discovery = Discovery(client, FakeClock())
        source = HttpSource(client, "d1", discovery)
        assert source.poll(0.0).commands == ()
        source.acknowledge([])
        assert source.poll(0.0).unchanged
        bench.backend.send("d1", "c1", command="ping")
        poll = source.poll(5.0)
        assert [command.id for command in poll.commands] == ["c1"]
        assert poll.held
        uplink = HttpUplink(client, "d1", None, discovery)
        moment = Moment(1.0, 1_767_225_600.0, "boot")
        stored = [StoredReading(key, f"k{key}", Reading({"t": float(key)}, moment)) for key in range(3)]
        assert uplink.send(stored).delivered == (0, 1, 2)
        assert uplink.send(stored).delivered == (0, 1, 2)
        assert len(bench.backend.readings) == 3
        uplink.report(Report("c1", "succeeded", {"pong": True}))
        assert bench.backend.results[0][2].status == "succeeded"


def test_the_agents_client_sees_the_right_errors(bench):
    with DeviceClient(bench.front.base_url, BearerToken(Secret("nope"))) as client, pytest.raises(Unauthorized):
        client.device_commands("d1")
    with DeviceClient(bench.front.base_url, BearerToken(Secret("t2"))) as client, pytest.raises(NotFound):
        client.device_commands("d1")
