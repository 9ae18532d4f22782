"""Which cases are played: a core set always, all of them for ``make servers``."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence

from tests.servers.covering import Case, all_pairs, core_set, single_choices

WHOLE = os.environ.get("SERVER_CASES") == "all"
_CORE = {
    "agent": slice(2),
    "gateway": slice(1),
    "audit": slice(3),
    "onboarding": slice(3, 6),
    "device": slice(6, 9),
}
"""Consumer -> which rows of the core set it plays beside the plain server; the client, the quickest, plays all."""


def cases_for(consumer: str) -> Sequence[Case]:
    """The cases that this consumer plays in this run."""
    if WHOLE:
        return _distinct((*single_choices(), *all_pairs()))
    return (Case("plain"), *core_set()[_CORE.get(consumer, slice(None))])


def is_killed(case: Case) -> bool:
    """Whether the consumer is killed in the middle: every second case or so, always the same ones."""
    return zlib.crc32(case.id.encode()) % 2 == 0


def _distinct(cases: Sequence[Case]) -> Sequence[Case]:
    return tuple({case.id: case for case in cases}.values())
