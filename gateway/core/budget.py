"""One key's quota, divided: who may make the next request to the service, and when.

The service counts the requests of a key in fixed minutes and answers 429 beyond the quota (specification, "Limits").
The quota's number is not specified: it is as the headers announce it (:mod:`gateway.core.quota_window`). Without them
requests are made until a 429 comes, and none while that lasts.

Handled here: no more requests in a window than are left in it, those under way counted as made; requests spread over
the window, so that a command in its last second still finds one; a share for each kind of request, lent while it is not
used, so that no kind starves; silence after a 429.

Never handled here: which request is the next one of its kind (:mod:`gateway.core.fair_polling`,
:mod:`agent.core.outbox`), failures other than 429 (:mod:`agent.core.backoff`), waiting.

Therefore the caller must ask before *every* request that the service counts, report exactly once what became of each
:class:`Grant`, take all times from one monotonic clock, and use a budget from one thread at a time.

How it works. What is left of the window accrues evenly over its rest and is poured into one bucket for each kind, by
share. What a full bucket cannot take flows into the others: so shares are lent. A bucket holds a few seconds' worth, so
a kind that was silent may begin with a small burst.

Source: token buckets as in J. Turner, "New Directions in Communications", IEEE Communications Magazine, 1986; sharing
by weight with lending as in S. Floyd and V. Jacobson, "Link-sharing and Resource Management Models for Packet
Networks", 1995.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agent.core.backoff import RETRY_AFTER_CAP_S
from agent.wire.rate_limit import RateLimit
from gateway.core.quota_window import QuotaWindow

BURST_S: Final = 3.0
"""How many seconds' worth of its share a kind may save up."""

PROBE_S: Final = 0.1
"""Until an answer has come that is no 429, one request is made at a time; others ask again after this, seconds."""

_SHORTEST_WAIT_S: Final = 0.01
# After a 429 that asks for no particular wait: the first one, doubling up to a window.
_FIRST_SILENCE_S: Final = 1.0
# A request whose end was not reported counts as lost after this.
_FORGET_S: Final = 600.0
_WHOLE: Final = 1 - 1e-9


class Kind(StrEnum):
    """The purpose of a request."""

    COMMANDS = "commands"
    """Asking which commands a device has, after a hint or in turn: that is how commands get to devices."""
    RESULTS = "results"
    """Telling the service what became of a command."""
    READINGS = "readings"
    """Sensor data, one reading or a batch."""
    UPKEEP = "upkeep"
    """Everything else: the list of devices, the table for results, opening the stream of events."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Weights by which the quota is divided when all kinds need more than they get: any numbers above 0."""

    commands: float = 0.45
    results: float = 0.30
    readings: float = 0.20
    upkeep: float = 0.05

    def __post_init__(self) -> None:
        if min(self.commands, self.results, self.readings, self.upkeep) <= 0:
            raise ValueError("every share must be above 0, or its kind of request would never be made")

    def parts(self) -> dict[Kind, float]:
        """Each kind's part; together 1."""
        weights = {
            Kind.COMMANDS: self.commands,
            Kind.RESULTS: self.results,
            Kind.READINGS: self.readings,
            Kind.UPKEEP: self.upkeep,
        }
        whole = sum(weights.values())
        return {kind: weight / whole for kind, weight in weights.items()}


@dataclass(frozen=True, slots=True)
class Grant:
    """One request may be made now. Give it back to :meth:`Budget.answered`, ``refused``, ``lost`` or ``unused``.

    Attributes:
        number: ascending in the order of granting.
        at_s: when it was granted.
    """

    number: int
    kind: Kind
    at_s: float


@dataclass(frozen=True, slots=True)
class Wait:
    """No grant now: ask again at ``until_s``, always later than the moment of asking. To ask earlier does no harm."""

    until_s: float


@dataclass(frozen=True, slots=True)
class BudgetState:
    """Where the budget stands, for status and metrics.

    Attributes:
        quota: requests in one window; None when the service announces none.
        left: requests that may still be made in this window; None without a quota.
        ends_in_s: until the window ends, seconds; 0 without a quota.
        blocked_s: how long a 429 still keeps everything waiting, seconds; 0 when nothing does.
        granted: kind -> requests granted, ever.
        refused: 429s, ever.
    """

    quota: int | None
    left: int | None
    ends_in_s: float
    blocked_s: float
    granted: Mapping[Kind, int]
    refused: int


class Budget:
    """The quota of one API key, divided among kinds of requests.

    Args:
        shares: how it is divided when it is short.
    """

    def __init__(self, shares: Shares | None = None) -> None:
        self._parts = (shares or Shares()).parts()
        self._window = QuotaWindow()
        self._tokens = dict.fromkeys(Kind, 0.0)
        self._caps = dict.fromkeys(Kind, 1.0)
        self._caps_for_per_s = 0.0
        self._poured_s = 0.0
        self._newest = 0
        self._pending: dict[int, Grant] = {}
        self._has_answers = False
        self._blocked_until_s = float("-inf")
        self._silence_s = _FIRST_SILENCE_S
        self._granted = dict.fromkeys(Kind, 0)
        self._refused = 0

    # --- asking -------------------------------------------------------------------------------------------------------

    def ask(self, kind: Kind, now_s: float) -> Grant | Wait:
        """May one request of this kind be made now?"""
        self._advance(now_s)
        if now_s < self._blocked_until_s:
            return Wait(self._blocked_until_s)
        if not self._has_answers and self._pending:
            return Wait(now_s + PROBE_S)
        if self._window.quota is not None:
            if self._spendable < 1:
                return Wait(max(self._window.ends_s, now_s + _SHORTEST_WAIT_S))
            if self._tokens[kind] < _WHOLE:
                return Wait(now_s + self._until_token_s(kind, now_s))
            self._tokens[kind] -= 1
        self._newest += 1
        self._granted[kind] += 1
        grant = self._pending[self._newest] = Grant(self._newest, kind, now_s)
        return grant

    def state(self, now_s: float) -> BudgetState:
        """The state of the budget now: what is left, and of which window."""
        self._advance(now_s)
        has_quota = self._window.quota is not None
        return BudgetState(
            self._window.quota,
            max(0, self._spendable) if has_quota else None,
            max(0.0, self._window.ends_s - now_s) if has_quota else 0.0,
            max(0.0, self._blocked_until_s - now_s),
            dict(self._granted),
            self._refused,
        )

    # --- what became of a request -------------------------------------------------------------------------------------

    def answered(self, grant: Grant, now_s: float, announced: RateLimit | None = None) -> None:
        """An answer other than 429 came, good or bad.

        Args:
            grant: the request.
            now_s: when the answer came; for one that is held open, when its headers came.
            announced: what its headers say (:func:`agent.wire.rate_limit.read_rate_limit`); None when nothing.
        """
        self._end(grant, now_s)
        if grant.at_s >= self._blocked_until_s:
            self._silence_s = _FIRST_SILENCE_S
        had_quota = self._window.quota is not None
        self._window.answered(grant.number, self._newest, now_s, announced)
        self._fill_at_first(had_quota=had_quota, now_s=now_s)

    def refused(
        self, grant: Grant, now_s: float, retry_after_s: float | None = None, announced: RateLimit | None = None
    ) -> None:
        """429 came: no request is granted until it is over.

        Args:
            grant: the request.
            now_s: when the answer came.
            retry_after_s: what the service asked for; None takes it out of ``announced``, else doubles from 1 s to a
                window.
            announced: what its headers say.
        """
        self._end(grant, now_s)
        self._has_answers = self._window.quota is not None  # else one asks first whether it is over
        self._refused += 1
        asked_s = retry_after_s if retry_after_s is not None or announced is None else announced.reset_s
        wait_s = self._silence_s if asked_s is None else min(max(asked_s, _FIRST_SILENCE_S), RETRY_AFTER_CAP_S)
        if grant.at_s >= self._blocked_until_s:  # not one of several that were under way together
            self._silence_s = min(self._window.window_s, 2 * self._silence_s)
        self._blocked_until_s = max(self._blocked_until_s, now_s + wait_s)
        had_quota = self._window.quota is not None
        self._window.refused(grant.number, self._newest, now_s, announced, wait_s=wait_s)
        self._fill_at_first(had_quota=had_quota, now_s=now_s)

    def lost(self, grant: Grant, now_s: float) -> None:
        """Note a request without an answer: the service may have counted it, so it counts as made."""
        self._advance(now_s)
        if self._pending.pop(grant.number, None) is not None:
            self._window.spent()

    def unused(self, grant: Grant, now_s: float) -> None:
        """The request was certainly not sent: nothing to do, or no connection."""
        self._advance(now_s)
        if self._pending.pop(grant.number, None) is not None:
            self._granted[grant.kind] -= 1
            self._tokens[grant.kind] = min(self._caps[grant.kind], self._tokens[grant.kind] + 1)

    def _end(self, grant: Grant, now_s: float) -> None:
        self._advance(now_s)
        self._pending.pop(grant.number, None)
        self._has_answers = True

    # --- buckets ------------------------------------------------------------------------------------------------------

    @property
    def _spendable(self) -> int:
        return self._window.left - len(self._pending)

    def _fill_at_first(self, *, had_quota: bool, now_s: float) -> None:
        """A quota that has just become known finds full buckets: until now nothing was spent out of them."""
        if not had_quota and self._window.quota is not None:
            self._size_buckets()
            self._tokens = dict(self._caps)
            self._poured_s = now_s

    def _size_buckets(self) -> None:
        even_per_s = self._window.even_per_s
        if even_per_s != self._caps_for_per_s:
            self._caps_for_per_s = even_per_s
            self._caps = {kind: max(1.0, part * even_per_s * BURST_S) for kind, part in self._parts.items()}

    def _advance(self, now_s: float) -> None:
        """Bring window and buckets to this instant."""
        while self._pending:
            oldest = next(iter(self._pending.values()))
            if now_s - oldest.at_s <= _FORGET_S:
                break
            del self._pending[oldest.number]
        if self._window.quota is None:
            return
        self._share_out(min(now_s, self._window.ends_s))
        began_s = self._window.roll(now_s, self._newest)
        if began_s is not None:
            self._poured_s = began_s
            self._share_out(now_s)

    def _share_out(self, now_s: float) -> None:
        elapsed_s = now_s - self._poured_s
        if elapsed_s <= 0:
            return
        self._size_buckets()
        amount = self._window.spread_per_s(self._poured_s, len(self._pending)) * elapsed_s
        self._poured_s = now_s
        while amount > 0 and (unfilled := self._unfilled_buckets()):
            per_part = amount / sum(self._parts[kind] for kind in unfilled)
            amount = 0.0
            for kind in unfilled:
                level = self._tokens[kind] + per_part * self._parts[kind]
                self._tokens[kind] = min(level, self._caps[kind])
                amount += level - self._tokens[kind]

    def _unfilled_buckets(self) -> list[Kind]:
        return [kind for kind, cap in self._caps.items() if self._tokens[kind] < cap]

    def _until_token_s(self, kind: Kind, now_s: float) -> float:
        """When this kind's next token is there at the earliest, seconds from now; at the window's end all is new."""
        part = self._parts[kind] / sum(self._parts[each] for each in self._unfilled_buckets())
        per_s = part * self._window.spread_per_s(now_s, len(self._pending))
        rest_s = self._window.ends_s - now_s
        return max(_SHORTEST_WAIT_S, min(rest_s, (1 - self._tokens[kind]) / per_s) if per_s > 0 else rest_s)
