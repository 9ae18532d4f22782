"""What every part of a scenario is built from: frozen, checked, and documented key by key for the JSON Schema.

One rule for time: every key that ends in ``_s`` is a duration (a rate ends in ``_per_s``). It takes a number of seconds
(``30``, ``0.25``) or a number with its unit and no space between them: ``250ms``, ``30s``, ``5m``, ``2h``, ``1d``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.config import JsonDict

_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_LONGEST_S: Final = 366 * 86_400.0
DURATION_FORMS: Final = "a number of seconds, or a number with its unit: 250ms, 30s, 5m, 2h, 1d"

Rate = Annotated[float, Field(gt=0, le=10_000_000)]
"""So many in a second."""

Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
"""A name: letters, digits, dot, dash and underscore."""


def parse_duration(value: object) -> object:
    """Seconds for ``5m`` and its like; everything else as it came, for the next check to judge.

    Raises:
        ValueError: a text that is no duration; the sentence says what to write.
    """
    if not isinstance(value, str):
        return value
    found = _DURATION.fullmatch(value)
    if found is None:
        raise ValueError(f"must be {DURATION_FORMS}; not {value[:40]!r}")
    return float(found[1]) * _UNITS_S[found[2]]


def _duration_schema(bound: str) -> JsonDict:
    return {
        "anyOf": [
            {"type": "number", bound: 0, "maximum": _LONGEST_S},
            {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$"},
        ],
        "unit": "s",
    }


Share = Annotated[float, Field(ge=0, le=1)]
"""A part of the whole: 0.25 is a quarter."""

Seconds = Annotated[
    float,
    BeforeValidator(parse_duration),
    Field(gt=0, le=_LONGEST_S),
    WithJsonSchema(_duration_schema("exclusiveMinimum")),
]
"""A duration above 0, at most a year."""

Delay = Annotated[
    float, BeforeValidator(parse_duration), Field(ge=0, le=_LONGEST_S), WithJsonSchema(_duration_schema("minimum"))
]
"""A duration that may be 0."""

ReadingName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")]
"""What a reading is called in ``sensor_data``, such as ``temperature_celsius``."""


class Section(BaseModel):
    """The base of all sections: frozen, and an unknown key is a fault."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True, use_attribute_docstrings=False
    )


S = TypeVar("S", bound=Section)


def kinds_of(base: type[S]) -> list[type[S]]:
    """The classes below this one that have none below them."""
    below = base.__subclasses__()
    return [kind for each in below for kind in kinds_of(each)] if below else [base]


def one_of(kinds: Iterable[type[Section]]) -> Any:
    """A section of one of these classes, told apart by their ``kind``: for the annotation of a field."""
    return Annotated[reduce(or_, kinds), Field(discriminator="kind")]


@dataclass(frozen=True, slots=True)
class KeyPairFile:
    """One key pair of the pool: neighbouring devices share one. The secret stays in its file."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    api_key: Annotated[str, Field(min_length=1, max_length=200, description="The public key, mk_...")]
    secret_key_file: Annotated[
        Path, Field(description="File with the secret key, msk_..., that only its owner can read (chmod 600).")
    ]
