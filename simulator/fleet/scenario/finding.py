"""What a check of a scenario found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from simulator.yaml_document import KeyPath


@dataclass(frozen=True, slots=True)
class Finding:
    """Parts that do not fit.

    Attributes:
        paths: what was looked at; the first is what to change.
    """

    paths: tuple[KeyPath, ...]
    issue: str

    @classmethod
    def at(cls, *paths: KeyPath, issue: str) -> Self:
        """A finding at the first of these paths."""
        return cls(paths, issue)
