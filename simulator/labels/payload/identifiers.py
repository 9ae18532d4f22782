"""Identifiers out of a template and a serial number."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from simulator.labels.errors import LabelError

DEFAULT_TEMPLATE: Final = "SIM-{serial:06d}"
_SERIAL_FORMAT: Final = re.compile(r"(0?[0-9]{1,2})?[dxX]?")


@dataclass(frozen=True, slots=True)
class IdentifierTemplate:
    """A pattern that makes one ``device_identifier`` out of one serial number.

    Attributes:
        pattern: text with the field ``{serial}``, with or without a format: ``{serial:06d}`` (decimal, six
            digits), ``{serial:X}`` (hexadecimal). Literal braces are doubled.

    Raises:
        LabelError: the pattern has another field, a format that is no integer format, or a lone brace.
    """

    pattern: str = DEFAULT_TEMPLATE

    def __post_init__(self) -> None:
        try:
            parts = list(string.Formatter().parse(self.pattern))
        except ValueError as problem:
            raise LabelError(f"template {self.pattern!r}: {problem}; write a literal brace twice: {{{{") from None
        for _, field, spec, conversion in parts:
            if field is None:
                continue
            if field != "serial" or conversion or not _SERIAL_FORMAT.fullmatch(spec or ""):
                raise LabelError(
                    f"template {self.pattern!r}: only {{serial}} with a format such as {{serial:06d}} or {{serial:X}} "
                    "may stand in braces"
                )

    @classmethod
    def after_prefix(cls, prefix: str) -> IdentifierTemplate:
        """The template of ``prefix`` followed by a serial of six digits."""
        return cls(prefix.replace("{", "{{").replace("}", "}}") + "{serial:06d}")

    @property
    def varies(self) -> bool:
        """Whether two serials give two identifiers."""
        return any(field is not None for _, field, _, _ in string.Formatter().parse(self.pattern))

    def identifier(self, serial: int) -> str:
        """The identifier of ``serial``."""
        return self.pattern.format(serial=serial)

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
