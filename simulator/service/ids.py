"""Ids: UUID version 7 (RFC 9562, section 5.7), ascending in time, from a generator that can be seeded."""

from __future__ import annotations

import random

from simulator.service.clock import ServiceClock


class IdSource:
    """Makes ids. With a seed and a clock that stands, the same ids come every time.

    The random bits tell ids apart and guard nothing: every look-up is also by the caller's account.
    """

    __slots__ = ("_clock", "_random")

    def __init__(self, clock: ServiceClock, seed: int | None = None) -> None:
        self._clock = clock
        self._random = random.Random(seed)  # noqa: S311 - ids are no secrets

    def next(self) -> str:
        """A new id."""
        digits = "%012x7%03x%016x" % (  # noqa: UP031 - half the time of an f-string here
            self._clock.now_ms() & 0xFFFFFFFFFFFF,
            self._random.getrandbits(12),
            0x8000000000000000 | self._random.getrandbits(62),
        )
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
