"""Parameters of a query or a form: each at most once, an empty one counts as absent (RFC 6749, section 3.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import parse_qsl

Pairs = Sequence[tuple[str, str]]

_FIELDS: Final = 50
"""More than these in one query or form are refused."""


def parse_pairs(raw: bytes) -> Pairs:
    """The pairs of a query string or a form, in their order, empty values included.

    Raises:
        ValueError: not percent-encoded UTF-8, or too many.
    """
    return parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS)


def find_repeated(pairs: Pairs, names: Iterable[str]) -> str:
    """What came more than once, for a person; empty for nothing. Only ``names`` are named: the rest may be anything."""
    repeated = {name for name, count in Counter(name for name, _ in pairs).items() if count > 1}
    return ", ".join(name for name in names if name in repeated) or ("a parameter" if repeated else "")


def values_of(pairs: Pairs, names: Iterable[str]) -> dict[str, str]:
    """The values of these parameters; what is absent, empty or repeated is left out."""
    found = {name: [value for given, value in pairs if given == name] for name in names}
    return {name: values[0] for name, values in found.items() if len(values) == 1 and values[0]}
