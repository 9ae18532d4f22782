"""The version of this program; a test compares it with the distribution's."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
