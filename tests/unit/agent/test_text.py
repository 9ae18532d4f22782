from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.text import LINE_MAX, LINES_MAX, bounded


def test_a_long_word_keeps_its_begin_and_end_and_the_sentence_around_it():
    text = bounded(f"no stock '{'a' * 100_000}z': give one of L7160, L7161")
    assert text.startswith("no stock 'aaaa")
    assert text.endswith("aaz': give one of L7160, L7161")
    assert "99838 characters left out" in text
    assert len(text) < 300


def test_a_long_line_of_words_and_many_lines_are_cut_too():
    line = bounded("bad rows: " + "word " * 30_000 + "; mend them")
    assert line.startswith("bad rows: word")
    assert line.endswith("; mend them")
    assert len(line) < LINE_MAX + 50
    lines = bounded("\n".join(f"row {number}" for number in range(1000))).split("\n")
    assert lines[:2] == ["row 0", "row 1"]
    assert lines[LINES_MAX:] == [f"[{1000 - LINES_MAX} further lines]"]


@given(st.text(st.sampled_from("ab \n"), max_size=100).map(lambda text: text * 200))
def test_no_text_is_longer_than_the_bounds_together(text):
    lines = bounded(text).split("\n")
    assert len(lines) <= LINES_MAX + 1
    assert all(len(line) <= LINE_MAX + 50 for line in lines)
