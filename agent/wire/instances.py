"""Which run of an agent asks: the header that says so, and what the other side answers to two of one identity.

Each start of an agent has a number that is kept in its state, and a random id. An agent that is restarted comes with a
higher number. Who comes with a number that was there already has a state that went back (a backup, an overlay that
forgets at each boot) or a copy of it. Who comes back after another one has replaced it runs beside that other one.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, Self

_log = logging.getLogger(__name__)

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


# --- the server's side ------------------------------------------------------------------------------------------------

_SAID: Final = {
    OLDER_STATE: "its agent's state went back: a backup, a copied card, or a state directory that is lost at each boot",
    TWO_AGENTS: "two agents run under this one identity, so each command reaches two devices: was a card copied?",
}
# Two agents are reported for this long after the last switch from one to the other.
_TWO_FOR_S: Final = 600.0
_EARLIER_MAX: Final = 8
_DEVICES_MAX: Final = 100_000


@dataclass(slots=True)
class _Seen:
    now: Instance
    is_older: bool = False
    said: str | None = None
    earlier: list[str] = field(default_factory=list)
    two_until_s: float | None = None


class InstanceWatch:
    """Remembers each device's last agent run, to detect clones and restored backups. For one thread."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, _Seen] = OrderedDict()

    def saw(self, device_id: str, header: str | None, now_s: float) -> str | None:
        """The conflict that this request shows, a value of :data:`CONFLICT_HEADER`; None for none.

        Args:
            device_id: who asks.
            header: the value of :data:`INSTANCE_HEADER`.
            now_s: the monotonic clock, seconds.
        """
        asks = Instance.parse(header)
        if asks is None:
            return None
        seen = self._seen.setdefault(device_id, _Seen(asks))
        self._seen.move_to_end(device_id)
        if len(self._seen) > _DEVICES_MAX:
            self._seen.popitem(last=False)
        if asks.run_id != seen.now.run_id:
            if asks.run_id in seen.earlier:
                seen.earlier.remove(asks.run_id)
                seen.two_until_s = now_s + _TWO_FOR_S
                seen.is_older = False
            else:
                seen.is_older = asks.starts <= seen.now.starts
            seen.earlier = [*seen.earlier, seen.now.run_id][-_EARLIER_MAX:]
            seen.now = asks
        conflict = OLDER_STATE if seen.is_older else None
        if seen.two_until_s is not None and now_s < seen.two_until_s:
            conflict = TWO_AGENTS
        if conflict is not None and conflict != seen.said:
            _log.warning("device=%s identity=%s %s", device_id, conflict, _SAID[conflict])
        seen.said = conflict
        return conflict
