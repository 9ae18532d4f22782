"""Which requests a match means."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.service.matching import (
    Difference,
    Matcher,
    PathTemplates,
    RequestFacts,
    RequestMatch,
    make_matcher,
    named_ids,
)

TEMPLATES = PathTemplates(
    {
        "/sensor-data": {"GET", "POST"},
        "/devices/{device_id}/commands": {"GET"},
        "/devices/{device_id}/commands/{command_id}/result": {"POST"},
        "/products/{product_id}": {"PUT", "DELETE"},
    }
)
REQUEST = RequestFacts(
    "POST",
    "/sensor-data",
    "/sensor-data",
    device_ids=("d1", "d2"),
    product_ids=("p1",),
    account=1,
    api_key="mk_a",
    headers={b"user-agent": b"device-agent/1.2", b"accept": b"*/*"},
)


def matcher_of(account: int | None = None, **members: Any) -> Matcher:
    matcher, issues = make_matcher(RequestMatch.model_validate(members), TEMPLATES, account)
    assert not issues
    return matcher


def test_a_match_without_members_means_every_request() -> None:
    assert matcher_of().matches(REQUEST)


@pytest.mark.parametrize(
    ("members", "fits"),
    [
        ({"method": "post"}, True),
        ({"method": "GET"}, False),
        ({"path": "/sensor-data"}, True),
        ({"path": "/devices/{device_id}/commands"}, False),
        ({"device_id": "d2"}, True),
        ({"device_id": "d3"}, False),
        ({"product_id": "p1"}, True),
        ({"product_id": "d1"}, False),
        ({"api_key": "mk_a"}, True),
        ({"api_key": "mk_b"}, False),
        ({"headers": {"User-Agent": "device-agent/*"}}, True),
        ({"headers": {"user-agent": "device-agent"}}, False),
        ({"headers": {"idempotency-key": None}}, True),
        ({"headers": {"user-agent": None}}, False),
        ({"headers": {"idempotency-key": "*"}}, False),
        ({"headers": {"user-agent": "*", "accept": "application/json"}}, False),
        ({"method": "POST", "path": "/sensor-data", "device_id": "d1", "headers": {"accept": "*"}}, True),
    ],
)
def test_each_member_has_to_fit(members: dict[str, Any], *, fits: bool) -> None:
    assert matcher_of(**members).matches(REQUEST) is fits


def test_the_account_is_the_row_that_was_looked_up() -> None:
    assert matcher_of(account=1, account_id="mk_other_key_of_it").matches(REQUEST)
    found = matcher_of(account=2, account_id="mk_b").differences(REQUEST)
    assert found == [Difference("account_id", "mk_b", "mk_a")]


def test_a_path_with_ids_means_these_ids_alone_however_they_are_encoded() -> None:
    matcher = matcher_of(path="/devices/a%2Fb/commands")
    for path, fits in (("/devices/a%2fb/commands", True), ("/devices/a/commands", False), ("/devices/x", False)):
        found = TEMPLATES.find(path)
        facts = RequestFacts("GET", path, found and found.template, {} if found is None else found.ids)
        assert matcher.matches(facts) is fits, path


def test_the_differences_say_what_was_wanted_and_what_was_found() -> None:
    matcher = matcher_of(method="GET", path="/sensor-data", device_id="d9", headers={"accept": "text/html", "x-a": "1"})
    assert matcher.differences(REQUEST) == [
        Difference("method", "GET", "POST"),
        Difference("device_id", "d9", "d1, d2"),
        Difference("headers.accept", "text/html", "*/*"),
        Difference("headers.x-a", "1", None),
    ]


@pytest.mark.parametrize(
    ("members", "field", "text"),
    [
        ({"path": "/sensordata"}, "path", "no path '/sensordata'; the nearest is '/sensor-data'"),
        ({"path": "/devices/{id}/commands"}, "path", "the nearest is '/devices/{device_id}/commands'"),
        ({"path": "/devices/0198c7d2-7c1e-7b3e/comands"}, "path", "the nearest is '/devices/{device_id}/commands'"),
        ({"path": "/nope"}, "path", "no path '/nope'; the nearest is '/"),
        ({"path": "/_emulator/reset"}, "path", "never matched"),
        ({"method": "BREW"}, "method", "no path of the service"),
        ({"method": "DELETE", "path": "/sensor-data"}, "method", "/sensor-data does not have"),
        ({"headers": {"a b": "c"}}, "headers.a b", "no name"),
        ({"headers": {"X-Secret-Key": "*"}}, "headers.X-Secret-Key", "api_key"),
    ],
)
def test_what_names_nothing_that_exists_is_named(members: dict[str, Any], field: str, text: str) -> None:
    _, [(named, issue)] = make_matcher(RequestMatch.model_validate(members), TEMPLATES)
    assert named == field
    assert text in issue


def test_a_path_that_answers_get_has_head_and_every_path_has_options() -> None:
    assert TEMPLATES.methods["/devices/{device_id}/commands"] == {"GET", "HEAD", "OPTIONS"}
    assert TEMPLATES.methods["/products/{product_id}"] == {"PUT", "DELETE", "OPTIONS"}


def test_ids_are_found_in_the_path_the_query_and_the_body() -> None:
    batch = json.dumps([{"device_id": "b1"}, {"device_id": 7}, "text", {"device_id": "b2"}, {"device_id": "b1"}])
    assert named_ids("device_id", {"device_id": "p"}, b"device_id=q%20r&x=1", batch.encode()) == (
        "p",
        "q r",
        "b1",
        "b2",
    )
    for body in (b"", b"{", b"7", b'"text"', b"[[]]", b"\xff", b'{"device_id": null}', b'{"device_id": "a\\u0000"}'):
        assert named_ids("device_id", {}, b"", body) == ()


_TEXT = st.text(string.ascii_lowercase[:3], max_size=8)


@given(_TEXT, st.lists(_TEXT, min_size=1, max_size=5))
def test_a_star_stands_for_any_text(between: str, parts: list[str]) -> None:
    def facts(value: str) -> RequestFacts:
        return RequestFacts("GET", "/", headers={b"h": value.encode()})

    matcher = matcher_of(headers={"h": "*".join(parts)})
    assert matcher.matches(facts(between.join(parts)))
    assert not matcher.matches(facts("".join(parts) + "z")) or (len(parts) > 1 and parts[-1] == "")


def test_many_stars_against_a_long_value_take_no_time_to_speak_of() -> None:
    value = b"a" * 60_000
    assert not matcher_of(headers={"h": "*a" * 400 + "*b"}).matches(RequestFacts("GET", "/", headers={b"h": value}))
