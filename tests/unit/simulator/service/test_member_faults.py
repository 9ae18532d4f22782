"""What is wrong with a control body, in words that say what to write instead."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from simulator.service.faults.model import NewFault
from simulator.service.member_faults import list_member_faults

LOSE = {"effect": {"lose": "answer"}}


class Left(BaseModel, extra="forbid"):
    colour: int = 0


class Right(BaseModel, extra="forbid"):
    width: int = 0


class Both(BaseModel, extra="forbid"):
    items: list[Left | Right]


def faults_of(value: Any, model: type[BaseModel]) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(value)
    return dict(list_member_faults(caught.value, model))


@pytest.mark.parametrize(
    ("body", "field", "issue"),
    [
        ({**LOSE, "match": {"metod": "POST"}}, "match.metod", "unknown member; did you mean 'method'?"),
        ({**LOSE, "mach": {}}, "mach", "unknown member; did you mean 'match'?"),
        ({**LOSE, "next": 1}, "next", "unknown member; did you mean 'times.next'?"),
        ({"effect": {"probabilty": 1}}, "effect.probabilty", "unknown member; did you mean 'times.probability'?"),
        ({**LOSE, "times": {"from_": 1}}, "times.from_", "unknown member; did you mean 'from'?"),
        ({"effect": {"latency": {"fixed": 1}}}, "effect.latency.fixed", "unknown member; did you mean 'fixed_s'?"),
        ({"effect": {"drip": {"zzz": 1}}}, "effect.drip.zzz", "unknown member; known are bytes_per_s"),
        ({}, "effect", "is missing"),
        ({"effect": {"drip": {}}}, "effect.drip.bytes_per_s", "is missing"),
        ({"effect": {"latency": [1]}}, "effect.latency", "must be an object"),
        ({"effect": {"lose": "both"}}, "effect.lose", "must be 'request' or 'answer'"),
        ({**LOSE, "times": {"next": "1"}}, "times.next", "must be a valid integer"),
        ({**LOSE, "match": {"headers": {"a": 1}}}, "match.headers.a", "must be a string"),
        ([], "body", "must be an object"),
    ],
)
def test_each_fault_says_what_to_write(body: Any, field: str, issue: str) -> None:
    assert faults_of(body, NewFault)[field] == issue


def test_where_several_shapes_may_stand_each_has_its_own_members() -> None:
    found = faults_of({"items": [{"widht": 1}]}, Both)
    assert found["items.0.Right.widht"] == "unknown member; did you mean 'width'?"
    assert found["items.0.Left.widht"] == "unknown member; known are colour"
