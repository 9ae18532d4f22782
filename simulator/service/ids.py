"""Ids: UUID version 7 (RFC 9562, section 5.7), ascending in time, from a generator that can be seeded."""

from __future__ import annotations

import random

from simulator.service.clock import ServiceClock


class IdSource:
    """Makes ids. With a seed and a clock that stands, the same ids come every time.

    The random bits tell ids apart and guard nothing: every look-up is also by the caller's account.
    """

    __slots__ = ("_clock", "_random", "_seed")

    def __init__(self, clock: ServiceClock, seed: int | None = None) -> None:
        self._clock = clock
        self._seed = seed
        self._random = random.Random(seed)  # noqa: S311 - ids are no secrets

    def restart(self, state: str) -> None:
        """Where a seed makes ids repeatable: from here on they follow from the seed and from this state.

        So none comes again that the state has already, and the same state is followed by the same ids.
        """
        if self._seed is not None:
            self._random.seed(f"{self._seed} {state}")

    def next(self) -> str:
        """Make a new id."""
        now_ms, bits = self._clock.now_ms() & 0xFFFFFFFFFFFF, self._random.getrandbits(74)
        return "%08x-%04x-7%03x-%04x-%012x" % (  # noqa: UP031 - half the time of an f-string here
            now_ms >> 16,
            now_ms & 0xFFFF,
            bits >> 62,
            0x8000 | (bits >> 48 & 0x3FFF),
            bits & 0xFFFFFFFFFFFF,
        )
