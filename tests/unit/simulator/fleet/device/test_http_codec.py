from __future__ import annotations

import gzip
import json
from dataclasses import dataclass

import pytest

from agent.core.values import Report
from agent.errors import NotFound, RateLimited, ServerFault, Unauthorized, UnexpectedAnswer
from agent.wire import extensions
from agent.wire.dialect import Dialect, ResultPlace
from simulator.fleet.device.answers import judge
from simulator.fleet.device.http_codec import HttpCodec, Listing, Operation, PagedPoll, Request, read_refusals
from simulator.fleet.engine.ports import HttpAnswer
from tests.unit.simulator.fleet.device.answering import answer_of


@dataclass
class Timed:
    key: int
    text: str
    recorded_ms: int | None


ALL = HttpCodec("d/1", "p1", extensions.ALL)
PLAIN = HttpCodec("d/1", "p1", extensions.NONE)
READING = Timed(7, '{"t":21.5}', 1_767_225_600_123)


def listing_of(answer: HttpAnswer, request: Request) -> Listing:
    found = PagedPoll(HttpCodec("d/1", "", frozenset()), request).take(answer)
    assert found is not None
    return found


def listing(*items: object, status: int = 200, **headers: str) -> HttpAnswer:
    return answer_of(status, headers, json.dumps({"data": items}).encode())


def test_a_poll_asks_for_open_commands_and_is_held_only_where_the_service_can():
    held = ALL.poll(20.0, '"v1"')
    assert held.target == "/devices/d%2F1/commands?status=open&wait=20"
    assert held.headers == {"if-none-match": '"v1"'}
    assert held.wait_s == 20.0
    plain = PLAIN.poll(20.0, None)
    assert plain.target == "/devices/d%2F1/commands"
    assert (plain.wait_s, plain.headers) == (0.0, {})


def test_readings_go_as_an_array_only_where_the_service_takes_arrays():
    other = Timed(8, '{"t":22}', 1_767_225_601_123)
    batch = ALL.readings([READING, other], "key")
    assert [item["recorded_at"] for item in json.loads(batch.body)] == [
        "2026-01-01T00:00:00.123Z",
        "2026-01-01T00:00:01.123Z",
    ]
    assert batch.keys == (7, 8)
    assert batch.headers["idempotency-key"] == ALL.readings([READING, other], "key").headers["idempotency-key"]
    assert batch.headers["idempotency-key"] != ALL.readings([READING], "key").headers["idempotency-key"] == "key-7"
    single = PLAIN.readings([READING, other], "key")
    assert json.loads(single.body) == {"device_id": "d/1", "sensor_data": {"t": 21.5}}
    assert (single.keys, single.headers) == ((7,), {})


def test_the_time_of_a_reading_goes_among_its_values_where_the_scenario_names_a_place_for_it():
    codec = HttpCodec("d1", "p1", extensions.NONE, Dialect(recorded_at_reading="taken_at"))
    body = json.loads(codec.readings([READING], "key").body)
    assert body == {"device_id": "d1", "sensor_data": {"t": 21.5, "taken_at": 1_767_225_600.123}}
    assert codec.sends_time
    assert not PLAIN.sends_time


def test_results_go_where_the_scenario_says():
    table = HttpCodec("d1", "p1", extensions.ALL, Dialect(results=ResultPlace.TABLE, results_table="outcomes"))
    assert json.loads(table.report(Report("c1", "succeeded")).body)["table_name"] == "outcomes"
    nowhere = HttpCodec("d1", "p1", extensions.ALL, Dialect(results=ResultPlace.NONE))
    assert nowhere.report(Report("c1", "succeeded")) is None


def test_progress_has_no_place_on_a_plain_server():
    assert PLAIN.report(Report("c1", "in_progress")) is None
    assert json.loads(ALL.report(Report("c1", "in_progress")).body) == {"status": "in_progress"}
    assert ALL.report(Report("c1", "succeeded", {"a": 1})).target == "/devices/d%2F1/commands/c1/result"


def test_one_bad_command_never_hides_the_others():
    good = {"id": "c1", "command_payload": {"command": "ping"}, "created_at": "2026-01-01T00:00:01Z"}
    older = {**good, "id": "c0", "created_at": "2026-01-01T00:00:00Z"}
    foreign = {**good, "id": "c2", "device_id": "d2"}
    nameless = {"command_payload": 7}
    answer = listing(good, older, foreign, nameless, "text", etag='"v2"')
    found = listing_of(answer, ALL.poll(0, None))
    assert [command.id for command in found.poll.commands] == ["c0", "c1"]
    assert len(found.poll.malformed) == 3
    assert found.etag == '"v2"'


def test_304_is_unchanged():
    found = listing_of(answer_of(304, {"etag": '"v1"'}, b""), ALL.poll(20, '"v1"'))
    assert found.poll.unchanged
    assert found.poll.held


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (answer_of(401, {}, b'{"error":"x"}'), Unauthorized),
        (answer_of(404, {}, b'{"error":"x"}'), NotFound),
        (answer_of(429, {"retry-after": "7"}, b"{}"), RateLimited),
        (answer_of(503, {}, b"down"), ServerFault),
        (answer_of(302, {"location": "https://portal"}, b""), UnexpectedAnswer),
        (answer_of(200, {"content-type": "text/html"}, b"<html>sign in</html>"), UnexpectedAnswer),
    ],
)
def test_answers_that_are_no_good_are_the_agents_own_errors(answer, error):
    with pytest.raises(error):
        judge(answer)


def test_truncated_json_is_no_list():
    with pytest.raises(UnexpectedAnswer):
        listing_of(answer_of(200, {}, b'{"data":[{"id"'), ALL.poll(0, None))


def test_a_batch_names_what_it_refused():
    request = Request(Operation.READINGS, "POST", "/sensor-data", b"[]", keys=(4, 5))
    told = judge(answer_of(200, {}, b'{"accepted":1,"errors":[{"index":1,"error":"bad","message":"NaN"}]}'))
    assert read_refusals(told, request) == {5: "bad: NaN"}
    with pytest.raises(UnexpectedAnswer, match="took 1 of 2"):
        read_refusals(judge(answer_of(200, {}, b'{"accepted":1,"errors":[]}')), request)


def test_an_answer_that_is_compressed_though_nobody_asked_is_read():
    good = judge(answer_of(200, {"content-encoding": "gzip"}, gzip.compress(b'{"data":[]}')))
    assert good.json() == {"data": []}
    with pytest.raises(NotFound):
        judge(answer_of(404, {"content-encoding": "gzip"}, gzip.compress(b'{"error":"gone"}')))
    for broken in (b"[]", gzip.compress(b"[]")[:-9]):
        with pytest.raises(UnexpectedAnswer, match=r"gzip|compressed"):
            judge(answer_of(200, {"content-encoding": "gzip"}, broken))
