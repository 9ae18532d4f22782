"""Where the end of a command is read, at services of every kind."""

from __future__ import annotations

import httpx
import pytest

from agent.errors import ConfigurationError
from agent.wire import extensions
from agent.wire.auth import KeyPair
from agent.wire.dialect import CommandLists, Dialect, ResultPlace
from agent.wire.secret import Secret
from agent.wire.sending import SendingClient
from gateway.rollout.book import Row
from gateway.rollout.plan import DeviceState
from gateway.rollout.results import CommandEnd, ListedResults, TableResults, results_of

ROW = Row(0, 1, "d1", DeviceState.SENT, "c1")
GOOD = CommandEnd(DeviceState.SUCCEEDED)


def client(answer) -> SendingClient:
    transport = httpx.MockTransport(answer)
    return SendingClient("http://127.0.0.1:1", KeyPair("mk_1", Secret("msk_1")), transport=transport)


@pytest.mark.parametrize(
    ("record", "end"),
    [
        ({"status": "queued"}, None),
        ({"status": "in_progress"}, None),
        ({"status": "Succeeded"}, GOOD),
        ({"status": "failed", "status_reason": "no room"}, CommandEnd(DeviceState.FAILED, "no room")),
        ({"status": "failed", "result": {"error": "jammed"}}, CommandEnd(DeviceState.FAILED, "jammed")),
        ({"status": "rejected"}, CommandEnd(DeviceState.FAILED, "rejected")),
        ({"status": "expired"}, CommandEnd(DeviceState.SILENT, "expired")),
        ({"status": "timed_out"}, CommandEnd(DeviceState.SILENT, "timed_out")),
        ({"status": "canceled"}, CommandEnd(DeviceState.SILENT, "canceled")),
        ({"status": None}, None),
        ({"status": "done, I think"}, None),
    ],
)
def test_a_listed_command_ends_as_its_state_says(record, end):
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url)
        other = {"id": "c0", "command_payload": {}, "status": "succeeded"}
        return httpx.Response(200, json={"data": [other, {"id": "c1", "command_payload": {}, **record}]})

    with client(answer) as asking:
        assert ListedResults(asking).end_of(ROW) == end
    # Without a state it changes nothing at the service.
    assert [dict(url.params) for url in asked] == [{}]


@pytest.mark.parametrize("is_filtered", [True, False])
def test_a_table_is_read_whole_now_and_then_and_its_odd_rows_are_passed_over(is_filtered):
    now_s = [100.0]
    asked: list[httpx.URL] = []
    good = {"command_id": "c1", "status": "succeeded"}
    rows = [
        {"device_id": "d1", "data_payload": {"command_id": ["c1"], "status": {"a": 1}}},
        {"device_id": None, "data_payload": good},
        {"device_id": "d2", "data_payload": good},
        {"device_id": "d1", "table_name": "other", "data_payload": good},
        {"device_id": "d1", "data_payload": {"command_id": "c1", "status": "in_progress"}},
        {"device_id": "d1"},
    ]

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url)
        return httpx.Response(200, json=rows)

    with client(answer) as asking:
        results = TableResults(asking, "command_results", is_filtered=is_filtered, monotonic=lambda: now_s[0])
        assert results.end_of(ROW) is None
        rows.append({"device_id": "d1", "table_name": "command_results", "data_payload": good})
        assert results.end_of(ROW) is None
        assert len(asked) == 1
        now_s[0] += 10.0
        assert results.end_of(ROW) == GOOD
    wanted = {"table_name": "command_results"} if is_filtered else {}
    assert [dict(url.params) for url in asked] == [wanted] * 2


@pytest.mark.parametrize(
    ("offers", "dialect", "kind"),
    [
        (extensions.ALL, Dialect(), ListedResults),
        (extensions.NONE, Dialect(), TableResults),
        ({extensions.COMMAND_RESULTS}, Dialect(command_lists=CommandLists.EVERYTHING), ListedResults),
        (extensions.ALL, Dialect(results=ResultPlace.TABLE), TableResults),
    ],
)
def test_it_reads_where_this_service_keeps_results(offers, dialect, kind):
    with client(lambda _request: httpx.Response(500)) as asking:
        assert isinstance(results_of(asking, frozenset(offers), dialect), kind)


@pytest.mark.parametrize(
    ("offers", "dialect", "said"),
    [
        (extensions.ALL, Dialect(results=ResultPlace.NONE), "no wave can be judged"),
        ({extensions.COMMAND_RESULTS}, Dialect(), "may hand a command out"),
    ],
)
def test_without_results_there_is_no_rollout(offers, dialect, said):
    with client(lambda _request: httpx.Response(500)) as asking, pytest.raises(ConfigurationError, match=said):
        results_of(asking, frozenset(offers), dialect)
