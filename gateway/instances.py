"""How the gateway and the service notice two agents with one identity; see :mod:`agent.wire.instances`."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from agent.wire.instances import OLDER_STATE, TWO_AGENTS, Instance

_log = logging.getLogger(__name__)

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
    """Server side: remembers each device's last agent run, to detect clones and restored backups. For one thread."""

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
