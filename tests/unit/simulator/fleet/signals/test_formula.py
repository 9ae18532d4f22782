from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.fleet.signals.expressions import FormulaError, parse_formula

NUMBERS = {"a": 2.0, "b": -3.0, "t": 100.0, "index": 7.0}.__getitem__


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a * 1.8 + 32", 35.6),
        ("  a +\n b", -1.0),
        ("a if b > 0 else index", 7.0),
        ("-3 < b < a", 0.0),
        ("-3 <= b < a and not 0", 1.0),
        ("b == 1 or a != 1", 1.0),
        ("clip(t, 0, 50) + max(a, b, 9) - min(a, b)", 62.0),
        ("round(2.345, 1) + floor(2.9) + ceil(2.1) + abs(b)", 10.3),
        ("t // 7 + t % 7 + 2 ** 3 + +a", 26.0),
        ("sqrt(16) + exp(0) + log(1) + sin(0) + cos(0) + tanh(0)", 6.0),
        ("sin(2 * pi)", 0.0),
    ],
)
def test_a_formula_computes_what_it_says(text, value):
    assert parse_formula(text).evaluate(NUMBERS) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("text", ["1 / (a - 2)", "sqrt(b)", "b ** 0.5", "9 ** 9 ** 9", "log(0)", "exp(1000)", "a % 0"])
def test_what_has_no_value_is_not_a_number(text):
    assert math.isnan(parse_formula(text).evaluate(NUMBERS))


def test_a_formula_knows_the_readings_that_it_uses():
    assert parse_formula("a + t * index - max(b, pi)").names == {"a", "b"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a.real", "column 1: only numbers"),
        ("1 + a.real", "column 5: only numbers"),
        ("  1 + a[0]", "column 7: only numbers"),
        ("è + a.b", "column 5: only numbers"),
        ("__import__('os')", "column 1: the functions are abs, min"),
        ("(lambda: 1)()", "the functions are"),
        ("max(*[1], 2)", "only numbers"),
        ("min(1)", "min takes 2 to 10 numbers"),
        ("abs(1, 2)", "abs takes 1 number:"),
        ("clip(1, low=0, high=2)", "clip takes 3 numbers"),
        ("a @ b", "the operators are"),
        ("a << 2", "the operators are"),
        ("~1", "is no arithmetic"),
        ("a is b", "the comparisons are"),
        ("'a'", "is no number"),
        ("True", "is no number"),
        ("1j", "is no number"),
        ("1e999", "too large"),
        ("max", "max is a function"),
        ("a := 3", "column"),
        ("2 +", "column"),
        ("", "column 1"),
        ("-" * 99 + "1", "nested deeper"),
        ("1 + " * 200 + "1", "at most 500"),
        ("x for x in y", "column"),
        ("a\x00b", "null bytes"),
    ],
)
def test_what_is_no_formula_is_refused_with_its_column(text, said):
    with pytest.raises(FormulaError, match=".*") as caught:
        parse_formula(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(alphabet="abt01.+-*/%() ,<>=é\n_[]{}'\"", max_size=40))
def test_any_text_is_a_formula_or_refused(text):
    try:
        formula = parse_formula(text)
    except FormulaError:
        return
    assert isinstance(formula.evaluate(lambda _: 1.5), float)
