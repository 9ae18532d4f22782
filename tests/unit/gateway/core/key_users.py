"""A budget against the service's own limiter on virtual time, for tests."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agent.wire.rate_limit import read_rate_limit
from gateway.core.budget import Budget, Grant, Kind, Wait
from simulator.service.quota import Limit, Quota

GAP_S = 0.02
"""Between two requests of a kind that may go on: what a round trip over a few connections amounts to."""


@dataclass
class KeyUsers:
    """One budget and whoever else uses the key.

    Attributes:
        hungry: kinds that always want one more request.
        latency_s: the next request's time to the service, or the next answer's back.
        offset_s: the service's clock minus ours.
        headers: the service tells its quota.
        retry_after: its 429s tell how long to wait.
        loses: whether the next answer gets lost; the request has been counted by then.
    """

    quota: int
    hungry: Sequence[Kind] = (Kind.COMMANDS, Kind.RESULTS, Kind.READINGS)
    latency_s: Callable[[], float] = lambda: 0.03
    offset_s: float = 17.3
    others_per_s: float = 0.0
    headers: bool = True
    retry_after: bool = True
    loses: Callable[[], bool] = lambda: False
    budget: Budget = field(default_factory=Budget)
    now_s: float = 0.0
    counted: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    refused: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    answered: Counter[Kind] = field(default_factory=Counter)
    granted_at: list[tuple[float, Kind]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.become(self.quota)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        for kind in self.hungry:
            self._at(0.0, lambda kind=kind: self._ask(kind))
        if self.others_per_s:
            self._at(0.0, self._other)

    def run(self, until_s: float) -> KeyUsers:
        """Go on until then."""
        while self._events and self._events[0][0] <= until_s:
            self.now_s, _, happen = heapq.heappop(self._events)
            happen()
        self.now_s = until_s
        return self

    def want(self, kind: Kind, count: int = 1) -> None:
        """This many requests of a kind, from now on."""
        for _ in range(count):
            self._at(self.now_s, lambda: self._ask(kind, again=False))

    def want_always(self, kind: Kind) -> None:
        """One more request of a kind after the other, from now on."""
        self._at(self.now_s, lambda: self._ask(kind))

    def become(self, quota: int) -> None:
        """The service's quota is another one from now on."""
        self._limiter = Quota(quota)
        # The service takes 0 for no limit at all; here it is a key that gets nothing.
        policy = (b"ratelimit-policy", b'"default";q=%d;w=60' % quota)
        self._limit = Limit(quota, policy, (b"x-ratelimit-limit", b"%d" % quota))

    @property
    def refused_share(self) -> float:
        """429s among our requests."""
        refused = sum(self.refused.values())
        return refused / max(1, refused + sum(self.counted.values()))

    def _at(self, at_s: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._numbers), happen))

    def _ask(self, kind: Kind, *, again: bool = True) -> None:
        answer = self.budget.ask(kind, self.now_s)
        if isinstance(answer, Wait):
            assert answer.until_s > self.now_s, "asking again at once would spin"
            self._at(answer.until_s, lambda: self._ask(kind, again=again))
            return
        self.granted_at.append((self.now_s, kind))
        self._at(self.now_s + self.latency_s(), lambda: self._serve(answer))
        if again:
            self._at(self.now_s + GAP_S, lambda: self._ask(kind))

    def _other(self) -> None:
        self._limiter.count("key", self._service_ms(), self._limit)
        self._at(self.now_s + 1 / self.others_per_s, self._other)

    def _service_ms(self) -> int:
        return int((self.now_s + self.offset_s) * 1000)

    def _serve(self, grant: Grant) -> None:
        state = self._limiter.count("key", self._service_ms(), self._limit)
        minute = self._service_ms() // 60_000
        (self.refused if state.exceeded else self.counted)[minute] += 1
        announced = read_rate_limit({n.decode(): v.decode() for n, v in state.headers}) if self.headers else None
        retry_after_s = float(state.reset_s) if self.retry_after else None
        if self.loses():
            self._at(self.now_s + 30.0, lambda: self.budget.lost(grant, self.now_s))
            return

        def answer() -> None:
            if state.exceeded:
                self.budget.refused(grant, self.now_s, retry_after_s, announced)
            else:
                self.budget.answered(grant, self.now_s, announced)
                self.answered[grant.kind] += 1

        self._at(self.now_s + self.latency_s(), answer)
