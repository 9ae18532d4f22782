"""The bound of a handler's result."""

from __future__ import annotations

import pytest

from agent.handlers.registry import RESULT_BYTES, ResultTooLarge, copy_result


def test_the_longest_result_is_taken_and_one_byte_more_is_not():
    longest = {"x": "a" * (RESULT_BYTES - len('{"x":""}'))}
    assert copy_result(longest) == longest
    with pytest.raises(ResultTooLarge):
        copy_result({"x": longest["x"] + "a"})


@pytest.mark.parametrize(
    "value",
    [
        {"x": "\u20ac" * (RESULT_BYTES // 3)},
        {"x": "\n" * (RESULT_BYTES // 2)},
        {"x": [0] * RESULT_BYTES},
        {"x" * RESULT_BYTES: 0},
        {str(number): None for number in range(RESULT_BYTES // 8)},
        [[[]] * 1000] * 1000,
        {"rows": [["x" * 10_000] * 10_000]},  # a gigabyte as text
    ],
)
def test_every_way_to_be_long_is_found(value):
    with pytest.raises(ResultTooLarge):
        copy_result(value)


def test_a_result_that_holds_itself_is_no_json():
    circle: dict = {}
    circle["me"] = circle
    with pytest.raises(ValueError, match="Circular"):
        copy_result(circle)
