"""This start of the agent among others of the same device.

Its number, and what is said when the state is older than what is known outside, or when another agent runs under the
same identity.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from agent.core.commands import HISTORY_LOST
from agent.errors import StorageError
from agent.wire.instances import CONFLICT_HEADER, OLDER_STATE, TWO_AGENTS, Instance

if TYPE_CHECKING:
    from agent.ports import Clock
    from agent.runtime.health import Health
    from agent.store.journal import Journal

_log = logging.getLogger(__name__)

STARTS: Final = "starts"
"""The journal's setting that counts them."""
PART: Final = "identity"
STATE_PART: Final = "state"

_TWO: Final = (
    "another agent runs under this device's identity, so each command reaches two devices: was the card copied? give "
    "one of them an identity of its own (device-agent enroll)"
)
_OVER_AFTER_S: Final = 900.0


class OwnInstance:
    """Detects an older state directory, or a second agent of the same device. Thread-safe.

    Args:
        journal: loses its claim to know all when the state turns out to be older.
        health: shows both.
        clock: for how long ago another agent was seen.

    Attributes:
        instance: sent with each request.
    """

    def __init__(self, journal: Journal, health: Health, clock: Clock) -> None:
        self._journal = journal
        self._health = health
        self._clock = clock
        count = 0
        with suppress(StorageError):  # a disk that refuses is nothing to stop for
            before = journal.setting(STARTS) or ""
            next_one = 1 + (int(before) if before.isdecimal() else 0)
            journal.put_setting(STARTS, str(next_one))
            count = next_one
        self.instance = Instance(count, uuid.uuid4().hex[:16])
        self._is_older = False
        self._two_at_s: float | None = None

    def read(self, headers: Mapping[str, str]) -> None:
        """The headers of a good answer; to a poll, they come before what it lists is judged.

        Raises:
            StorageError: it cannot be kept that the state is older.
        """
        conflict, now_s = headers.get(CONFLICT_HEADER), self._clock.now().monotonic_s
        if conflict == OLDER_STATE:
            self.is_older("the service knows a later start of this agent")
        elif conflict == TWO_AGENTS:
            if self._two_at_s is None:
                _log.error("identity=two_agents %s", _TWO)
            self._two_at_s = now_s
            self._health.put(PART, "two_agents", _TWO)
        elif self._two_at_s is not None and now_s - self._two_at_s > _OVER_AFTER_S:
            self._two_at_s = None
            _log.info("identity=ok no other agent was seen for %.0f s", _OVER_AFTER_S)
            self._health.put(PART, "ok")

    def is_older(self, why: str) -> None:
        """The state is older than what is known outside: what may have run is not run again.

        Raises:
            StorageError: that cannot be kept.
        """
        if self._is_older:
            return
        self._journal.put_setting(HISTORY_LOST, "1")
        self._is_older = True
        text = (
            f"the state directory is older than this device's last life, or a copy of another one's: {why}; commands "
            "that may have run are not run again. Let state_dir lie where it survives a restart (device-agent doctor)"
        )
        _log.error("state=older %s", text)
        self._health.put(STATE_PART, "older", text)
