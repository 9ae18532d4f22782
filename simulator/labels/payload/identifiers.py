"""Identifiers out of a template and a serial number."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from simulator.labels.check_characters import DEFAULT_ALGORITHM, check_character
from simulator.labels.errors import LabelError

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

    @classmethod
    def after_prefix(cls, prefix: str) -> IdentifierTemplate:
        """The template of ``prefix`` followed by a serial of six digits."""
        return cls(prefix.replace("{", "{{").replace("}", "}}") + "{serial:06d}")

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
