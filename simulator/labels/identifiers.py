"""Identifiers out of a template, a serial number and, if wanted, a check character.

Check characters are for identifiers that people type: a slip of the finger is seen before it reaches a server. All of
them look at letters and digits only, letters without case; what stands between (``-``, ``.``) does not count.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from stdnum import damm, luhn
from stdnum.iso7064 import mod_37_36

from simulator.labels.errors import LabelError

_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ALGORITHMS: Final[dict[str, Callable[[str], str]]] = {
    "iso7064": mod_37_36.calc_check_digit,
    "luhn": partial(luhn.calc_check_digit, alphabet=_ALPHABET),
    "damm": damm.calc_check_digit,
}
"""The check characters by the word that a template takes: ``{check:luhn}``. The first is the default."""
DEFAULT_ALGORITHM: Final = "iso7064"


def check_character(text: str, algorithm: str = DEFAULT_ALGORITHM) -> str:
    """The check character of a text.

    Raises:
        LabelError: no such algorithm, or a letter where it takes digits only.
    """
    if algorithm not in ALGORITHMS:
        raise LabelError(f"no check character {algorithm!r}: there is {', '.join(ALGORITHMS)}")
    counted = "".join(char for char in text.upper() if char in _ALPHABET)
    if algorithm == "damm" and not counted.isdecimal() and counted:
        raise LabelError("the check character 'damm' takes digits only: use iso7064 or luhn for letters")
    return ALGORITHMS[algorithm](counted)


DEFAULT_TEMPLATE: Final = "SIM-{serial:06d}"
_SERIAL_FORMAT: Final = re.compile(r"(0?[0-9]{1,2})?[dxX]?")


@dataclass(frozen=True, slots=True)
class IdentifierTemplate:
    """A pattern that makes one ``device_identifier`` out of one serial number.

    Attributes:
        pattern: text with the field ``{serial}``, with or without a format: ``{serial:06d}`` (decimal, six
            digits), ``{serial:X}`` (hexadecimal). Literal braces are doubled. Behind the serial may stand
            ``{check}`` once: a check character over all letters and digits before it, ISO 7064 MOD 37,36, or
            another by name (``{check:luhn}``, ``{check:damm}``).

    Raises:
        LabelError: the pattern has another field, a format that is no integer format, or a lone brace.
    """

    pattern: str = DEFAULT_TEMPLATE

    def __post_init__(self) -> None:
        try:
            parts = list(string.Formatter().parse(self.pattern))
        except ValueError as problem:
            raise LabelError(f"template {self.pattern!r}: {problem}; write a literal brace twice: {{{{") from None
        before: list[str] = []
        for _, field, spec, conversion in parts:
            if field is None:
                continue
            if field == "check" and not conversion and before and "check" not in before:
                check_character("", spec or DEFAULT_ALGORITHM)  # which knows the names
                before.append(field)
                continue
            before.append(field)
            if field != "serial" or conversion or not _SERIAL_FORMAT.fullmatch(spec or ""):
                raise LabelError(
                    f"template {self.pattern!r}: only {{serial}} with a format such as {{serial:06d}} or {{serial:X}}, "
                    "and behind it {check} once, may stand in braces"
                )

    @property
    def varies(self) -> bool:
        """Whether two serials give two identifiers."""
        return any(field == "serial" for _, field, _, _ in string.Formatter().parse(self.pattern))

    def identifier(self, serial: int) -> str:
        """The identifier of ``serial``."""
        made = ""
        for literal, field, spec, _ in string.Formatter().parse(self.pattern):
            made += literal
            if field == "check":
                made += check_character(made, spec or DEFAULT_ALGORITHM)
            elif field is not None:
                made += format(serial, spec or "")
        return made

    def identifiers(self, first_serial: int, count: int) -> Iterator[tuple[int, str]]:
        """``count`` pairs of serial and identifier, beginning at ``first_serial``.

        Raises:
            LabelError: the identifiers would not differ from each other, or there would be none.
        """
        if count < 1:
            raise LabelError(f"count is {count}: give 1 or more")
        if first_serial < 0:
            raise LabelError(f"first serial is {first_serial}: give 0 or more")
        if count > 1 and not self.varies:
            raise LabelError(f"template {self.pattern!r} gives every label the same identifier: add {{serial:06d}}")
        return ((serial, self.identifier(serial)) for serial in range(first_serial, first_serial + count))
