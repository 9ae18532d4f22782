"""Parameters of a query or a form: each at most once, an empty one counts as absent (RFC 6749, section 3.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl, urlencode

Pairs = Sequence[tuple[str, str]]

FIELDS: Final = 50
"""More than these in one query or form are refused."""


def parse_pairs(raw: bytes) -> tuple[tuple[str, str], ...]:
    """The pairs of a query string or a form, in their order, empty values included.

    Raises:
        ValueError: not percent-encoded UTF-8, or too many.
    """
    return tuple(parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS))


def find_repeated(pairs: Pairs) -> frozenset[str]:
    """The names that are there more than once."""
    return frozenset(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)


def value_of(pairs: Pairs, name: str) -> str | None:
    """The value of a parameter; None when it is absent, empty or repeated."""
    values = [value for given, value in pairs if given == name]
    return values[0] if len(values) == 1 and values[0] else None


def with_query(url: str, parameters: dict[str, str | None]) -> str:
    """The URL with further query parameters; those that are None are left out, what it has stays as it is."""
    added = urlencode({name: value for name, value in parameters.items() if value is not None})
    joint = "?" if "?" not in url else "" if url.endswith(("?", "&")) else "&"
    return f"{url}{joint}{added}"
