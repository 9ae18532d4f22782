"""Secrets are gone from what the request log shows, and all else is as it was."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.wire.secret import MASK
from simulator.service.control.masking import is_secret, mask_body, mask_fields, mask_header, mask_path

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
    body = f'{{"a": {json.dumps(plain)}, "list": [{{{inner}, "b": 1}}], "c": 2}}'
    masked = json.loads(mask_body(body))
    assert masked == {"a": plain, "list": [{name: MASK, "b": 1}], "c": 2}


@given(plain=st.dictionaries(PLAIN, VALUES, max_size=4))
def test_a_body_without_secrets_is_kept_byte_for_byte(plain):
    body = json.dumps(plain)
    assert mask_body(body) == body


@given(cut=st.integers(0, 200), name=st.sampled_from(NAMES))
def test_of_a_body_that_is_cut_off_no_part_of_a_secret_is_left(cut, name):
    body = json.dumps({"a": 1, name: SECRET, "tail": "x" * 100})[:cut]
    assert SECRET[:4] not in mask_body(body)


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("grant_type=a&code=abc&client_secret=a%20b", "grant_type=a&code=%s&client_secret=%s"),
        ("email=a%40b&p%61ssword=abc&answer=sign_in", "email=a%%40b&p%%61ssword=%s&answer=sign_in"),
        ('<input type="hidden" name="csrf" value="abc">', '<input type="hidden" name="csrf" value="%s">'),
        ('<a href="/cb?code=abc&amp;x=1">', '<a href="/cb?code=%s&amp;x=1">'),
        ('{"said": "Bearer abc and msk_abc"}', '{"said": "Bearer %s and %s"}'),
        ('data: {"password": "abc"}\n\n', 'data: {"password": "%s"}\n\n'),
        ("\xff\xfe token=abc \xff", "\xff\xfe token=%s \xff"),
    ],
)
def test_forms_pages_and_other_texts_are_masked_too(body, kept):
    assert mask_body(body) == kept % ((MASK,) * kept.replace("%%", "").count("%s"))


def test_an_empty_secret_a_public_key_and_a_kind_of_token_are_no_secrets():
    body = '{"client_secret": null, "password": "", "token_type": "Bearer", "api_key": "mk_abc", "has_token": true}'
    assert mask_body(body) == body
    assert mask_body('{"api_key": "of-somebody-else"}') == f'{{"api_key": "{MASK}"}}'


def test_a_member_called_code_is_a_secret_of_partner_access_alone():
    body = '{"code": "E17"}'
    assert mask_body(body) == body
    assert mask_body(body, is_partner_access=True) == f'{{"code": "{MASK}"}}'


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("x-api-key", "mk_abc", "mk_abc"),
        ("x-api-key", "msk_by_mistake", MASK),
        ("x-secret-key", "msk_abc", MASK),
        ("Authorization", "Bearer abc", f"Bearer {MASK}"),
        ("authorization", "abc", MASK),
        ("cookie", "a=b", MASK),
        ("set-cookie", "a=b; Secure", MASK),
        ("x-vendor-token", "abc", MASK),
        ("idempotency-key", "abc", "abc"),
        ("location", "https://a/cb?code=abc&iss=b", f"https://a/cb?code={MASK}&iss=b"),
        ("user-agent", "test", "test"),
        ("www-authenticate", 'Bearer realm="a"', 'Bearer realm="a"'),
        # by its look, wherever it stands
        ("x-debug", "key=msk_abc1", f"key={MASK}"),
        ("idempotency-key", "msk_abc1", MASK),
        ("referer", "http://a/?x=msk_abc1", f"http://a/?x={MASK}"),
        ("x-note", "Bearer abc", f"Bearer {MASK}"),
        ("forwarded", "by=dat_abc1", f"by={MASK}"),
    ],
)
def test_headers_are_masked_by_their_names_and_by_what_looks_like_a_key(name, value, shown):
    assert mask_header(name, value) == shown


def test_a_query_keeps_what_is_no_secret():
    assert is_secret("newPassword")
    assert mask_fields("status=open&limit=5") == "status=open&limit=5"
    assert mask_fields("c%6fde=abc&scope=a") == "c%6fde=**********&scope=a"
    assert mask_path("/devices/msk_abc/commands") == "/devices/**********/commands"
    assert mask_path("/devices/msk%5Fabc%E2%82%AC/a%2Fb") == "/devices/**********/a%2Fb"
    assert mask_fields("note=msk%5Fabc&b=%C3%A9") == "note=**********&b=%C3%A9"


@given(value=st.text("0123456789abcdef-", min_size=1), name=st.sampled_from(NAMES), upper=st.booleans())
def test_a_secret_is_found_among_bodies_of_the_same_shape_whatever_came_before(value, name, upper):
    name = name.upper() if upper else name
    for member in ("note", name, "note", name):
        body = json.dumps({"device_id": value, member: value, "t": 21.5})
        assert (json.loads(mask_body(body))[member] == MASK) == (member == name)


@pytest.mark.parametrize(
    "text",
    ['{"password"' + '\\"' * 8_192, '"' * 16_384 + "secret", "<input " * 2_340 + "secret", '{"secret":' + "[" * 16_384],
    ids=["escaped quotes", "quotes", "inputs", "nested"],
)
def test_no_body_takes_long(text):
    began = time.process_time()
    mask_body(text)
    assert time.process_time() - began < 0.25
