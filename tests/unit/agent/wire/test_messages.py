from __future__ import annotations

import pickle
from datetime import UTC, timedelta, timezone

import httpx
import pytest
from pydantic import ValidationError

from agent.adapters.records import read_records
from agent.errors import InvalidMessage
from agent.wire.answers import Answer
from agent.wire.command_states import FINAL_STATES, OPEN_STATES, CommandStatus
from agent.wire.commands import CommandRecord, CommandResult
from agent.wire.device_client import read_record
from agent.wire.devices import Device
from agent.wire.dialect import AnswerReading
from agent.wire.faults import ErrorBody
from agent.wire.secret import Secret
from agent.wire.sensor_data import PostSensorData
from simulator.login.tokens import RefreshTokens, TokenAnswer


def test_only_the_payload_of_a_command_must_be_there():
    record = CommandRecord.receive({"command_payload": {"command": "ping"}})
    assert (record.id, record.status, record.created_at, record.expires_at) == (None, None, None, None)


def test_a_payload_kept_as_json_text_is_read_as_its_object():
    record = CommandRecord.receive({"id": 7, "command_payload": '{"command": "ping", "n": [1, null]}'})
    assert record.command_payload == {"command": "ping", "n": [1, None]}
    assert record.id == "7"


@pytest.mark.parametrize(
    "payload",
    [
        None,
        "ping",
        "[1]",
        '"{}"',
        '{"a":1,"a":2}',
        [],
        5,
        {"a": float("nan")},
        {"a": 2**64},
        {"a": "\ud800"},
        {"a": "\0"},
        "\ud800",
    ],
)
def test_a_payload_that_is_no_object_makes_the_record_invalid(payload):
    with pytest.raises(InvalidMessage, match="command_payload"):
        CommandRecord.receive({"id": "c", "command_payload": payload})


@pytest.mark.parametrize("name", ["created_at", "expires_at"])
def test_a_time_of_a_command_that_cannot_be_read_is_named_and_not_taken(name):
    record = CommandRecord.receive({"command_payload": {}, "id": "c", name: "tomorrow"})
    assert (getattr(record, name), record.unreadable_times) == (None, (name,))


def test_a_command_whose_expiry_cannot_be_read_must_not_run_and_one_of_unknown_age_may():
    records = [
        CommandRecord.receive({"command_payload": {}, "id": name, name: "tomorrow"})
        for name in ("created_at", "expires_at")
    ]
    commands, malformed = read_records(records, "d")
    faults = {command.id: command.fault for command in commands}
    assert faults["created_at"] is None
    assert (faults["expires_at"] or "").startswith("unreadable_expires_at: ")
    assert not malformed


@pytest.mark.parametrize(
    ("item", "found"),
    [
        ({"id": "a", "_id": "b"}, "a"),
        ({"id": "", "command_id": "b"}, "b"),
        ({"id": None, "commandId": 7}, "7"),
        ({"_id": "m"}, "m"),
        ({"_id": {"$oid": "65a1"}}, "65a1"),
        ({"uuid": "u-1"}, "u-1"),
        ({"id": 2**70}, str(2**70)),
        ({"id": 0}, "0"),
    ],
)
def test_the_id_of_a_command_is_found_under_its_usual_names(item, found):
    record = CommandRecord.receive({"command_payload": {}, **item})
    assert (record.id, record.stable_id(), record.has_derived_id) == (found, found, False)


@pytest.mark.parametrize("item", [{}, {"id": ""}, {"id": None}, {"id": True}, {"id": {"a": 1}}, {"id": ["x"]}])
def test_what_is_no_id_is_none(item):
    assert CommandRecord.receive({"command_payload": {}, **item}).id is None


def test_a_configured_path_leads_to_the_id_and_nothing_else_does():
    reading = AnswerReading(command_id_path=("meta", "uuid"))
    item = {"command_payload": {}, "id": "row 5", "meta": {"uuid": "u"}}
    assert CommandRecord.receive(item, reading).id == "u"
    assert CommandRecord.receive({**item, "meta": "u"}, reading).id is None


def test_members_in_camel_case_are_read():
    item = {"commandPayload": {"x": 1}, "createdAt": 1767225600, "expiresAt": "2026-01-01T00:01:00Z", "deviceId": "d"}
    record = CommandRecord.receive(item)
    assert (record.command_payload, record.device_id) == ({"x": 1}, "d")
    assert (record.created_at, record.expires_at) == (1767225600.0, 1767225660.0)


def test_a_time_that_decides_nothing_may_be_unreadable():
    assert CommandRecord.receive({"command_payload": {}, "delivered_at": "tomorrow"}).delivered_at is None
    assert Device.receive({"device_id": "d", "last_seen_at": "never"}).last_seen_at is None


def test_times_of_a_command_come_in_text_and_in_milliseconds():
    record = CommandRecord.receive(
        {"command_payload": {}, "created_at": "2026-01-01T00:00:00Z", "expires_at": 1767225660000}
    )
    assert (record.created_at, record.expires_at) == (1767225600.0, 1767225660.0)


def test_a_command_without_an_id_gets_the_same_id_each_time_it_is_listed():
    listed = {"command_payload": {"b": 1, "a": [{"d": 1, "c": 2}]}, "created_at": "2026-01-01T00:00:00Z"}
    again = {"created_at": 1767225600000, "command_payload": {"a": [{"c": 2, "d": 1}], "b": 1}}
    later = {**listed, "created_at": "2026-01-01T00:00:00.001Z"}
    ids = [CommandRecord.receive(record).stable_id() for record in (listed, again, later)]
    assert ids[0] == ids[1] != ids[2]
    assert ids[0].startswith("derived-")


def test_a_derived_id_is_the_same_whatever_zone_is_configured():
    item = {"command_payload": {}, "created_at": "2026-01-01 00:00:00"}
    zones = (UTC, timezone(timedelta(hours=2)))
    records = [CommandRecord.receive(item, AnswerReading(zone=zone)) for zone in zones]
    assert records[0].created_at == records[1].created_at + 7200
    assert records[0].stable_id() == records[1].stable_id()


@pytest.mark.parametrize("created_at", [None, "2026-01-01T00:00:00Z", "once upon a time", {"at": 5}])
def test_equal_commands_without_ids_get_different_ids_that_stay_the_same(created_at):
    record = CommandRecord.receive({"command_payload": {"command": "ping"}, "created_at": created_at})
    ids = [record.with_derived_id(n).id for n in range(3)]
    assert len(set(ids)) == 3
    assert ids[0] == record.stable_id()
    assert all(record.with_derived_id(n).has_derived_id for n in range(3))


def test_an_unknown_status_of_another_server_is_kept():
    assert CommandRecord.receive({"command_payload": {}, "status": "waiting"}).status == "waiting"


def test_each_state_is_either_open_or_final():
    assert set(CommandStatus) == OPEN_STATES | FINAL_STATES
    assert not OPEN_STATES & FINAL_STATES


@pytest.mark.parametrize("value", [True, "1", None, float("nan"), float("inf"), 2**63, [1], {}])
def test_a_reading_must_be_a_finite_number_of_64_bits(value):
    with pytest.raises(ValidationError, match=r"sensor_data\.t"):
        PostSensorData(device_id="d", sensor_data={"t": value})


def test_a_whole_number_stays_whole():
    assert repr(PostSensorData(device_id="d", sensor_data={"a": 21, "b": 21.0}).to_wire()["sensor_data"]) == (
        "{'a': 21, 'b': 21.0}"
    )


@pytest.mark.parametrize("value", ["soon", True, 1.5, 10**18, "2026-01-01T00:00:00"])
def test_a_reading_with_a_time_that_is_none_is_not_sent(value):
    with pytest.raises(ValidationError):
        PostSensorData.model_validate({"device_id": "d", "sensor_data": {"t": 1}, "recorded_at": value})


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ({"error": "e"}, "e", ""),
        ({"error": "e", "message": "m", "more": []}, "e", "m"),
        ({"error": {"code": "e", "message": "m"}}, "e", "m"),
        ({"detail": "Not Found"}, "", "Not Found"),
        ({"error": 5, "message": None, "details": "x"}, "", ""),
        ({"error": "e", "details": [1, {"field": "f", "issue": "i"}]}, "e", ""),
    ],
)
def test_error_bodies_of_any_server_are_read(body, error, message):
    read = ErrorBody.receive(body)
    assert (read.error, read.message) == (error, message)


def test_messages_cannot_be_changed():
    with pytest.raises(ValidationError):
        CommandResult(status="failed").status = "succeeded"  # type: ignore[misc]  # what is tested


def test_secrets_in_messages_never_print():
    sent = RefreshTokens(refresh_token=Secret("made-up"), client_id="c")
    got = TokenAnswer.receive({"access_token": "made-up", "refresh_token": "made-up"})
    for message in (sent, got):
        assert "made-up" not in f"{message} {message!r} {message!s}"
    assert sent.to_wire()["refresh_token"] == "made-up"
    assert got.access_token.reveal() == "made-up"
    with pytest.raises(InvalidMessage) as caught:
        TokenAnswer.receive({"access_token": ["made-up"]})
    assert "made-up" not in str(caught.value)


def test_a_secret_is_compared_by_value_and_never_shown_or_pickled():
    secret = Secret("made-up")
    assert secret == Secret("made-up") != Secret("other")
    assert secret != "made-up"
    assert len({secret, Secret("made-up")}) == 1
    assert not Secret("")
    for text in (str(secret), repr(secret), f"{secret:>20}", f"{secret!r}", f"{[secret]}", "%s" % secret):  # noqa: UP031 - each way to print
        assert "made-up" not in text
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_an_answer_to_what_was_sent_says_what_it_says_under_any_of_its_names_and_lacks_the_rest():
    sent = {"device_id": "d1", "command_payload": {"command": "ping"}}
    answer = Answer(201, httpx.Headers({"content-type": "application/json"}), b'{"id": "c1", "deviceId": "d2"}', "POST")
    record = read_record(CommandRecord, answer, "command", sent)
    assert (record.id, record.device_id, record.command_payload) == ("c1", "d2", {"command": "ping"})
