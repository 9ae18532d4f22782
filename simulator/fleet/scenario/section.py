"""Values that several sections of a scenario share; the base of all is in :mod:`simulator.fleet.settings`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Final

from pydantic import Field

_SHARES_TOLERANCE: Final = 1e-6

Rate = Annotated[float, Field(gt=0, le=10_000_000)]
"""So many in a second."""

Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
"""A name: letters, digits, dot, dash and underscore."""


def shares_make_one(shares: Iterable[float]) -> bool:
    """Whether shares make a whole, within what decimals such as 0.333333 allow."""
    return math.isclose(sum(shares), 1.0, abs_tol=_SHARES_TOLERANCE)
