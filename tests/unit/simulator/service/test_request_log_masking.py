"""Secrets are gone from what the request log keeps, and all else is as it was."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.wire.secret import MASK
from simulator.service.request_log.masking import (
    is_secret,
    keeps_value,
    mask_body,
    mask_headers,
    mask_path,
    mask_query,
    read_headers,
)

SECRET = "Zq7-hidden-9x"
NAMES = (
    *("password", "client_secret", "refreshToken", "x-auth-token"),
    *("wifi_passphrase", "PIN", "label_key", "private_key"),
)
PLAIN = st.sampled_from(["name", "device_id", "temperature_c", "token_type", "pins", "note"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just(SECRET + "0"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PLAIN, inner, max_size=3),
    max_leaves=8,
)


@given(
    plain=st.dictionaries(PLAIN, VALUES, max_size=3), name=st.sampled_from(NAMES), value=VALUES, escaped=st.booleans()
)
def test_a_secret_member_is_masked_wherever_it_stands_and_the_others_stay(plain, name, value, escaped):
    value = [value, SECRET]
    written = "".join(f"\\u{ord(each):04x}" for each in name) if escaped else name
    inner = f'"{written}": {json.dumps(value)}'
    body = f'{{"a": {json.dumps(plain)}, "list": [{{{inner}, "b": 1}}], "c": 2}}'.encode()
    masked = json.loads(mask_body(body))
    assert masked == {"a": plain, "list": [{name: MASK, "b": 1}], "c": 2}


@given(plain=st.dictionaries(PLAIN, VALUES, max_size=4))
def test_a_body_without_secrets_is_kept_byte_for_byte(plain):
    body = json.dumps(plain).encode()
    assert mask_body(body) == body


@given(cut=st.integers(0, 200), name=st.sampled_from(NAMES))
def test_of_a_body_that_is_cut_off_no_part_of_a_secret_is_left(cut, name):
    body = json.dumps({"a": 1, name: SECRET, "tail": "x" * 100}).encode()[:cut]
    assert SECRET[:4].encode() not in mask_body(body)


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (b"grant_type=a&code=abc&client_secret=a%20b", b"grant_type=a&code=%s&client_secret=%s"),
        (b"email=a%40b&p%61ssword=abc&answer=sign_in", b"email=a%%40b&p%%61ssword=%s&answer=sign_in"),
        (b'<input type="hidden" name="csrf" value="abc">', b'<input type="hidden" name="csrf" value="%s">'),
        (b'<a href="/cb?code=abc&amp;x=1">', b'<a href="/cb?code=%s&amp;x=1">'),
        (b'{"said": "Bearer abc and msk_abc"}', b'{"said": "Bearer %s and %s"}'),
        (b'data: {"password": "abc"}\n\n', b'data: {"password": "%s"}\n\n'),
        (b"\xff\xfe token=abc \xff", b"\xff\xfe token=%s \xff"),
    ],
)
def test_forms_pages_and_other_texts_are_masked_too(body, kept):
    assert mask_body(body) == kept % ((MASK.encode(),) * kept.replace(b"%%", b"").count(b"%s"))


def test_an_empty_secret_a_public_key_and_a_kind_of_token_are_no_secrets():
    body = b'{"client_secret": null, "password": "", "token_type": "Bearer", "api_key": "mk_abc", "has_token": true}'
    assert mask_body(body) == body
    assert mask_body(b'{"api_key": "of-somebody-else"}') == b'{"api_key": "%s"}' % MASK.encode()


def test_a_member_called_code_is_a_secret_of_partner_access_alone():
    body = b'{"code": "E17"}'
    assert mask_body(body) == body
    assert mask_body(body, is_partner_access=True) == b'{"code": "%s"}' % MASK.encode()


def kept_of(headers):
    """The headers as they are read from the log."""
    return read_headers(mask_headers(headers))


def test_headers_without_secrets_come_out_as_they_went_in_and_long_ones_are_cut():
    headers = [(b"accept", b"a, b"), (b"accept", b""), (b"x-a", b"c: d")]
    assert kept_of(headers) == tuple(headers)
    assert kept_of([]) == ()
    assert kept_of([(b"x-long", b"x" * 10_000), *headers]) == ((b"x-long", b"x" * 4_096), *headers)


def test_headers_are_masked_by_their_names():
    given_headers = {
        b"x-api-key": (b"mk_abc", b"mk_abc"),
        b"x-secret-key": (b"msk_abc", b"**********"),
        b"authorization": (b"Bearer abc", b"Bearer **********"),
        b"cookie": (b"a=b", b"**********"),
        b"set-cookie": (b"a=b; Secure", b"**********"),
        b"x-vendor-token": (b"abc", b"**********"),
        b"idempotency-key": (b"abc", b"abc"),
        b"location": (b"https://a/cb?code=abc&iss=b", b"https://a/cb?code=**********&iss=b"),
        b"user-agent": (b"test", b"test"),
    }
    masked = kept_of([(name, value) for name, (value, _) in given_headers.items()])
    assert dict(masked) == {name: kept for name, (_, kept) in given_headers.items()}
    assert kept_of([(b"x-api-key", b"msk_by_mistake")]) == ((b"x-api-key", MASK.encode()),)
    assert not keeps_value("X-Vendor-Token")
    assert keeps_value("User-Agent")
    assert is_secret("newPassword")


def test_a_query_keeps_what_is_no_secret():
    assert mask_query(b"status=open&limit=5") == b"status=open&limit=5"
    assert mask_query(b"c%6fde=abc&scope=a") == b"c%6fde=**********&scope=a"
    assert mask_path(b"/devices/msk_abc/commands") == b"/devices/**********/commands"
    assert mask_path(b"/devices/msk%5Fabc%E2%82%AC/a%2Fb") == b"/devices/**********/a%2Fb"
    assert mask_query(b"note=msk%5Fabc&b=%C3%A9") == b"note=**********&b=%C3%A9"


@given(value=st.text("0123456789abcdef-", min_size=1), name=st.sampled_from(NAMES), upper=st.booleans())
def test_a_secret_is_found_among_bodies_of_the_same_shape_whatever_came_before(value, name, upper):
    name = name.upper() if upper else name
    for member in ("note", name, "note", name):
        body = json.dumps({"device_id": value, member: value, "t": 21.5}).encode()
        assert (json.loads(mask_body(body))[member] == MASK) == (member == name)
