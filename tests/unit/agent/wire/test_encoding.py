from __future__ import annotations

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.errors import InvalidMessage
from agent.wire.encoding import encode_json, find_fault, parse_json, parse_object

TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=15,
)


@given(VALUES)
@example({'":': '":', '\\":': ['a":b', '"\\u0000']})
@example({"a": {"a": {"a": 1}}})
def test_whatever_may_be_sent_comes_back_the_same(value):
    assert parse_json(encode_json(value)) == value


@given(TEXT, VALUES, VALUES)
def test_a_name_twice_in_one_object_is_refused_wherever_it_stands(name, first, second):
    key = json.dumps(name)
    inner = f"{{{key} : {json.dumps(first)},{key}:{json.dumps(second)}}}"
    for text in (inner, f"[{inner}]", f'{{"x{name[:0]}":{inner}}}'):
        with pytest.raises(InvalidMessage, match="twice"):
            parse_json(text.encode())


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"a":1}x', "not valid JSON"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
        (b'"\xff"', "not valid JSON"),
        (b'"\xed\xa0\x80"', "not valid JSON"),
        (b"[NaN]", "not valid JSON"),
        (b"[-Infinity]", "not valid JSON"),
        (b"[1e400]", "infinity"),
        (b"[1180591620717411303424]", "64 bits"),
        (b"[-9223372036854775809]", "64 bits"),
        (b"[9223372036854775808]", "64 bits"),
        (b'"\\u0000"', "NUL"),
        (b'{"a\\u0000":1}', "NUL"),
        (b'"\\ud800"', "surrogate"),
        (b'"\\udc00 "', "surrogate"),
        (b'{"a":1,"b":{},"a":2}', "twice"),
        (b"[" * 33 + b"]" * 33, "deeper than 32"),
        (b'{"a":' * 33 + b"1" + b"}" * 33, "deeper than 32"),
        (b"[" * 10_000, "deeper than 32"),
    ],
)
def test_text_that_two_parsers_could_read_differently_is_refused(raw, says):
    with pytest.raises(InvalidMessage, match=says):
        parse_json(raw)


def test_the_bounds_themselves_are_taken():
    assert parse_json(b"[" * 32 + b"]" * 32) is not None
    assert parse_json(b"[9223372036854775807,-9223372036854775808]") == [2**63 - 1, -(2**63)]
    assert parse_json(b'"\\ud83d\\ude00"') == "\U0001f600"
    assert parse_json(b'"1234"', max_bytes=6) == "1234"


@pytest.mark.parametrize("raw", [b"null", b"[]", b'"x"', b"1", b"1.5", b"true"])
def test_a_body_that_is_no_object_is_refused(raw):
    with pytest.raises(InvalidMessage, match="must be a JSON object"):
        parse_object(raw)


CIRCLE: list[object] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    "value",
    [math.nan, [math.inf], {"a": 2**63}, "\0", {"\0": 1}, "\ud800", {1: 2}, object(), b"x", {"a": {1, 2}}, CIRCLE],
)
def test_what_has_no_json_form_is_not_sent(value):
    assert find_fault(value)
    with pytest.raises(InvalidMessage):
        encode_json(value)
