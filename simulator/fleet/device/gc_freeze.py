"""The garbage collector, kept from looking through devices that stay.

A full collection over 50,000 devices was measured at more than a second, in which nothing is sent. Devices are not
garbage: what was made for them is put where the collector does not look.
"""

from __future__ import annotations

import gc
from typing import Final

from simulator.fleet.metrics.health import GcPauses

_LONG_S: Final = 0.01


class GcFreeze:
    """Freezes what there is: whenever more devices live than ever before, and after a collection that took long.

    For a process of its own. What is garbage in that instant stays until the process ends: at most what one generation
    holds, each time; after a full collection, the only one that takes long, that is next to nothing.

    Args:
        pauses: measures how long the collector took; started here.
    """

    __slots__ = ("_most", "_pauses")

    def __init__(self, pauses: GcPauses | None = None) -> None:
        gc.collect()
        gc.freeze()
        self._most = 0
        self._pauses = pauses or GcPauses()
        self._pauses.start()

    def look(self, living: int) -> None:
        """Freeze the heap where the number of living devices asks for it; cheap, to be called once a second."""
        took_s = self._pauses.take()
        if living > self._most or took_s > _LONG_S:
            self._most = max(living, self._most)
            gc.freeze()

    def close(self) -> None:
        """The collector is watched no more; what is frozen stays so."""
        self._pauses.stop()
