"""What a user says about paper, for every format that prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PrintOptions:
    """Options of the printed formats.

    Attributes:
        paper: of the sheet: ``a4`` or ``letter``.
    """

    paper: str = "a4"

    def described(self) -> dict[str, Any]:
        """The members that the manifest's ``batch`` takes from here: equal members mean equal files."""
        return {"paper": self.paper}
