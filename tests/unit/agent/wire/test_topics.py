"""Topics: built and taken apart without a way out of one's own level."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import InvalidMessage
from agent.wire import topics
from agent.wire.topics import Topic, TopicKind

IDS = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="+#/"), min_size=1, max_size=40)
COMMAND_IDS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=40)


@given(device_id=IDS, command_id=COMMAND_IDS)
def test_what_was_built_is_taken_apart_to_the_same(device_id, command_id):
    assert topics.parse(topics.command(device_id, command_id)) == Topic(device_id, TopicKind.COMMAND, command_id)
    assert topics.parse(topics.result(device_id, command_id)) == Topic(device_id, TopicKind.RESULT, command_id)
    for build, kind in (
        (topics.sensor_data, TopicKind.SENSOR_DATA),
        (topics.status, TopicKind.STATUS),
        (topics.receipts, TopicKind.RECEIPTS),
        (topics.notice, TopicKind.NOTICE),
    ):
        assert topics.parse(build(device_id)) == Topic(device_id, kind)


@pytest.mark.parametrize("device_id", ["", "a+b", "#", "a/b", "a\0b", "a\nb", "a\x7f", "x" * 256, "\ud800"])
def test_ids_that_mqtt_gives_a_meaning_are_refused(device_id):
    with pytest.raises(InvalidMessage):
        topics.status(device_id)
    if device_id in {"", "a\0b", "\ud800"}:
        with pytest.raises(InvalidMessage):
            topics.command("d1", device_id)


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "v1/devices/d1",
        "v1/devices/d1/elsewhere",
        "v1/devices/d1/status/more",
        "v1/devices//status",
        "v1/devices/d1/commands/",
        "v1/devices/d1/commands/c1/outcome",
        "v2/devices/d1/status",
        "v1/devices/%41/status",
        "v1/devices/a%2fb/status",
        "v1/devices/d%00/status",
        "v1/devices/%FF/status",
        "v1/devices/é/status",
        "v1/devices/+/status",
    ],
)
def test_other_topics_and_other_spellings_of_an_id_are_refused(topic):
    with pytest.raises(InvalidMessage):
        topics.parse(topic)
