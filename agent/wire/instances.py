"""Which run of an agent asks: the header that says so, and what the other side answers to two of one identity.

Each start of an agent has a number that is kept in its state, and a random id. An agent that is restarted comes with a
higher number. Who comes with a number that was there already has a state that went back (a backup, an overlay that
forgets at each boot) or a copy of it. Who comes back after another one has replaced it runs beside that other one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

INSTANCE_HEADER: Final = "Agent-Instance"
"""``NUMBER-ID`` with each request of an agent: how often it has started, and the id of this start."""
CONFLICT_HEADER: Final = "Agent-Conflict"
"""In the answer to a poll: one of the two words below."""
OLDER_STATE: Final = "older-state"
TWO_AGENTS: Final = "two-agents"

_SHAPE: Final = re.compile(r"([0-9]{1,9})-([0-9a-f]{8,32})")


@dataclass(frozen=True, slots=True)
class Instance:
    """One start of an agent.

    Attributes:
        starts: how many starts its state knows, this one included.
        run_id: random, of this start.
    """

    starts: int
    run_id: str

    def __str__(self) -> str:
        return f"{self.starts}-{self.run_id}"

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """The header's value; None where there is none, or another program's."""
        match = _SHAPE.fullmatch(text or "")
        return None if match is None else cls(int(match[1]), match[2])
