"""The garbage collector of a process that is nothing but the service."""

from __future__ import annotations

import gc
from typing import Final

_YOUNG: Final = 10_000
"""So many more objects than at the last collection bring the next one; Python's own number is 700."""


def keep_collections_short() -> None:
    """Have the collector leave alone what stays until the end, and look at what is new less often.

    What is there once the service is ready are modules, classes, statements and documents: 100,000 objects, which a
    full collection looks through for nothing. With 64 requests under way there are always more new objects than Python
    expects of a program. Both together are 16 of 150 us of CPU for each ``POST /sensor-data``.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])
