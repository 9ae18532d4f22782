"""Whether matrices and random histories are played as a whole, which ``make exhaustive`` asks for."""

from __future__ import annotations

import os
from typing import Final

EXHAUSTIVE: Final = os.environ.get("EXHAUSTIVE") == "1"
"""Else, in ``make test`` and ``make test-long``, a part of each is played that has every kind of thing in it."""
