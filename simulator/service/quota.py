"""The quota: so many requests of one key in one calendar minute (specification, "Limits")."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from simulator.service.answers import Header

WINDOW_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class QuotaState:
    """Where a key stands after this request.

    Attributes:
        exceeded: this request is one too many.
        reset_s: whole seconds until the next minute, 1 to 60.
        headers: the answer's headers about it.
    """

    exceeded: bool
    reset_s: int
    headers: tuple[Header, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """So many requests of one key in a minute, and the headers that say so."""

    per_minute: int
    policy: Header
    header: Header


class Quota:
    """Counts requests by key. Only the present minute is remembered, so it never grows beyond the keys in use.

    Args:
        per_minute: requests of each key of an account that has no limit of its own; 0 = no limit.
    """

    def __init__(self, per_minute: int) -> None:
        self._standard = _make_limit(per_minute)
        self._of_accounts: dict[int, Limit | None] = {}
        self._window = -1
        self._counts: dict[str, int] = {}

    def limit_of(self, account: int) -> Limit | None:
        """What holds for each key of an account; None = no limit."""
        return self._of_accounts.get(account, self._standard)

    def set_limits(self, limits: Mapping[int, int]) -> None:
        """The accounts with a limit of their own (row -> requests in a minute), in place of those before."""
        self._of_accounts = {account: _make_limit(per_minute) for account, per_minute in limits.items()}

    def set_limit(self, account: int, per_minute: int | None) -> None:
        """Give an account a limit of its own; None takes it away, so that the service's holds again."""
        limits = {**self._of_accounts}
        limits.pop(account, None)
        if per_minute is not None:
            limits[account] = _make_limit(per_minute)
        self._of_accounts = limits

    def count(self, key: str, now_ms: int, limit: Limit | None = None) -> QuotaState:
        """Count one request of a key that has a limit: this one, or the service's.

        Raises:
            ValueError: there is no limit to count by.
        """
        limit = limit or self._standard
        if limit is None:
            raise ValueError("there is no limit to count by: look at limit_of() first")
        window, into_ms = divmod(now_ms, WINDOW_MS)
        if window != self._window:
            self._window = window
            self._counts = {}
        used = self._counts[key] = self._counts.get(key, 0) + 1
        left = max(0, limit.per_minute - used)
        reset_s = -((into_ms - WINDOW_MS) // 1000)
        headers: tuple[Header, ...] = (
            limit.policy,
            (b"ratelimit", b'"default";r=%d;t=%d' % (left, reset_s)),
            limit.header,
            (b"x-ratelimit-remaining", b"%d" % left),
            (b"x-ratelimit-reset", b"%d" % ((window + 1) * WINDOW_MS // 1000)),
        )
        return QuotaState(used > limit.per_minute, reset_s, headers)

    def clear(self, keys: Collection[str] | None = None) -> None:
        """Forget the requests of these keys; of every key when None."""
        self._counts = {} if keys is None else {k: n for k, n in self._counts.items() if k not in keys}


def _make_limit(per_minute: int) -> Limit | None:
    if not per_minute:
        return None
    policy = (b"ratelimit-policy", b'"default";q=%d;w=60' % per_minute)
    return Limit(per_minute, policy, (b"x-ratelimit-limit", b"%d" % per_minute))
