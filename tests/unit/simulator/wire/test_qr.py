from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import InvalidQr
from simulator.wire.base64url import from_base64url, to_base64url
from simulator.wire.qr import LabelText, base45, encode_label, parse_label, signed_bytes

# Neither marks nor separators but the plain space; unassigned ones differ between the tables of Python and hypothesis.
LETTERS = st.characters(exclude_categories=["C", "Z"])
WORDS = st.text(LETTERS | st.just(" "), min_size=1, max_size=60).map(str.strip).filter(bool)
SIGS = st.binary(min_size=16, max_size=16).map(to_base64url) | st.binary(min_size=64, max_size=64).map(to_base64url)
UUID = "0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e11"
HOST = "onboard.example.com"
GOOD = {"v": 1, "product_id": "p", "device_identifier": "d"}


@given(WORDS | st.uuids().map(str), WORDS, st.none() | SIGS, st.sampled_from(["json", "link", "compact"]))
def test_a_label_is_read_as_it_was_written(product_id, device_identifier, sig, profile):
    label = LabelText(product_id, device_identifier, sig, profile, HOST if profile == "link" else "")
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


NO_JSON = [
    ("", "empty"),
    ("x" * 4097, "too_large"),
    ("https://example.com", "not_a_link"),
    ("HTTPS://example.com/onboard?p=a&d=b", "not_a_link"),
    ("DL1:", "not_compact"),
    ("DL2:00", "unknown_version"),
    ("dl1:00", "not_compact"),
    ('{"v":1', "not_json"),
    ("\ud800", "not_json"),
    ('{"v":1,"product_id":"a","product_id":"b","device_identifier":"d"}', "not_json"),
    ("[]", "not_an_object"),
    (json.dumps({**GOOD, "v": 2}), "unknown_version"),
    (json.dumps({**GOOD, "v": True}), "unknown_version"),
    ('{"v":1,"product_id":"p"}', "missing_field"),
    (json.dumps({**GOOD, "product_id": 1}), "wrong_type"),
    (json.dumps({**GOOD, "device_identifier": "  "}), "wrong_type"),
    (json.dumps({**GOOD, "sig": ""}), "wrong_type"),
    ('{"v":1.0,"product_id":"p","device_identifier":"d"}', "unknown_version"),
    (json.dumps({**GOOD, "device_identifier": "d" * 513}), "too_long"),
    (json.dumps({**GOOD, "device_identifier": " d"}), "unprintable"),
    (json.dumps({**GOOD, "device_identifier": "a\nb"}), "unprintable"),
    (json.dumps({**GOOD, "product_id": "p\u200b"}), "unprintable"),
    (json.dumps({**GOOD, "sig": "AA"}), "not_exact"),  # a space after each comma, which the signature is not over
]


def test_unknown_members_of_a_later_label_are_ignored_and_one_without_a_version_is_of_the_first():
    assert parse_label(json.dumps({**GOOD, "batch": 7})) == LabelText("p", "d")
    assert parse_label('{"product_id":"p","device_identifier":"d"}') == LabelText("p", "d")


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        (LabelText("", "d"), "wrong_type"),
        (LabelText("p", "\0"), "wrong_type"),
        (LabelText("p", "\ud800"), "wrong_type"),
        (LabelText("p", "d" * 5000), "too_large"),
        (LabelText("p", "d" * 513), "too_long"),
        (LabelText("p", "d\n"), "unprintable"),
        (LabelText("p", "d", profile="morse"), "unknown_profile"),
        (LabelText("p", "d", profile="link"), "wrong_host"),
        (LabelText("p", "\ud800", profile="link", host="a.b"), "wrong_type"),
        (LabelText("p", "\ud800", profile="compact"), "wrong_type"),
        (LabelText("p", "ü" * 128, profile="compact"), "too_long"),
        (LabelText("p", "d", "AA", profile="compact"), "wrong_type"),
        (LabelText("p", "d", ""), "wrong_type"),
    ],
)
def test_a_label_that_nobody_could_read_is_not_written(label, reason):
    with pytest.raises(InvalidQr) as caught:
        encode_label(label)
    assert caught.value.reason == reason


def test_a_link_is_one_that_a_phone_opens_and_all_else_stands_in_percent():
    text = encode_label(LabelText(UUID, "SN 1/ü&d=2", "sig", "link", "onboard.example.com:8443"))
    assert text == f"https://onboard.example.com:8443/onboard?p={UUID}&d=SN%201%2F%C3%BC%26d%3D2&s=sig"
    assert parse_label(text).host == "onboard.example.com:8443"


LINK = f"https://{HOST}/onboard?p=p-1&d=SN-1"


NO_LINKS = [
    (f"http://{HOST}/onboard?p=p&d=d", "not_a_link"),
    (LINK.replace("https", "HTTPS"), "not_a_link"),
    (LINK.replace("/onboard", "/Onboard"), "not_a_link"),
    (LINK + "#x", "not_a_link"),
    (LINK + "&x=1", "not_a_link"),
    (LINK + "&d=SN-2", "not_a_link"),
    (LINK + "\n", "unprintable"),
    (LINK.replace("p=p-1&d=SN-1", "d=SN-1&p=p-1"), "not_a_link"),
    (LINK.replace("SN-1", "%ff"), "not_a_link"),
    (LINK.replace("SN-1", "%53N-1"), "not_exact"),
    (LINK.replace("SN-1", "SN%2f1"), "not_exact"),
    (LINK.replace("SN-1", "ü"), "not_exact"),
    (LINK.replace("SN-1", ""), "wrong_type"),
    (LINK + "&s=", "wrong_type"),
    (LINK.replace(HOST, HOST.title()), "wrong_host"),
    (LINK.replace(HOST, ""), "wrong_host"),
    (LINK.replace(HOST, "evil.example@" + HOST), "wrong_host"),
    (LINK.replace(HOST, HOST + "."), "wrong_host"),
    (LINK.replace(HOST, HOST + ":0443"), "wrong_host"),
    (LINK.replace(HOST, HOST + ":65536"), "wrong_host"),
    (LINK.replace(HOST, "\u043enboard.example.com"), "wrong_host"),
    (LINK.replace(HOST, "[::1]"), "wrong_host"),
]


def test_a_compact_label_is_small_and_keeps_to_the_characters_that_qr_packs_best():
    label = LabelText(UUID, "SIM-000001", to_base64url(bytes(range(64))), "compact")
    text = encode_label(label)
    assert set(text) <= set(base45.ALPHABET)
    assert len(text) == 4 + (1 + 16 + 1 + 10 + 64) * 3 // 2
    assert len(encode_label(LabelText(UUID, "SIM-000001", profile="compact"))) == 46


def compact(record: bytes) -> str:
    return "DL1:" + base45.encode(record)


NO_RECORDS = [
    (compact(b""), "not_compact"),
    (compact(b"\0\x01p\x01d") + "0", "not_compact"),
    ("DL1:ABc", "not_compact"),
    ("DL1:00" + ":: ", "not_compact"),
    (compact(b"\3\x01p\x01d"), "not_compact"),
    (compact(b"\x80\x01p\x01d"), "not_compact"),
    (compact(b"\0\x01p\x02d"), "not_compact"),
    (compact(b"\0\xffp"), "not_compact"),
    (compact(b"\0\x01p"), "not_compact"),
    (compact(b"\0\x01p\x01dx"), "not_compact"),
    (compact(b"\1\x01p\x01d" + bytes(15)), "not_compact"),
    (compact(b"\4" + bytes(15)), "not_compact"),
    (compact(b"\0\x01p\x01\xff"), "not_compact"),
    (compact(b"\0\x01p\0"), "wrong_type"),
    (compact(b"\0\x24" + UUID.encode() + b"\x01d"), "not_exact"),
    (compact(b"\0\x01p\x01\n"), "wrong_type"),
    (compact(b"\0\x01p\x02a\n"), "unprintable"),
]


@pytest.mark.parametrize(("text", "reason"), [*NO_JSON, *NO_LINKS, *NO_RECORDS])
def test_a_text_that_is_no_label_says_why(text, reason):
    with pytest.raises(InvalidQr) as caught:
        parse_label(text)
    assert caught.value.reason == reason


@pytest.mark.parametrize(("raw", "text"), [(b"AB", "BB8"), (b"Hello!!", "%69 VD92EX0"), (b"ietf!", "QED8WEX0")])
def test_base45_is_that_of_the_rfc(raw, text):
    assert base45.encode(raw) == text
    assert base45.decode(text) == raw


@given(st.binary(max_size=80))
def test_base45_gives_back_every_sequence_of_bytes_and_never_ends_with_a_space(raw):
    text = base45.encode(raw)
    assert base45.decode(text) == raw
    assert not text.endswith(" ")


@given(st.text(base45.ALPHABET, max_size=20))
def test_base45_has_one_text_for_one_sequence_of_bytes(text):
    try:
        raw = base45.decode(text)
    except ValueError:
        return
    assert base45.encode(raw) == text


@given(st.text("AQgw_-Zz09=+/ ", max_size=8))
def test_a_signature_has_one_text(text):
    raw = from_base64url(text)
    assert raw is None or to_base64url(raw) == text


def test_what_is_signed_names_the_purpose_the_profile_and_the_host():
    label = LabelText("p", "d", "sig")
    assert signed_bytes(label) == b'device-agent label v1\0{"v":1,"product_id":"p","device_identifier":"d"}'
    link = LabelText("p", "d", "sig", "link", "a.example")
    assert signed_bytes(link) == b"device-agent label v1\0https://a.example/onboard?p=p&d=d"
    assert signed_bytes(LabelText("p", "d", None, "compact")).startswith(b"device-agent label v1\0DL1:")
