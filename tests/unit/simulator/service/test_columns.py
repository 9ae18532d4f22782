"""Typed columns: what fits is kept and found again, what does not is named."""

from __future__ import annotations

import json

from hypothesis import assume, given
from hypothesis import strategies as st

from agent.errors import InvalidMessage
from agent.wire.json_text import parse_json
from agent.wire.times import parse_time
from simulator.service.core.columns import TableColumn, check_payload, filter_hashes, value_hashes

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
INTEGERS = st.integers(-(2**63), 2**63 - 1)
NUMBERS = INTEGERS | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = TEXT | NUMBERS | st.booleans()
ANY = st.recursive(SCALARS | st.none(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner))
TIMES = st.datetimes(timezones=st.timezones()).map(lambda at: at.isoformat()) | st.integers(-(10**12), 10**12)

FITTING = {
    "string": TEXT,
    "number": NUMBERS,
    "integer": INTEGERS,
    "boolean": st.booleans(),
    "json": ANY.filter(lambda value: value is not None),
}
KINDS = {"string": str, "number": (int, float), "integer": int, "boolean": bool}


@st.composite
def _typed_values(draw):
    kind = draw(st.sampled_from(sorted(FITTING)))
    return kind, draw(FITTING[kind])


@given(_typed_values(), TEXT)
def test_a_value_of_its_columns_type_is_kept_as_it_came(typed, name):
    kind, value = typed
    kept, faults = check_payload([TableColumn(name, kind, required=True, default=None)], {name: value})
    assert faults == []
    assert repr(kept) == repr({name: value})


@given(st.sampled_from(sorted(KINDS)), ANY)
def test_a_value_of_another_type_is_named_and_not_kept(kind, value):
    fits = isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))
    assume(not fits and value is not None)
    kept, faults = check_payload([TableColumn("c", kind, required=False, default=None)], {"c": value})
    assert kept == {}
    assert [field for field, _ in faults] == ["data_payload.c"]


@given(TIMES)
def test_a_time_is_kept_in_one_form_that_means_the_same_instant(value):
    kept, faults = check_payload([TableColumn("c", "datetime", required=True, default=None)], {"c": value})
    if faults:
        assert isinstance(value, str)  # a zone with seconds, or before the year 1 in UTC
        return
    assert abs(parse_time(kept["c"]) - parse_time(value)) <= 0.001
    assert check_payload([TableColumn("c", "datetime", required=True, default=None)], kept) == (kept, [])
    assert value_hashes(kept) <= filter_hashes("c", str(value)) or isinstance(value, str)


@given(TEXT, SCALARS)
def test_a_scalar_is_found_by_its_json_text_or_itself(column, value):
    written = value if isinstance(value, str) else json.dumps(value)
    assert value_hashes({column: value}) <= filter_hashes(column, written)


@given(TEXT, SCALARS, TEXT)
def test_a_filter_finds_nothing_that_it_does_not_mean(column, value, text):
    assume(not isinstance(value, str) and text != value)
    try:
        meant = parse_json(text.encode())
    except InvalidMessage:
        meant = None
    assume(meant != value)
    assert not value_hashes({column: value}) & filter_hashes(column, text)


@given(st.dictionaries(TEXT, SCALARS, max_size=4), st.dictionaries(TEXT, SCALARS, max_size=4))
def test_defaults_fill_what_is_left_out_and_nothing_else(defaults, payload):
    columns = [TableColumn(name, "json", required=True, default=value) for name, value in defaults.items()]
    kept, faults = check_payload(columns, payload)
    assert kept == {name: payload.get(name, default) for name, default in defaults.items()}
    assert {field for field, _ in faults} == {f"data_payload.{name}" for name in payload.keys() - defaults.keys()}


def test_columns_of_two_names_do_not_share_values():
    assert not value_hashes({"a": "b"}) & value_hashes({"a\0sb": ""})
    assert value_hashes({"a": [1], "b": {"c": 1}}) == set()
