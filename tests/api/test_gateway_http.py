"""The HTTP front in front of a scripted service: it answers what the service has answered, each device for its own."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager

import httpx
import pytest

from agent.wire.limits import IDENTIFIER_CHARACTERS
from agent.wire.server import ALL_EXTENSIONS, COMMAND_RESULTS, COMMAND_STATUS, LONG_POLL, READING_KEYS
from gateway.codes import Codes, Terms
from gateway.config import HttpConfig
from gateway.http import AT_ONCE, ENROLL_BYTES, ENROLL_TRIES
from gateway.run import serving
from tests.support.scripted_service import ScriptedService, running_gateway

READING = {"device_id": "d1", "sensor_data": {"t": 21.5}}
OPEN = {"status": "open"}
DOOR = Terms(product_id="p1", user_id="me", url="http://gateway")


pytestmark = pytest.mark.anyio


@pytest.fixture
def service():
    return ScriptedService()


@pytest.fixture
def gateway(tmp_path, service):
    """``async with gateway() as (bench, http)``: http has the token of d1."""

    @asynccontextmanager
    async def run(**sections):
        async with running_gateway(tmp_path, service, **sections) as bench, bench.client(bench.token["d1"]) as http:
            yield bench, http

    return run


def error_of(answer):
    body = answer.json()
    assert set(body) <= {"error", "message", "details"}
    assert body["message"]
    return answer.status_code, body["error"]


# --- who is it --------------------------------------------------------------------------------------------------------


async def test_without_a_good_token_everything_is_401_and_nothing_of_the_body_is_read(gateway, service):
    async with gateway() as (bench, http):
        read = []

        async def endless():
            for _ in range(1000):
                read.append(1)
                yield b"x" * 65_536

        for path in ("/devices/d1/commands", "/sensor-data", "/no/such/path"):
            async with bench.client() as stranger:
                answer = await stranger.post(path, content=endless())
            assert error_of(answer) == (401, "missing_token")
            assert answer.headers["www-authenticate"] == 'Bearer realm="device-gateway"'
            assert answer.headers["connection"] == "close"
        async with bench.client("dat_" + "x" * 32) as stranger:
            answer = await stranger.post("/sensor-data", content=endless())
        assert error_of(answer) == (401, "invalid_token")
        assert len(read) == 0
        keys = {"x-api-key": "mk_1", "x-secret-key": "msk_1"}
        async with bench.client() as stranger:
            assert "no key pair" in (await stranger.get("/devices/d1/commands", headers=keys)).json()["message"]
        assert bench.app.counts["invalid_token"] == 1
        bench.tokens.revoke("d1")
        assert error_of(await http.post("/sensor-data", json=READING)) == (401, "invalid_token")
    assert not service.readings


async def test_each_token_opens_the_paths_of_its_own_device_only(gateway, service):
    """The matrix: each device's token on each device's paths; a foreign id and one that is none look alike."""
    for device in ("d1", "d2"):
        service.send(device, f"c-{device}")
    async with gateway() as (bench, _):
        for own in ("d1", "d2"):
            async with bench.client(bench.token[own]) as http:
                for device in ("d1", "d2", "d3"):
                    answers = [
                        await http.get(f"/devices/{device}/commands", params=OPEN),
                        await http.post(f"/devices/{device}/commands/c-{device}/result", json={"status": "failed"}),
                        await http.post("/sensor-data", json={**READING, "device_id": device}),
                    ]
                    if device == own:
                        assert [answer.status_code for answer in answers] == [200, 200, 201]
                    else:
                        assert [error_of(answer) for answer in answers] == [(404, "device_not_found")] * 3
        async with bench.client(bench.token["d2"]) as http:
            foreign, missing = [(await http.get(f"/devices/{each}/commands")).json() for each in ("d1", "d9")]
        assert json.dumps(foreign).replace("d1", "d9") == json.dumps(missing)
    assert [each["device_id"] for each in service.readings] == ["d1", "d2"]
    assert list(service.results) == [("d1", "c-d1"), ("d2", "c-d2")]


async def test_paths_methods_ids_and_query_are_as_the_protocol_has_them(gateway, service):
    service.send("a b:ü", "c/1")
    async with gateway() as (bench, http):
        for path in ("/", "/devices", "/products", "/devices/d1", "/database"):
            assert error_of(await http.get(path)) == (404, "not_found"), path
        answer = await http.get("/sensor-data")
        assert error_of(answer) == (405, "method_not_allowed")
        assert answer.headers["allow"] == "POST"
        answer = await http.get("/devices/d1/commands", headers={"x-request-id": "r-1"})
        assert answer.headers["x-request-id"] == "r-1"
        assert answer.headers["date"].endswith("GMT")
        async with bench.client(bench.issue("a b:ü")) as odd:
            assert (await odd.get("/devices/a%20b%3A%C3%BC/commands")).json()["data"][0]["id"] == "c/1"
            path = "/devices/a%20b%3A%C3%BC/commands/c%2F1/result"
            assert (await odd.post(path, json={"status": "succeeded"})).status_code == 200
        for params in ({"statsu": "open"}, {"status": "nice"}, {"status": "open", "wait": "31"}, {"wait": "soon"}):
            assert error_of(await http.get("/devices/d1/commands", params=params)) == (400, "validation_error")
    assert service.results["a b:ü", "c/1"] == [{"status": "succeeded"}]


async def test_what_is_offered_is_what_the_service_behind_it_keeps(gateway, service):
    own = {LONG_POLL, COMMAND_RESULTS, COMMAND_STATUS}
    async with gateway() as (bench, _), bench.client() as stranger:
        offered = (await stranger.get("/.well-known/device-service")).json()["extensions"]
        assert set(offered) == own | {"batch-sensor-data", "idempotency-key", "recorded-at"}
        assert set(offered) < ALL_EXTENSIONS
        bench.service.offered = frozenset()
        assert set((await stranger.get("/.well-known/device-service")).json()["extensions"]) == own
        bench.service.offered = None
        answer = await stranger.get("/.well-known/device-service")
        assert error_of(answer) == (503, "service_unavailable")
        assert int(answer.headers["retry-after"]) >= 1


# --- readings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_reading_keys", [True, False])
async def test_a_reading_is_answered_once_the_service_has_it_and_its_key_travels_on(gateway, service, has_reading_keys):
    service.delay_s = 0.05
    if not has_reading_keys:
        service.extensions = tuple(each for each in service.extensions if each != READING_KEYS)
    async with gateway() as (bench, http), bench.client(bench.token["d2"]) as other:
        body = {**READING, "recorded_at": "2026-01-01T00:00:00Z"}
        for _ in range(2):
            answer = await http.post("/sensor-data", json=body, headers={"idempotency-key": "k1"})
            assert answer.status_code == 201
            assert service.readings == [body]
        # Two devices may think of the same key.
        mine = {**READING, "device_id": "d2"}
        assert (await other.post("/sensor-data", json=mine, headers={"idempotency-key": "k1"})).status_code == 201
    assert len(service.readings) == 2
    assert len(service.reading_keys) == (2 if has_reading_keys else 0)
    assert ("idempotency-key" in service.headers["/sensor-data"]) is not has_reading_keys


async def test_a_repeat_after_the_gateway_was_killed_counts_once_too(tmp_path, service):
    items = [{**READING, "sensor_data": {"t": number}} for number in range(3)]
    for _ in range(2):  # the second one knows nothing of the first
        async with running_gateway(tmp_path, service) as bench, bench.client(bench.issue("d1")) as http:
            answer = await http.post("/sensor-data", json=items, headers={"idempotency-key": "outbox-7"})
            assert answer.json() == {"accepted": 3, "errors": []}
    assert len(service.readings) == 3


@pytest.mark.parametrize("keys", [[{}, {}], [{"idempotency-key": "k1"}, {"idempotency-key": "k2"}]])
async def test_readings_of_many_devices_share_a_request_and_each_is_answered_for_its_own(gateway, service, keys):
    async with gateway() as (bench, http), bench.client(bench.token["d2"]) as other:
        good, bad, others = await asyncio.gather(
            http.post("/sensor-data", json=READING, headers=keys[0]),
            http.post("/sensor-data", json={**READING, "sensor_data": {"bad": 1}}, headers=keys[1]),
            other.post("/sensor-data", json=[{"device_id": "d2", "sensor_data": {"t": n}} for n in range(3)]),
        )
        assert good.status_code == 201
        assert error_of(bad) == (400, "validation_error")
        assert others.json() == {"accepted": 3, "errors": []}
        assert service.count("POST", "/sensor-data") == 1


async def test_a_full_array_does_not_wait_for_company(gateway, monkeypatch):
    monkeypatch.setattr("gateway.readings.GATHER_S", 3_600)
    async with gateway() as (_, http):
        full = [{"device_id": "d1", "sensor_data": {"t": n}} for n in range(500)]
        assert (await http.post("/sensor-data", json=full)).json()["accepted"] == 500


async def test_one_bad_reading_of_an_array_hides_no_other_whoever_finds_it(gateway, service):
    items = [
        READING,
        {**READING, "sensor_data": {"t": True}},
        {**READING, "device_id": "d2"},
        {**READING, "sensor_data": {"bad": 1}},
        {**READING, "sensor_data": {"t": 5}},
    ]

    def whole(request: httpx.Request):
        body = json.loads(request.content)
        if isinstance(body, list) and any("bad" in each["sensor_data"] for each in body):
            return 400, {"error": "validation_error", "message": "something in it"}
        return None

    async with gateway() as (bench, http):
        for script in (lambda _request: None, whole):  # a service that says which, and one that refuses all of it
            service.readings.clear()
            service.script = script
            headers = {"idempotency-key": f"k{script is whole}"}
            for _ in range(2):
                answer = (await http.post("/sensor-data", json=items, headers=headers)).json()
                assert answer["accepted"] == 2
                assert [each["index"] for each in answer["errors"]] == [1, 2, 3]
            assert [each["sensor_data"]["t"] for each in service.readings] == [21.5, 5]
        # Counted are the readings, not the requests: each script refuses one of them, twice.
        assert bench.uplink.counts["readings_refused"] == bench.uplink.counts["readings_stored"] == 4


async def test_a_service_without_arrays_keys_or_times_gets_what_the_specification_has(tmp_path, service):
    service.extensions = None
    dialect = {"recorded_at_reading": "at_s"}
    async with running_gateway(tmp_path, service, dialect=dialect) as bench, bench.client(bench.token["d1"]) as http:
        items = [{**READING, "recorded_at": "1970-01-01T00:00:09Z"}, READING]
        answer = await http.post("/sensor-data", json=items, headers={"idempotency-key": "k"})
        assert answer.json()["accepted"] == 2
    assert service.readings == [{"device_id": "d1", "sensor_data": {"t": 21.5, "at_s": 9.0}}, READING]
    assert "idempotency-key" not in service.headers["/sensor-data"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b'"text"', 400),
        (b"[]", 400),
        (b"[" * 100_000, 400),
        (b'{"device_id":"d1","sensor_data":{"t":NaN}}', 400),
        (b'{"device_id":"d1","sensor_data":{}}', 400),
        (b'{"device_id":"d1","sensor_data":{"t":1},"extra":1}', 400),
        (json.dumps([READING] * 501).encode(), 400),
        (b'{"device_id":"d1","sensor_data":{"t":' + b"1" * 300_000 + b"}}", 413),
    ],
)
async def test_a_bad_body_is_one_clear_error_and_nothing_is_sent_on(gateway, service, body, status):
    async with gateway() as (_, http):
        answer = await http.post("/sensor-data", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == status
        error_of(answer)
        answer = await http.post("/sensor-data", content=b"{}", headers={"content-type": "text/plain"})
        assert error_of(answer) == (415, "unsupported_media_type")
    assert not service.readings


# --- the service is away, or its quota spent --------------------------------------------------------------------------


async def test_a_service_that_is_slow_for_one_request_is_not_away_for_the_others(gateway, service):
    """All requests would wait for the next trial, and a busy service would be asked less and less."""
    answers_again = asyncio.Event()

    async def slow(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            await answers_again.wait()
            raise httpx.ReadTimeout("slow", request=request)
        return await service(request)

    async with gateway() as (bench, http):
        bench.service._client._transport = httpx.MockTransport(slow)
        held = asyncio.ensure_future(http.post("/sensor-data", json=READING, headers={"idempotency-key": "1"}))
        await asyncio.sleep(0.7)  # it is under way
        assert (await http.get("/devices/d1/commands", params=OPEN)).status_code == 200
        answers_again.set()
        assert error_of(await held)[0] == 503
        assert not bench.service.is_away
        bench.service._client._transport = httpx.MockTransport(service)
        assert (await http.post("/sensor-data", json=READING, headers={"idempotency-key": "1"})).status_code == 201


async def test_while_the_service_is_away_devices_get_503_at_once_and_nothing_is_kept(gateway, service):
    def away(_request):
        raise httpx.ConnectError("refused")

    async with gateway() as (bench, http):
        service.send("d1", "c1")
        assert (await http.get("/devices/d1/commands", params=OPEN)).json()["data"]
        service.script = away
        before = len(service.requests)
        answers = [await http.post("/sensor-data", json=READING, headers={"idempotency-key": str(n)}) for n in range(9)]
        answers.append(await http.post("/devices/d1/commands/c1/result", json={"status": "succeeded"}))
        for answer in answers:
            assert error_of(answer) == (503, "service_unavailable")
            assert int(answer.headers["retry-after"]) >= 1
        assert len(service.requests) - before <= 2, "one request tries it, and no device waits for it"
        assert (await http.get("/devices/d1/commands", params=OPEN)).json()["data"], "what is known is still said"
        assert bench.uplink.waiting == 0
        service.script = lambda _request: None
        async with asyncio.timeout(30):
            while (await http.post("/sensor-data", json=READING)).status_code != 201:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
    assert service.readings == [READING]


class EndlessStream(httpx.AsyncByteStream):
    async def __aiter__(self):
        yield b": here\n\n"
        await asyncio.Event().wait()


async def test_keys_that_the_stream_of_commands_refuses_are_a_warning(gateway, service, caplog):
    service.extensions = tuple(ALL_EXTENSIONS)
    service.script = lambda request: (401, {"error": "no"}) if request.url.path == "/commands/events" else None
    async with gateway(), asyncio.timeout(60):
        while "check the key files" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    [line] = [each for each in caplog.records if "check the key files" in each.message]
    assert line.levelname == "WARNING"


async def test_a_stream_of_commands_shows_that_the_service_answers_again_and_takes_nothing_of_the_quota(
    gateway, service
):
    def away(_request):
        raise httpx.ConnectError("refused")

    def streams(request):
        if request.url.path != "/commands/events":
            return away(request)
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=EndlessStream())

    def announces(_request):
        return httpx.Response(201, json={}, headers={"RateLimit": '"default";r=50;t=40'})

    service.extensions = tuple(ALL_EXTENSIONS)
    async with gateway() as (bench, http):
        service.script = away
        assert error_of(await http.post("/sensor-data", json=READING))[0] == 503
        service.script = streams
        async with asyncio.timeout(60):
            while bench.service.is_away:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        service.script = announces
        assert (await http.post("/sensor-data", json=READING)).status_code == 201
        assert bench.quota.left == 50


async def test_requests_that_fail_together_are_one_failure_in_one_line_and_the_service_is_soon_tried_again(
    gateway, service, caplog
):
    def away(_request):
        raise httpx.ConnectError("refused")

    async with gateway() as (bench, http), bench.client(bench.token["d2"]) as other:
        service.script, service.delay_s = away, 0.1
        posts = [
            each.post("/sensor-data", json={**READING, "device_id": name}, headers={"idempotency-key": str(number)})
            for each, name in ((http, "d1"), (other, "d2"))
            for number in range(AT_ONCE)
        ]
        for answer in await asyncio.gather(*posts):
            assert error_of(answer) == (503, "service_unavailable")
            assert int(answer.headers["retry-after"]) <= 2
    assert caplog.text.count("http=refused") == 1, "the service is away for both devices alike"


@pytest.mark.parametrize("status", [401, 403, 404, 502, 503])
async def test_a_service_that_refuses_the_gateways_keys_fails_or_is_another_one_is_503(gateway, service, status):
    text = "no such path" if status == 404 else "msk_1 is wrong"
    async with gateway() as (_, http):
        service.script = lambda _request: (status, {"error": "x", "message": text})
        for body in (READING, [READING]):
            answer = await http.post("/sensor-data", json=body, headers={"idempotency-key": "1"})
            assert error_of(answer) == (503, "service_unavailable")
            assert "msk_1" not in answer.text
        answer = await http.post("/devices/d1/commands/c1/result", json={"status": "succeeded"})
        assert error_of(answer)[0] == 503


async def test_a_spent_quota_is_an_honest_429_and_commands_go_before_results_before_readings(gateway, service):
    left = [25]  # of a hundred

    def counted(request: httpx.Request):
        left[0] -= 1
        if left[0] < 0:
            return 429, {"error": "rate_limit_exceeded", "message": "spent"}
        answer = service._once(request)
        headers = {"RateLimit-Policy": '"default";q=100;w=60', "RateLimit": f'"default";r={left[0]};t=40'}
        return httpx.Response(answer[0], json=answer[1], headers=headers)

    async with gateway() as (bench, http):
        service.script = counted
        service.send("d1", "c1")
        number = 0
        while (answer := await http.post("/sensor-data", json=READING, headers={"idempotency-key": str(number)})) and (
            answer.status_code == 201
        ):
            number += 1
        assert error_of(answer) == (429, "rate_limit_exceeded")
        assert 1 <= int(answer.headers["retry-after"]) <= 41
        assert left[0] == 20, "a fifth of the window is kept for what is more urgent"
        assert (await http.post("/devices/d1/commands/c1/result", json={"status": "in_progress"})).status_code == 200
        assert (await http.get("/devices/d1/commands", params=OPEN)).status_code == 200
        assert bench.quota.refused == 0, "it is kept to and not run into"


async def test_a_429_of_a_service_that_announces_no_quota_is_passed_on_with_its_wait(gateway, service):
    async with gateway() as (bench, http):
        refused = httpx.Response(429, json={"error": "rate_limited"}, headers={"Retry-After": "7"})
        service.script = lambda _request: refused
        for _ in range(3):
            answer = await http.post("/sensor-data", json=READING, headers={"idempotency-key": "1"})
            assert (answer.status_code, answer.headers["retry-after"] in {"6", "7"}) == (429, True)
        assert bench.quota.refused == 1, "nothing is asked before the time that it gave"


async def test_one_device_that_floods_is_held_back_and_others_are_not(gateway, service):
    async with gateway(http={"requests_per_minute": 20}) as (bench, http), bench.client(bench.token["d2"]) as other:
        bench.app.device_limit.monotonic = lambda: 0.0
        answers = [await http.get("/devices/d1/commands") for _ in range(30)]
        refused = [error_of(answer) for answer in answers if answer.status_code != 200]
        assert refused == [(429, "too_many_requests")] * 10, "and not as when the quota at the service is used up"
        assert (await other.get("/devices/d2/commands")).status_code == 200
        service.delay_s = 0.3
        answers = await asyncio.gather(*(other.get("/devices/d2/commands") for _ in range(AT_ONCE + 2)))
        assert [answer.status_code for answer in answers].count(429) == 2


async def test_one_device_that_sends_very_many_readings_goes_in_turns_with_others(gateway, service):
    """Its two thousand readings wait in four arrays; the one of another device goes with the first of them."""
    many = [{"device_id": "d1", "sensor_data": {"t": number}} for number in range(500)]
    async with gateway() as (bench, http), bench.client(bench.token["d2"]) as other:
        service.delay_s = 0.2
        flood = [asyncio.ensure_future(http.post("/sensor-data", json=many)) for _ in range(4)]
        await asyncio.sleep(0)
        mine = await other.post("/sensor-data", json={"device_id": "d2", "sensor_data": {"t": 1}})
        assert mine.status_code == 201
        assert {answer.json()["accepted"] for answer in await asyncio.gather(*flood)} == {500}
    places = [number for number, each in enumerate(service.readings) if each["device_id"] == "d2"]
    assert len(service.readings) == 2001
    assert places[0] < 1001


# --- commands ---------------------------------------------------------------------------------------------------------


async def test_the_poll_lists_what_is_open_and_a_known_list_is_304(gateway, service):
    async with gateway() as (_, http):
        service.send("d1", "c2", created_at="2026-01-02T00:00:00Z")
        service.send("d1", "c1", created_at="2026-01-01T00:00:00Z")
        service.send("d1", "over", status="succeeded")
        answer = await http.get("/devices/d1/commands", params=OPEN)
        assert [record["id"] for record in answer.json()["data"]] == ["c1", "c2"]
        tag = answer.headers["etag"]
        for known in (tag, f"W/{tag}", f'"x", {tag}'):
            answer = await http.get("/devices/d1/commands", params=OPEN, headers={"if-none-match": known})
            assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
        listed = (await http.get("/devices/d1/commands")).json()["data"]
        assert {each["id"] for each in listed} == {"c1", "c2", "over"}
        only = (await http.get("/devices/d1/commands", params={"status": "succeeded"})).json()["data"]
        assert [each["id"] for each in only] == ["over"]


@pytest.mark.parametrize("more", [{"total": 2}, {"has_more": True}])
async def test_a_list_that_is_not_whole_ends_no_command(gateway, service, more):
    async with gateway() as (bench, _):
        service.send("d1", "c1")
        service.send("d1", "c2")
        assert [record["id"] for record in await bench.commands.open("d1")] == ["c1", "c2"]
        [_, second] = service.commands["d1"]
        service.script = lambda _request: (200, {"data": [second], **more})
        bench.commands._devices["d1"].has_news = True
        assert [record["id"] for record in await bench.commands.open("d1")] == ["c1", "c2"]
        service.script = lambda _request: (200, {"data": [second]})
        bench.commands._devices["d1"].has_news = True
        assert [record["id"] for record in await bench.commands.open("d1")] == ["c2"]


async def test_a_held_poll_answers_when_a_command_comes_and_ends_when_its_token_does(gateway, service):
    async with gateway(commands={"poll_s": 0.1}) as (bench, http), bench.client(bench.token["d2"]) as other:
        tags = [
            (await each.get(f"/devices/{name}/commands", params=OPEN)).headers["etag"]
            for each, name in ((http, "d1"), (other, "d2"))
        ]

        def poll(client, name, tag, wait="30"):
            params, headers = {**OPEN, "wait": wait}, {"if-none-match": tag}
            return asyncio.ensure_future(client.get(f"/devices/{name}/commands", params=params, headers=headers))

        assert (await poll(http, "d1", tags[0], "0.05")).status_code == 304
        first, second = poll(http, "d1", tags[0]), poll(other, "d2", tags[1])
        await asyncio.sleep(0.2)
        service.send("d1", "c1")
        async with asyncio.timeout(20):
            assert [record["id"] for record in (await first).json()["data"]] == ["c1"]
        assert not second.done()
        script = "import sqlite3; c = sqlite3.connect({!r}); c.execute('UPDATE token SET revoked_at = 1'); c.commit()"
        process = await asyncio.create_subprocess_exec(
            __import__("sys").executable, "-c", script.format(str(bench.folder / "tokens.db"))
        )
        assert await process.wait() == 0
        async with asyncio.timeout(20):
            assert error_of(await second) == (401, "invalid_token")
        assert bench.commands.figures()["held_polls"] == 0


async def test_nothing_expired_goes_out_also_after_standing_still(gateway, service):
    async with gateway() as (_, http):
        service.send("d1", "soon", expires_at=int((time.time() + 0.3) * 1000))
        service.send("d1", "over", expires_at="2020-01-01T00:00:00Z")
        service.send("d1", "odd", expires_at="next week")
        first = await http.get("/devices/d1/commands", params=OPEN)
        assert [each["id"] for each in first.json()["data"]] == ["soon", "odd"]
        assert first.json()["data"][1]["expires_at"] == "unreadable", "so that a device refuses it"
        time.sleep(0.4)  # noqa: ASYNC251 - the whole process stands still
        service.script = lambda _request: (500, {})
        answer = await http.get("/devices/d1/commands", params=OPEN)
        assert [each["id"] for each in answer.json()["data"]] == ["odd"]
        assert answer.headers["etag"] != first.headers["etag"]


async def test_the_service_is_asked_about_devices_that_are_there_and_no_others(gateway, service):
    async with gateway(commands={"poll_s": 0.05}) as (_, http):
        await asyncio.sleep(0.3)
        assert service.count("GET", "/devices/d1/commands") == 0
        await http.get("/devices/d1/commands", params=OPEN)
        await asyncio.sleep(0.5)
        assert service.count("GET", "/devices/d1/commands") >= 2
        assert service.count("GET", "/devices/d2/commands") == 0


async def test_a_pushed_command_is_delivered_at_the_service_before_its_device_has_it(gateway, service):
    """Else the service would call it expired; and a stream may replay what was canceled meanwhile."""
    from httpx_sse import ServerSentEvent

    path = "/devices/d1/commands"

    def push(bench, number):
        record = {"id": f"c{number}", "device_id": "d1", "command_payload": {}, "status": "queued"}
        bench.commands._pushed(ServerSentEvent(event="command", data=json.dumps(record), id=str(number)))

    async with gateway(commands={"poll_s": 60.0}) as (bench, http):
        begun = time.process_time()
        for number in range(3_000):
            push(bench, number)
        assert time.process_time() - begun < 3.0
        assert (bench.commands.known("d1"), service.count("GET", path)) == ((), 0), "it is not there"
        service.send("d1", "c0", status="canceled")
        for number in range(1, 1_101):
            service.send("d1", f"c{number}")
        assert len((await http.get(path, params=OPEN)).json()["data"]) == 1_000, "the newest count"
        service.send("d1", "new")
        push(bench, 9_999)
        while "new" not in [each["id"] for each in bench.commands.known("d1")]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert service.count("GET", path) == 2


async def test_a_result_is_answered_once_the_service_has_it_and_its_command_is_open_no_more(gateway, service):
    async with gateway() as (_, http):
        service.send("d1", "c1")
        assert (await http.get("/devices/d1/commands", params=OPEN)).json()["data"]
        path = "/devices/d1/commands/c1/result"
        answer = await http.post(path, json={"status": "succeeded", "result": {"x": 1}})
        assert (answer.status_code, answer.json()["status"]) == (200, "succeeded")
        assert (await http.get("/devices/d1/commands", params=OPEN)).json()["data"] == []
        assert (await http.post(path, json={"status": "succeeded", "result": {"x": 1}})).status_code == 200
        assert len(service.results["d1", "c1"]) == 1
        answer = await http.post("/devices/d1/commands/none/result", json={"status": "failed"})
        assert error_of(answer) == (404, "command_not_found")
        assert error_of(await http.post(path, json={"status": "nice"}))[0] == 400


async def test_on_a_plain_server_a_result_goes_into_its_products_table(gateway, service):
    service.extensions = None
    async with gateway() as (_, http):
        path = "/devices/d1/commands/c1/result"
        assert (await http.post(path, json={"status": "in_progress"})).status_code == 200
        assert (await http.post(path, json={"status": "failed", "error": "stuck: bolt"})).status_code == 200
    [record] = service.records
    assert (record["product_id"], record["table_name"]) == ("p1", "command_results")
    assert record["data_payload"]["status"] == "failed"


async def test_a_result_waits_until_the_product_of_its_new_device_can_be_looked_up(gateway, service):
    service.extensions = None
    async with gateway() as (bench, http):
        assert (await http.post("/devices/d1/commands/c1/result", json={"status": "failed"})).status_code == 200
        service.devices.add("d9")  # after all products were looked up
        async with bench.client(bench.issue("d9")) as new:
            answer = await new.post("/devices/d9/commands/c2/result", json={"status": "failed"})
        assert error_of(answer)[0] == 503, "not refused for good"
        assert 1 <= int(answer.headers["retry-after"]) <= 60


async def test_a_look_at_the_products_that_failed_is_made_again_for_the_next_result(gateway, service):
    service.extensions = None
    service.script = lambda request: (503, {"error": "busy"}) if request.url.path == "/devices" else None
    async with gateway() as (_, http):
        path = "/devices/d1/commands/c1/result"
        assert error_of(await http.post(path, json={"status": "failed"})) == (503, "service_unavailable")
        service.script = lambda _request: None
        async with asyncio.timeout(60):
            while (answer := await http.post(path, json={"status": "failed"})).status_code == 503:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert answer.status_code == 200
    assert len(service.records) == 1


async def test_a_state_that_went_back_and_two_agents_of_one_device_are_told(gateway, caplog):
    async with gateway() as (_, http):

        async def poll(instance: str) -> str | None:
            answer = await http.get("/devices/d1/commands", headers={"Agent-Instance": instance})
            return answer.headers.get("agent-conflict")

        first, next_start, copied = "7-aaaaaaaa", "8-bbbbbbbb", "8-cccccccc"
        assert [await poll(each) for each in (first, first, next_start)] == [None, None, None]
        assert [await poll(each) for each in (copied, copied)] == ["older-state"] * 2
        assert [await poll(each) for each in (next_start, copied)] == ["two-agents"] * 2
    assert caplog.text.count("device=d1 identity=two-agents") == 1


# --- enrolling --------------------------------------------------------------------------------------------------------


def make_code(bench, terms=DOOR, count=1, expires_s=3600.0):
    return Codes(bench.tokens).make(terms, expires_s, count, None)[0].secret


async def enroll(http, secret, identifier="SN-1", **headers):
    body = {"secret": secret, "device_identifier": identifier}
    return await http.post("/enroll", json=body, headers=headers)


async def test_a_device_with_a_code_is_registered_and_gets_a_token_that_works(gateway, service):
    async with gateway() as (bench, _), bench.client() as http:
        secret = make_code(bench)
        given = (await enroll(http, secret)).json()
        assert set(given) == {"device_id", "token", "product_id", "url", "broker", "plain", "authority"}
        assert given["device_id"] == service.registered["SN-1"]
        again = (await enroll(http, secret)).json()
        assert again["device_id"] == given["device_id"], "its answer may have been lost"
        assert error_of(await enroll(http, secret, "SN-2")) == (403, "enrollment_refused")
        async with bench.client(again["token"]) as device:
            assert (await device.get(f"/devices/{given['device_id']}/commands")).status_code == 200
        other = make_code(bench)
        assert error_of(await enroll(http, other)) == (409, "device_has_token"), "its token stays"
        assert (await enroll(http, other, "SN-3")).status_code == 201, "and the code is as good as before"
        too_long = await enroll(http, other, "x" * (IDENTIFIER_CHARACTERS + 1))
        assert error_of(too_long) == (400, "validation_error")
        for state in (make_code(bench, expires_s=-1.0), "0" * 12):
            assert error_of(await enroll(http, state))[0] == 403
        assert secret.encode() not in (bench.folder / "tokens.db").read_bytes()


async def test_a_spent_quota_at_the_service_is_told_at_once_and_holds_up_nobody(gateway, service):
    async with gateway() as (bench, _), bench.client() as http:
        secret = make_code(bench)
        refused = httpx.Response(429, json={"error": "rate_limited"}, headers={"Retry-After": "60"})
        service.script = lambda _request: refused
        begun = time.monotonic()
        for _ in range(4):
            answer = await enroll(http, secret)
            assert error_of(answer)[0] == 429
            assert 50 <= int(answer.headers["retry-after"]) <= 60
            assert "as good as before" in answer.json()["message"]
        assert time.monotonic() - begun < 5


async def test_a_code_for_one_device_enrolls_one_also_when_it_asks_twice_at_the_same_time(gateway, service):
    """The first request fails, and the second one, which has waited for it, does not."""
    fails = [True]

    def script(request: httpx.Request):
        if request.url.path == "/onboarding/device" and fails.pop(0) if fails else False:
            return 500, {"error": "server_error", "message": "not now"}
        return None

    async with gateway() as (bench, _), bench.client() as http:
        secret = make_code(bench)
        service.script, service.delay_s = script, 0.1
        first, second = await asyncio.gather(enroll(http, secret), enroll(http, secret))
        assert sorted([first.status_code, second.status_code]) == [201, 503]
        assert error_of(await enroll(http, secret, "SN-2")) == (403, "enrollment_refused")


async def test_two_devices_that_come_at_once_with_a_code_for_one_are_not_both_registered(gateway, service):
    async with gateway() as (bench, _), bench.client() as http:
        secret, service.delay_s = make_code(bench), 0.1
        answers = await asyncio.gather(enroll(http, secret, "SN-1"), enroll(http, secret, "SN-2"))
        assert sorted(answer.status_code for answer in answers) == [201, 403]
        assert len(service.registered) == 1


async def test_strangers_with_wrong_codes_keep_nobody_out_who_has_one_behind_the_same_proxy(gateway):
    async with gateway() as (bench, _), bench.client() as http:
        bench.app.enroll_limit.monotonic = lambda: 0.0  # however slow this machine is
        statuses = [(await enroll(http, "0" * 12, f"SN-{n}")).status_code for n in range(ENROLL_TRIES + 3)]
        assert statuses == [403] * ENROLL_TRIES + [429] * 3
        secret = make_code(bench, count=40)
        good = [(await enroll(http, secret, f"SN-{n}")).status_code for n in range(ENROLL_TRIES)]
        assert good == [201] * ENROLL_TRIES


@pytest.mark.parametrize(("trusted", "refused"), [(("127.0.0.1",), 0), ((), 3)])
async def test_behind_a_proxy_tries_are_counted_by_the_address_that_it_forwards(gateway, trusted, refused):
    async with gateway() as (bench, _):
        bench.app.enroll_limit.monotonic = lambda: 0.0
        config = HttpConfig(port=0, trusted_proxies=trusted)
        async with serving(bench.app, config) as server, httpx.AsyncClient(base_url=server) as http:
            answers = [
                await enroll(http, "0" * 12, **{"x-forwarded-for": f"192.0.2.{number}"})
                for number in range(ENROLL_TRIES + 3)
            ]
        assert [answer.status_code for answer in answers].count(429) == refused


async def test_slow_and_large_bodies_of_strangers_take_nobodys_place(gateway, monkeypatch):
    monkeypatch.setattr("gateway.http.ENROLL_S", 0.5)
    async with gateway() as (bench, _), bench.client() as http:
        secret = make_code(bench)

        async def trickle():
            while True:
                yield b" "
                await asyncio.sleep(0.05)

        headers = {"content-type": "application/json"}
        slow = [asyncio.ensure_future(http.post("/enroll", content=trickle(), headers=headers)) for _ in range(20)]
        await asyncio.sleep(0.1)
        assert (await enroll(http, secret)).status_code == 201
        large = await http.post("/enroll", content=b"x" * (ENROLL_BYTES + 1), headers=headers)
        assert error_of(large) == (413, "payload_too_large")
        for answer in await asyncio.gather(*slow):
            assert error_of(answer) == (408, "request_timeout")
