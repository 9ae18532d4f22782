"""Key pairs that share what belongs to no device: provisioning, cleanup, the audit's reading back.

Each request takes the key that may be used soonest. A device has one pair for the whole run instead, as it would in the
field (:func:`~simulator.fleet.plan.key_of`).
Pure: ``now`` comes in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.rate_limit import RateLimit
from simulator.fleet.target.key_quota import KeyQuota
from simulator.keys import Keys


def headers_of(pair: Keys) -> Mapping[str, str]:
    """A key pair as the two headers of the specification ("Authentication")."""
    return {"x-api-key": pair.api_key, "x-secret-key": pair.secret_key.reveal()}


class KeyPool:
    """A pool of key pairs.

    Args:
        pairs: at least one.
    """

    def __init__(self, pairs: Sequence[Keys]) -> None:
        self._headers = [headers_of(pair) for pair in pairs]
        self._quotas = [KeyQuota() for _ in pairs]
        self._turn = 0

    def __len__(self) -> int:
        return len(self._quotas)

    @property
    def refusals(self) -> int:
        """How many 429s came, over all keys."""
        return sum(quota.refusals for quota in self._quotas)

    def headers(self, key: int) -> Mapping[str, str]:
        """What a request with this key carries."""
        return self._headers[key]

    def soonest(self, now: float) -> tuple[int, float]:
        """The key to use next, and how long to wait for it; 0 when it may be used now. Free keys take turns."""
        self._turn += 1
        order = range(self._turn, self._turn + len(self))
        waits = ((max(0.0, self._quotas[turn % len(self)].wait_s(now)), turn) for turn in order)
        wait_s, turn = min(waits)
        return turn % len(self), wait_s

    def taken(self, key: int) -> None:
        """A request with this key goes out."""
        self._quotas[key].take()

    def note_limit(self, key: int, limit: RateLimit | None, now: float) -> None:
        """Note the rest of a key's quota, from the headers of an answer."""
        self._quotas[key].observe(limit, now)

    def refused(self, key: int, retry_after_s: float | None, now: float) -> float:
        """A 429 came for this key: it rests until its wait is over, and the others go on. The wait."""
        return self._quotas[key].refused(retry_after_s, now)
