"""Describes the faults of a control path's body: which member is wrong, and what to write instead."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from agent.wire.base import describe_issue, list_faults

_SUBJECT: Final = re.compile(r"^(?:Input|String|Dictionary|List|Tuple|Value) should ")


def list_member_faults(error: ValidationError, model: type[BaseModel]) -> list[tuple[str, str]]:
    """(field, issue) for each fault: ``("match.metod", "unknown member; did you mean 'method'?")``.

    Args:
        error: of the model.
        model: what the body was read as.
    """

    def describe(fault: ErrorDetails) -> str:
        if fault["type"] == "missing":
            return "is missing"
        if fault["type"] == "extra_forbidden":
            return f"unknown member{_hint(fault['loc'], model)}"
        return _SUBJECT.sub("must ", describe_issue(fault))

    return list_faults(error, describe)


def _hint(place: Sequence[int | str], model: type[BaseModel]) -> str:
    """The known member that is nearest, beside it first, then in another part of the body; else all that are known."""
    given, outer = str(place[-1])[:80], place[:-1]
    known = _members(_models_at(outer, [model]))
    if near := difflib.get_close_matches(given, known, n=1):
        return f"; did you mean {near[0]!r}?"
    parts = [part for part in _members([model]) if part not in outer]
    elsewhere = {member: f"{part}.{member}" for part in parts for member in _members(_models_at([part], [model]))}
    if near := difflib.get_close_matches(given, elsewhere, n=1):
        return f"; did you mean {elsewhere[near[0]]!r}?"
    return f"; known are {', '.join(known)}" if known else ""


def _models_at(place: Sequence[int | str], models: Sequence[type[BaseModel]]) -> Sequence[type[BaseModel]]:
    """The models that a value in this place may be read as."""
    for step in place:
        fields = [field for one in models for name, field in one.model_fields.items() if step in {name, field.alias}]
        if fields:
            models = [found for field in fields for found in _models_in(field.annotation)]
        else:  # an index, a key, or which model of several was meant
            models = [one for one in models if one.__name__ == step] or models
    return models


def _models_in(annotation: Any) -> Iterable[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _members(models: Iterable[type[BaseModel]]) -> list[str]:
    return list(dict.fromkeys(field.alias or name for one in models for name, field in one.model_fields.items()))
