"""The short ways of a device against the long ones: whatever a short way says, the long one says, too."""

from __future__ import annotations

import json
from email.utils import formatdate

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.outbox import StoredItem, choose_next
from agent.core.values import Moment
from agent.errors import ServiceError
from agent.wire.json_text import encode_json
from agent.wire.models import PostSensorData
from agent.wire.server import RECORDED_AT
from agent.wire.times import to_rfc3339
from simulator.fleet.device.answers import KnownAnswers, judge, stamps_of
from simulator.fleet.device.disk import MemoryOutbox
from simulator.fleet.device.http_messages import (
    HttpMessages,
    Operation,
    PagedPoll,
    Reading,
    Request,
    read_refusals,
    values_text,
)
from simulator.fleet.engine.ports import HttpAnswer
from tests.unit.simulator.fleet.device.fleet_fakes import START_S

NAMES = st.sampled_from([b"date", b"Date", b"DATE", b"etag", b"ETag", b"content-type", b"x-it", b"link"])
VALUES = st.one_of(
    st.sampled_from([formatdate(START_S, usegmt=True).encode(), b'"v1"', b"application/json", b"text/html", b""]),
    st.binary(max_size=6),
)
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=5)
BODIES = st.one_of(
    st.sampled_from(
        [
            b"",
            b"{}",
            b"[]",
            b"<html>",
            b'{"data":[]}',
            b'{"data":[],"next_cursor":null,"has_more":false}',
            b'{"data":[{"id":"c1","command_payload":{"command":"ping"}}]}',
            b'{"data":["text"]}',
            b'{"accepted":2,"errors":[]}',
            b'{"accepted":1,"errors":[{"index":1,"error":"bad","message":"NaN"}]}',
            b'{"accepted":3,"errors":[]}',
        ]
    ),
    st.binary(max_size=12),
)
ANSWERS = st.builds(HttpAnswer, st.sampled_from([200, 201, 202, 204, 304, 400, 429, 503]), HEADERS, BODIES)
POLL = Request(Operation.POLL, "GET", "/devices/d/commands")
NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**63), 2**63 - 1), st.sampled_from([-0.0, 1e22])
)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)


@settings(max_examples=150)
@given(st.lists(ANSWERS, min_size=1, max_size=4))
def test_a_poll_on_the_fast_path_means_the_same_as_the_parsed_one(answers):
    known = KnownAnswers()
    for answer in [*answers, *answers]:
        is_known = answer.status == 304 or known.is_empty_list(answer)
        stamps = stamps_of(answer.headers) if is_known else None
        try:
            listing = PagedPoll(HttpMessages(frozenset()), "d", POLL).take(answer)
        except ServiceError:
            assert stamps is None
            continue
        assert listing is not None
        if stamps is not None:
            assert (answer.status == 304) == listing.poll.unchanged
            assert (listing.poll.commands, listing.poll.malformed) == ((), ())
            assert stamps == (listing.server_time, listing.etag)
        if not (listing.poll.unchanged or listing.poll.commands or listing.poll.malformed):
            known.learn_empty_list(answer.body)
            assert known.is_empty_list(answer) is (answer.status == 200)


@settings(max_examples=150)
@given(st.lists(ANSWERS, min_size=1, max_size=4), st.integers(1, 3))
def test_readings_taken_on_the_fast_path_are_taken_when_the_answer_is_parsed(answers, count):
    known = KnownAnswers()
    request = Request(Operation.READINGS, "POST", "/sensor-data", b"[]", keys=tuple(range(count)))
    for answer in [*answers, *answers]:
        try:
            good = judge(answer)
            refused = read_refusals(good, request)
        except ServiceError:
            assert not known.are_taken(answer, count) or stamps_of(answer.headers) is None
            continue
        if known.are_taken(answer, count):
            assert refused == {}
            stamps = stamps_of(answer.headers)
            assert stamps is None or stamps[0] == good.server_time
        if not refused:
            known.learn_taken(answer.body, count)
    assert known.are_taken(HttpAnswer(201, [], b'{"id":"r1"}'), 1)
    assert stamps_of([(b"Date", formatdate(START_S, usegmt=True).encode()), (b"ETag", b'"v7"')]) == (START_S, '"v7"')


@settings(max_examples=100)
@given(st.dictionaries(TEXT, NUMBERS, min_size=1, max_size=5), TEXT, st.integers(0, 4_000_000_000_000))
def test_a_body_of_readings_is_the_models_own_text(values, device_id, recorded_ms):
    messages = HttpMessages(frozenset({RECORDED_AT}))
    reading = Reading(1, values_text(values), recorded_ms)
    body = PostSensorData(device_id=device_id, sensor_data=values, recorded_at=to_rfc3339(recorded_ms / 1000))
    assert messages.readings(device_id, [reading], "name").body == encode_json(body.to_wire())
    assert json.loads(values_text(values)) == values


@given(st.lists(st.floats(0, 200), min_size=1, max_size=12), st.integers(1, 5), st.sampled_from(["one", "two"]))
def test_the_next_readings_are_those_that_the_core_chooses(ages_s, limit, boot_id):
    outbox = MemoryOutbox()
    now = Moment(1000.0, START_S, boot_id)
    moments = [Moment(1000.0 - age_s, START_S - age_s, "one") for age_s in sorted(ages_s, reverse=True)]
    for at in moments:
        outbox.put("{}", 0, at, at.monotonic_s)
    held = [StoredItem(key, 2, at) for key, at in enumerate(moments, 1)]
    expected = choose_next([held], reversed(held), now, limit)
    assert tuple(row.key for row in outbox.next_batch(limit, now)) == expected
