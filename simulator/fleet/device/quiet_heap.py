"""The garbage collector, kept from looking through devices that stay.

A full collection over 50,000 devices was measured at more than a second, in which nothing is sent. Devices are not
garbage: what was made for them is put where the collector does not look.
"""

from __future__ import annotations

import gc


class QuietHeap:
    """Freezes what there is, again whenever more devices live than ever before. For a process of its own.

    What is garbage in that instant stays until the process ends: at most what one generation holds, each time.
    """

    __slots__ = ("_most",)

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()
        self._most = 0

    def look(self, living: int) -> None:
        """So many devices live now; cheap, to be called once a second."""
        if living > self._most:
            self._most = living
            gc.freeze()
