from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import InvalidQr
from agent.wire.qr import LabelText, encode_label, parse_label

WORDS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=60).filter(
    lambda text: text.strip()
)
GOOD = {"v": 1, "product_id": "p", "device_identifier": "d"}


@given(WORDS, WORDS, st.none() | WORDS)
def test_a_label_is_read_as_it_was_written(product_id, device_identifier, sig):
    label = LabelText(product_id, device_identifier, sig)
    text = encode_label(label)
    assert parse_label(text) == label
    assert "\n" not in text


def test_the_text_is_compact_and_in_a_fixed_order():
    assert encode_label(LabelText("p", "d", "s")) == '{"v":1,"product_id":"p","device_identifier":"d","sig":"s"}'
    assert encode_label(LabelText("p", "d")) == '{"v":1,"product_id":"p","device_identifier":"d"}'


@given(st.text(max_size=200))
def test_no_scanned_text_makes_it_raise_anything_else(text):
    reason, said = "none", ""
    try:
        parse_label(text)
    except InvalidQr as error:
        reason, said = error.reason, str(error)
    assert reason.isidentifier()
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("x" * 4097, "too_large"),
        ("ü" * 2049, "too_large"),
        ("https://example.com", "not_json"),
        ('{"v":1', "not_json"),
        ("\ud800", "not_json"),
        ('{"v":1,"product_id":"a","product_id":"b","device_identifier":"d"}', "not_json"),
        ("[]", "not_an_object"),
        ("null", "not_an_object"),
        (json.dumps({**GOOD, "v": 2}), "unknown_version"),
        (json.dumps({**GOOD, "v": True}), "unknown_version"),
        (json.dumps({**GOOD, "v": "1"}), "unknown_version"),
        ('{"v":1,"product_id":"p"}', "missing_field"),
        ('{"v":1,"device_identifier":"d"}', "missing_field"),
        (json.dumps({**GOOD, "product_id": 1}), "wrong_type"),
        (json.dumps({**GOOD, "device_identifier": "  "}), "wrong_type"),
        (json.dumps({**GOOD, "sig": ""}), "wrong_type"),
        (json.dumps({**GOOD, "sig": 5}), "wrong_type"),
    ],
)
def test_a_text_that_is_no_label_says_why(text, reason):
    with pytest.raises(InvalidQr) as caught:
        parse_label(text)
    assert caught.value.reason == reason


def test_unknown_members_of_a_later_label_are_ignored():
    assert parse_label(json.dumps({**GOOD, "batch": 7})) == LabelText("p", "d")


def test_a_label_without_a_version_is_the_first_version():
    assert parse_label('{"product_id":"p","device_identifier":"d"}') == LabelText("p", "d")


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        (LabelText("", "d"), "wrong_type"),
        (LabelText("p", "\0"), "wrong_type"),
        (LabelText("p", "\ud800"), "wrong_type"),
        (LabelText("p", "d" * 5000), "too_large"),
        (LabelText("p", "d", ""), "wrong_type"),
    ],
)
def test_a_label_that_nobody_could_read_is_not_written(label, reason):
    with pytest.raises(InvalidQr) as caught:
        encode_label(label)
    assert caught.value.reason == reason
