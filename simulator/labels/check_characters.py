"""Check characters for identifiers that people type: a slip of the finger is seen before it reaches a server.

All of them look at letters and digits only, letters without case; what stands between (``-``, ``.``) does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from simulator.labels.errors import LabelError

_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_VALUES: Final = {char: value for value, char in enumerate(_ALPHABET)}
# H. M. Damm, "Total anti-symmetrische Quasigruppen", 2004, p. 111: the quasigroup of order 10.
_DAMM: Final = (
    "0317598642", "7092154863", "4206871359", "1750983426", "6123045978",
    "3674209581", "5869720134", "8945362017", "9438617205", "2581436790",
)  # fmt: skip


def _iso7064_mod37_36(values: list[int]) -> str:
    """ISO 7064, MOD 37,36: every single change and nearly every swap of neighbours; the GS1 and ISO choice."""
    product = 36
    for value in values:
        total = (product + value) % 36 or 36
        product = total * 2 % 37
    return _ALPHABET[(37 - product) % 36]


def _luhn(values: list[int]) -> str:
    """Luhn modulo 36 (ISO/IEC 7812-1, annex B, for an alphabet of 36): every single change, most swaps."""
    total = 0
    for place, value in enumerate(reversed(values)):
        doubled = value * (2 if place % 2 == 0 else 1)
        total += doubled // 36 + doubled % 36
    return _ALPHABET[-total % 36]


def _damm(values: list[int]) -> str:
    """Damm's: every single change and every swap of neighbours, in digits alone."""
    interim = 0
    for value in values:
        if value > 9:  # noqa: PLR2004 - the digits
            raise LabelError("the check character 'damm' takes digits only: use iso7064 or luhn for letters")
        interim = int(_DAMM[interim][value])
    return str(interim)


ALGORITHMS: Final[Mapping[str, Callable[[list[int]], str]]] = MappingProxyType(
    {"iso7064": _iso7064_mod37_36, "luhn": _luhn, "damm": _damm}
)
"""The check characters by the word that a template takes: ``{check:luhn}``. The first is the default."""

DEFAULT_ALGORITHM: Final = "iso7064"


def check_character(text: str, algorithm: str = DEFAULT_ALGORITHM) -> str:
    """The check character of a text.

    Raises:
        LabelError: no such algorithm, or a letter where it takes digits only.
    """
    compute = ALGORITHMS.get(algorithm)
    if compute is None:
        raise LabelError(f"no check character {algorithm!r}: there is {', '.join(ALGORITHMS)}")
    return compute([_VALUES[char] for char in text.upper() if char in _VALUES])
