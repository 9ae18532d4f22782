"""Code and text on a label: everything inside, nothing over anything, no text ever cut."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simulator.labels.errors import LabelError
from simulator.labels.printing.dots import measure_dots
from simulator.labels.printing.layout import TEXT_MIN_MM, Room, lay_out
from simulator.labels.printing.sheet import measure_pdf, printable

MEASURES = {"pdf": measure_pdf, "203": measure_dots(203), "300": measure_dots(300)}


@given(
    width=st.floats(10, 120),
    height=st.floats(8, 120),
    share=st.floats(0.2, 1),
    lines=st.lists(st.text(max_size=60), max_size=3),
    measure=st.sampled_from(sorted(MEASURES)),
)
@example(width=10.0, height=10.0, share=0.25, lines=[":0\x1f"], measure="203")
def test_a_label_holds_all_of_its_text_or_is_refused(width, height, share, lines, measure):
    room, measured = Room(width, height, 1.0), MEASURES[measure]
    code = (min(width, height) - 2) * share
    shown = [printable(line) for line in lines]
    try:
        layout = lay_out(room, code, shown, measured)
    except LabelError:
        return
    assert "".join(text.text for text in layout.texts) == "".join(shown)
    right, bottom = layout.code_left_mm + code, layout.code_top_mm + code
    assert min(layout.code_left_mm, layout.code_top_mm) >= 0.999
    assert right <= width - 0.999
    assert bottom <= height - 0.999
    for text in layout.texts:
        end = text.left_mm + measured(text.text, text.bold, text.size_mm)
        top = text.baseline_mm - text.size_mm * 0.95
        assert text.size_mm >= TEXT_MIN_MM - 1e-9
        assert text.left_mm >= 0.999
        assert end <= width - 0.999
        assert top >= 0.999
        assert text.baseline_mm + text.size_mm * 0.25 <= height - 0.999
        assert text.left_mm >= right or top >= bottom - 1e-6


def test_text_stands_beside_the_code_on_a_wide_label_and_below_it_on_a_square_one():
    wide = lay_out(Room(60, 27, 1), 25, ["SIM-000001", "p-1"], measure_pdf)
    assert wide.code_left_mm == 1
    assert all(text.left_mm == 27 for text in wide.texts)
    square = lay_out(Room(35, 35, 1), 25, ["SIM-000001", "p-1"], measure_pdf)
    assert square.code_left_mm == 5
    assert all(text.baseline_mm > square.code_top_mm + 25 for text in square.texts)


def test_a_long_text_shrinks_first_and_wraps_at_a_hyphen_then():
    room = Room(53, 27, 1)
    short = lay_out(room, 25, ["SIM-000001"], measure_pdf).texts
    longer = lay_out(room, 25, ["SIM-0000000001"], measure_pdf).texts
    longest = lay_out(room, 25, ["0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e11"], measure_pdf).texts
    assert len(short) == len(longer) == 1
    assert longer[0].size_mm < short[0].size_mm
    assert [text.text for text in longest] == ["0193b2f4-7e5c-", "7c3a-9b1e-", "2f6d4a8c0e11"]


def test_a_text_that_does_not_fit_is_refused_with_what_would():
    with pytest.raises(LabelError, match=r"a label of 25\.4 x 10 mm beside a code of 8 mm.*shorter identifiers"):
        lay_out(Room(25.4, 10, 1), 8, ["X" * 200], measure_pdf)


def test_a_code_that_does_not_fit_is_refused_with_the_largest_that_does():
    with pytest.raises(LabelError, match=r"30 mm does not fit a label of 50 x 25 mm: at most --size-mm 23"):
        lay_out(Room(50, 25, 1), 30, [], measure_pdf)


def test_a_code_without_text_stands_in_the_middle():
    layout = lay_out(Room(50, 30, 1), 20, ["", ""], measure_pdf)
    assert (layout.code_left_mm, layout.code_top_mm, layout.texts) == (15, 5, ())


def test_a_line_is_never_broken_inside_an_escape():
    texts = lay_out(Room(60, 60, 1), 40, [printable("器" * 12)], measure_pdf).texts
    assert len(texts) > 1
    assert all(len(text.text) % 6 == 0 for text in texts)
