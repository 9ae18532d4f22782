"""What MQTT messages carry: golden texts, and one bad item that hides no good one."""

from __future__ import annotations

import json

import pytest

from agent.errors import InvalidMessage
from agent.wire.limits import BATCH_MAX
from agent.wire.mqtt_messages import (
    Notice,
    ReadingMessage,
    Receipt,
    Refusal,
    ResultMessage,
    encode,
    encode_readings,
    read_notice,
    read_readings,
    read_receipt,
    read_result,
    read_status,
)

READING = ReadingMessage(sensor_data={"t": 21.5}, recorded_at="2026-01-01T00:00:00.000Z", key="k1")


class TestGolden:
    def test_one_reading_is_an_object_and_several_are_an_array(self):
        one = b'{"sensor_data":{"t":21.5},"recorded_at":"2026-01-01T00:00:00.000Z","key":"k1"}'
        assert encode_readings([READING]) == one
        assert encode_readings([READING, READING]) == b"[" + one + b"," + one + b"]"
        assert read_readings(one).readings == (READING,)
        assert read_readings(b"[" + one + b"]").readings == (READING,)

    def test_a_receipt_names_keys_and_why_some_are_refused(self):
        text = b'{"stored":["k1"],"refused":[{"key":"k2","error":"validation_error","message":"t: must be a number"}]}'
        receipt = read_receipt(text)
        assert receipt.stored == ("k1",)
        assert receipt.refused == (Refusal(key="k2", error="validation_error", message="t: must be a number"),)
        assert encode(receipt) == text

    def test_a_notice_carries_the_time_as_text(self):
        text = b'{"time":"2026-01-01T00:00:00.000Z","retry_after_s":30.0,"poll_s":60.0}'
        assert read_notice(text) == Notice(time=1_767_225_600.0, retry_after_s=30.0, poll_s=60.0)
        assert encode(read_notice(text)) == text
        assert read_notice(b"{}") == Notice()

    def test_a_result_is_what_http_takes_and_a_key(self):
        text = b'{"status":"failed","error":"valve: stuck","key":"r1"}'
        assert read_result(text) == ResultMessage(status="failed", error="valve: stuck", key="r1")
        assert encode(ResultMessage(status="failed", error="valve: stuck", key="r1")) == text

    @pytest.mark.parametrize("text", [b"online", b'{"status":"online"}', b'{"status":"online","more":1}'])
    def test_a_status_may_be_a_bare_word(self, text):
        assert read_status(text).status == "online"

    @pytest.mark.parametrize("text", [b"", b"away", b'"online"', b"{}", b'{"status":"away"}', b"\xff"])
    def test_other_statuses_are_refused(self, text):
        with pytest.raises(InvalidMessage):
            read_status(text)


class TestReadings:
    def test_a_bad_reading_hides_no_good_one_and_keeps_its_key(self):
        batch = read_readings(
            json.dumps([{"sensor_data": {"t": "warm"}, "key": "k1"}, {"sensor_data": {"t": 1}, "key": "k2"}]).encode()
        )
        assert [reading.key for reading in batch.readings] == ["k2"]
        assert batch.refused == (
            Refusal(key="k1", error="validation_error", message="sensor_data.t: must be a number"),
        )

    @pytest.mark.parametrize(
        ("text", "error"),
        [
            (b"", "invalid_json"),
            (b"{", "invalid_json"),
            (b"\x00\xff", "invalid_json"),
            (b'{"sensor_data":{"t":NaN}}', "invalid_json"),
            (b'"' + b"x" * 1_000_000 + b'"', "invalid_json"),
            (b"21.5", "validation_error"),
            (b"{}", "validation_error"),
            (b'{"sensor_data":{}}', "validation_error"),
            (b'{"sensor_data":{"t":1},"key":""}', "validation_error"),
            (b'{"sensor_data":{"t":1},"recorded_at":"soon"}', "validation_error"),
            (b'{"sensor_data":{"t":1},"device_id":"another"}', "validation_error"),
            (json.dumps([{"sensor_data": {"t": 1}}] * (BATCH_MAX + 1)).encode(), "too_many_readings"),
        ],
    )
    def test_what_is_no_reading_is_refused_with_a_word_and_a_sentence(self, text, error):
        batch = read_readings(text)
        assert batch.readings == ()
        assert [refusal.error for refusal in batch.refused] == [error]
        assert batch.refused[0].message
        assert len(batch.refused[0].message) < 500

    def test_no_readings_are_no_fault(self):
        assert read_readings(b"[]").refused == ()


class TestResults:
    @pytest.mark.parametrize(
        "text", [b"{", b"[]", b'{"status":"done"}', b'{"status":"failed","more":1}', b'{"status":"failed","result":1}']
    )
    def test_what_is_no_result_is_refused(self, text):
        refusal = read_result(text)
        assert isinstance(refusal, Refusal)
        assert refusal.message

    def test_a_refused_result_keeps_its_key(self):
        refusal = read_result(b'{"status":"done","key":"r1"}')
        assert isinstance(refusal, Refusal)
        assert refusal.key == "r1"


@pytest.mark.parametrize("text", [b"", b"[]", b'{"stored":"k1"}', b'{"refused":[1]}', b"\xff"])
def test_what_is_no_receipt_is_an_invalid_message(text):
    with pytest.raises(InvalidMessage):
        read_receipt(text)


@pytest.mark.parametrize("text", [b"", b"[]", b'{"retry_after_s":-1}', b'{"poll_s":0}', b'{"poll_s":"often"}'])
def test_what_is_no_notice_is_an_invalid_message(text):
    with pytest.raises(InvalidMessage):
        read_notice(text)


def test_receipts_ignore_what_they_do_not_know():
    assert read_receipt(b'{"stored":["k"],"since":3}') == Receipt(stored=("k",))
