"""Settings of the demo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

DEVICES_MIN: Final = 5
"""The real agent, one switched off, one whose power is cut, one removed, and one that nothing happens to."""
DEVICES_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """One run.

    Attributes:
        out: the output folder.
        devices: how many, the real agent among them.
        seed: of what the virtual devices measure.
        keep: leave everything running until Ctrl-C.
    """

    out: Path = Path("demo-output")
    devices: int = 20
    seed: int = 1
    keep: bool = False
