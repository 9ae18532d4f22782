"""The short ways of a device against the long ones: whatever a short way says, the long one says, too."""

from __future__ import annotations

import json
from email.utils import formatdate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.outbox import StoredItem, choose_next
from agent.core.values import Moment
from agent.errors import ServiceError
from agent.wire.encoding import encode_json, to_rfc3339
from agent.wire.models import PostSensorData
from agent.wire.server import RECORDED_AT
from simulator.fleet.device.answers import judge
from simulator.fleet.device.disk import MemoryOutbox
from simulator.fleet.device.http_messages import (
    HttpMessages,
    PagedPoll,
    Reading,
    read_refusals,
    read_settled,
    values_text,
)
from simulator.fleet.engine.http_answers import HttpAnswer
from tests.unit.simulator.fleet.device.fleet_fakes import START_S

NAMES = st.sampled_from([b"date", b"Date", b"DATE", b"etag", b"ETag", b"content-type", b"retry-after", b"link"])
VALUES = st.one_of(
    st.sampled_from([formatdate(START_S, usegmt=True).encode(), b'"v1"', b"application/json", b"text/html", b"7", b""]),
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
NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**63), 2**63 - 1), st.sampled_from([-0.0, 1e22])
)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)


@settings(max_examples=150)
@given(st.lists(ANSWERS, min_size=1, max_size=4))
def test_a_short_answer_to_a_poll_means_the_same_as_one_that_is_read_anew(answers):
    messages = HttpMessages(frozenset())
    for answer in [*answers, *answers]:
        try:
            listing = PagedPoll(messages, "d").take(answer)
        except ServiceError:
            listing = None
        is_empty = listing is not None and not (listing.poll.commands or listing.poll.malformed)
        assert messages.empty_listing(answer) == (listing if is_empty else None)


@settings(max_examples=150)
@given(st.lists(ANSWERS, min_size=1, max_size=4), st.integers(1, 3))
def test_a_short_answer_to_readings_means_the_same_as_one_that_is_read_anew(answers, count):
    for answer in [*answers, *answers]:
        expected, error = None, None
        try:
            good = judge(answer)
            expected = read_refusals(good, count), good.server_time
        except ServiceError as raised:
            error = raised
        if error is None:
            assert read_settled(answer, range(count)) == expected
            continue
        with pytest.raises(type(error)) as caught:
            read_settled(answer, range(count))
        assert vars(caught.value) == vars(error), "the same words, and the same Retry-After"


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
