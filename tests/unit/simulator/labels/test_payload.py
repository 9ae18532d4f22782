from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.labels.errors import LabelError
from simulator.labels.payload import IdentifierTemplate, label_text
from simulator.wire.qr import parse_label


def test_the_default_template_numbers_devices_with_six_digits():
    assert list(IdentifierTemplate().identifiers(1, 3)) == [(1, "SIM-000001"), (2, "SIM-000002"), (3, "SIM-000003")]


def test_a_template_may_write_the_serial_in_hexadecimal():
    assert IdentifierTemplate("X{serial:04X}-a").identifier(0xBEEF) == "XBEEF-a"


@pytest.mark.parametrize(
    "pattern",
    ["{", "}", "{serial", "{}", "{0}", "{other}", "{serial!r}", "{serial.real}", "{serial:>9999999999}", "{serial:s}"],
)
def test_a_template_with_anything_but_a_serial_is_refused_and_named(pattern):
    with pytest.raises(LabelError, match="template"):
        IdentifierTemplate(pattern)


def test_a_template_without_a_serial_is_good_for_one_label_only():
    fixed = IdentifierTemplate("BENCH")
    assert list(fixed.identifiers(5, 1)) == [(5, "BENCH")]
    with pytest.raises(LabelError, match="same identifier"):
        fixed.identifiers(5, 2)


@pytest.mark.parametrize(("first", "count", "word"), [(1, 0, "count"), (1, -4, "count"), (-1, 2, "first serial")])
def test_numbers_below_their_bound_are_refused(first, count, word):
    with pytest.raises(LabelError, match=word):
        IdentifierTemplate().identifiers(first, count)


def test_an_unknown_profile_is_refused_with_the_known_ones():
    with pytest.raises(LabelError, match="there is json, link, compact"):
        label_text("p", "d", "morse")


def test_the_json_profile_is_compact_and_in_the_order_of_the_contract():
    assert label_text("p-1", "SIM-1") == '{"v":1,"product_id":"p-1","device_identifier":"SIM-1"}'


def test_an_identifier_that_no_label_can_carry_is_one_clear_line():
    with pytest.raises(LabelError, match="no label for product 'p'"):
        label_text("p", "")
    with pytest.raises(LabelError, match="no label for product 'p'"):
        label_text("p", "a\0b")


@given(st.integers(0, 10**12), st.integers(1, 40))
def test_identifiers_of_a_template_never_repeat(first, count):
    made = [identifier for _, identifier in IdentifierTemplate("A{serial:04d}").identifiers(first, count)]
    assert len(set(made)) == count


_text = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=60)


@given(_text, _text)
def test_what_a_label_says_is_what_the_strict_parser_reads(product_id, identifier):
    label = parse_label(label_text(product_id, identifier))
    assert (label.product_id, label.device_identifier) == (product_id, identifier)
