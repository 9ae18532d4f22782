"""The estimate of the print: arithmetic in the standard's words, never called a measurement."""

from __future__ import annotations

import pytest

from simulator.labels.errors import LabelError
from simulator.labels.printing.estimate import PrintAssumptions, PrintEstimate, estimate


def _of(dots: int = 6, dpi: int = 300, across: int | None = None, **assumed) -> PrintEstimate:
    return estimate(dots_per_module=dots, dpi=dpi, assumed=PrintAssumptions(**assumed), dots_across=across)


def test_a_module_of_many_dots_on_white_paper_is_expected_to_be_an_a():
    found = _of()
    assert (found.letter, found.grade) == ("A", 4)
    assert found.module_mm == pytest.approx(0.508)
    assert found.print_growth == pytest.approx(0.125)
    assert found.distance_mm == pytest.approx(254)


@pytest.mark.parametrize(("contrast", "letter"), [(0.7, "A"), (0.55, "B"), (0.4, "C"), (0.2, "D"), (0.19, "F")])
def test_the_grade_of_the_contrast_is_the_standards(contrast, letter):
    assert _of(contrast=contrast).letter == letter


def test_growth_closes_single_light_modules_and_the_grade_falls():
    grades = [_of(growth_um=growth).grade for growth in range(0, 508, 4)]
    assert grades[0] == 4
    assert grades[-1] == 0
    assert grades == sorted(grades, reverse=True)
    assert set(grades) == {4, 3, 2, 1, 0}
    assert _of(growth_um=-200).modulation == _of(growth_um=200).modulation


@pytest.mark.parametrize(("across", "grade"), [(100, 4), (106, 4), (108, 3), (110, 2), (112, 1), (140, 0)])
def test_modules_that_are_not_square_cost_axial_nonuniformity(across, grade):
    assert _of(100, 2400, across).axial_grade == grade


def test_it_says_that_it_is_an_estimate_wherever_it_is_shown():
    assert "estimate, not a measurement" in _of().document()["is"]
    assert "not measured" in _of().sentence()
    assert _of().document()["grade"] == "4 (A)"


@pytest.mark.parametrize(
    ("assumed", "words"),
    [
        ({"growth_um": 2000.0}, "--print-growth-um is 2000"),
        ({"contrast": 0.0}, "--contrast is 0"),
        ({"contrast": 1.5}, "at most 1"),
        ({"contrast": float("nan")}, "--contrast is nan"),
    ],
)
def test_assumptions_out_of_range_are_refused(assumed, words):
    with pytest.raises(LabelError, match=words):
        PrintAssumptions(**assumed)
