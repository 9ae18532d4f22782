"""Very long lists of commands are cut down before they are parsed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.wire.lists import ITEMS_MAX, cut_list

MOST = 10


PAYLOAD = {"command": 'p[]{},:"\\ü\u20ac', "n": [1, {}]}


def items(count: int) -> list[dict]:
    return [{"id": f"c{number}", "command_payload": PAYLOAD} for number in range(count)]


WRAPPED = {
    "array": lambda listed: listed,
    "envelope": lambda listed: {"success": True, "none": {}, "data": listed, "next": None},
    "nested": lambda listed: {"a": {}, "data": {"x": [], "items": listed, "y": [1, [2]]}, "has_more": False},
}


@pytest.mark.parametrize("shape", WRAPPED)
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_both_ends_of_a_long_list_are_left(shape, indent, ascii_only):
    wrap = WRAPPED[shape]
    raw = json.dumps(wrap(items(1000)), indent=indent, ensure_ascii=ascii_only).encode()
    cut, left_out = cut_list(raw, MOST)
    assert left_out == 990
    assert json.loads(cut) == wrap(items(1000)[:5] + items(1000)[-5:])


@pytest.mark.parametrize("shape", WRAPPED)
@pytest.mark.parametrize("count", [0, 1, MOST, MOST + 1])
def test_nothing_but_the_middle_of_what_is_too_long_is_left_out(shape, count):
    wrap = WRAPPED[shape]
    cut, left_out = cut_list(json.dumps(wrap(items(count))).encode(), MOST)
    assert left_out == max(0, count - MOST)
    assert json.loads(cut) == wrap(items(count)[:5] + items(count)[5:][-5:])


@pytest.mark.parametrize(
    "end", [b"", b"]", b"}", b"]]", b"] x", b',{"a":}]', b' {"a":1}]', b",]", b'"', b"\xff]", b",[" * 50_000]
)
def test_what_is_no_json_stays_no_json(end):
    raw = b"[" + b",".join(b'{"id":"abcdefgh"}' for _ in range(100)) + end
    cut, _ = cut_list(raw, MOST)
    if end == b"]":
        assert len(json.loads(cut)) == MOST
        return
    with pytest.raises((ValueError, RecursionError)):
        json.loads(cut)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=60,
    )
)
def test_any_json_stays_json_and_short_arrays_stay_whole(value):
    raw = json.dumps(value).encode()
    cut, left_out = cut_list(raw, 2)
    after = json.loads(cut)
    assert type(after) is type(value)
    if left_out == 0:
        assert after == value


def test_a_list_of_usual_length_is_not_even_looked_at():
    raw = json.dumps(items(ITEMS_MAX // 10)).encode()
    assert cut_list(raw)[0] is raw


@pytest.mark.parametrize("item", [b"[]", b"{}", b"1"])
def test_items_that_are_no_commands_are_cut_as_well(item):
    raw = b"[" + b",".join([item] * (ITEMS_MAX * 50)) + b"]"
    cut, left_out = cut_list(raw)
    assert left_out == ITEMS_MAX * 49
    assert len(cut) < len(raw) // 40
