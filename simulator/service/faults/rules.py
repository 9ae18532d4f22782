"""The rules that a service has, in the order in which they were added, and what they decide about a request.

Rules are asked in their order. One that fits and is due has its effect and counts a hit. A latency lets the rules after
it be asked, so latencies add up; any other effect ends it: the rules after it are not asked, and count nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from simulator.service.errors import Conflict, NotFound
from simulator.service.faults.model import FaultEffect, FaultLatency, NewFault
from simulator.service.matching import Matcher, RequestFacts
from simulator.service.times import show_time

RULES_MAX: Final = 100
"""Rules at a time."""
_SEEDS: Final = 2**32
FAULTS_MET: Final = "service.faults"
"""In a request's scope: the ids of the faults that it met; :data:`ONE_SHOT` for the one of its header."""
ONE_SHOT: Final = "header"


@dataclass(slots=True)
class FaultRule:
    """One rule, with what has come of it.

    Attributes:
        matched: requests that it was asked about and that fit its match.
        hits: of these, those that met its effect.
    """

    fault_id: str
    wanted: NewFault
    matcher: Matcher
    seed: int
    created_ms: int
    matched: int = 0
    hits: int = 0
    _random: Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = Random(self.seed)  # noqa: S311 - to be repeated, not to be secret

    @property
    def is_used_up(self) -> bool:
        """Whether it has hit as often as it may."""
        limit = self.wanted.times.next
        return limit is not None and self.hits >= limit

    def meets(self, request: RequestFacts) -> bool:
        """Whether this request meets the effect; counts it."""
        if self.wanted.effect.needs_body and request.method == "HEAD":
            return False
        if not self.matcher.matches(request):
            return False
        self.matched += 1
        if not self._is_due():
            return False
        self.hits += 1
        return True

    def _is_due(self) -> bool:
        times = self.wanted.times
        if self.matched <= (times.after or 0) or self.is_used_up:
            return False
        return times.probability is None or self._random.random() < times.probability

    def draw(self, latency: FaultLatency) -> float:
        """How long a request waits, seconds."""
        return draw_latency(latency, self._random)

    def show(self) -> dict[str, Any]:
        """The fault as the control paths answer it."""
        shown = self.wanted.model_dump(mode="json", by_alias=True, exclude_none=True)
        latency = self.wanted.effect.latency
        if self.wanted.times.probability is not None or (latency is not None and latency.is_drawn):
            shown["times"]["seed"] = self.seed
        return {
            "fault_id": self.fault_id,
            **shown,
            "matched": self.matched,
            "hits": self.hits,
            "created_at": show_time(self.created_ms),
        }


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens to one request.

    Attributes:
        fault_ids: of the rules that it met, in their order.
        request_s: what it waits before it is carried out, seconds.
        answer_s: what its answer waits.
        effect: besides; None for none.
    """

    fault_ids: tuple[str, ...] = ()
    request_s: float = 0.0
    answer_s: float = 0.0
    effect: FaultEffect | None = None

    def with_wait(self, fault_id: str, latency: FaultLatency, wait_s: float) -> Decision:
        """The decision with a latency added."""
        before = latency.of == "request"
        return Decision(
            (*self.fault_ids, fault_id),
            self.request_s + (wait_s if before else 0.0),
            self.answer_s + (0.0 if before else wait_s),
        )


class FaultRules:
    """All rules of a service. Only the event loop touches them.

    Attributes:
        live: rules that may still have an effect; a request looks here first.
    """

    def __init__(self) -> None:
        self.live: tuple[FaultRule, ...] = ()
        self._rules: dict[str, FaultRule] = {}
        self._numbers = itertools.count(1)
        self._held: set[asyncio.Future[None]] = set()
        self._closed = False

    def add(self, wanted: NewFault, matcher: Matcher, now_ms: int) -> FaultRule:
        """A new rule, after those that are there.

        Args:
            wanted: the rule as it was sent.
            matcher: its match.
            now_ms: the service's time.

        Raises:
            Conflict: ``fault_limit_reached``.
        """
        if len(self._rules) >= RULES_MAX:
            raise Conflict("fault_limit_reached", f"There are {RULES_MAX} faults already: delete some.")
        seed = wanted.times.seed
        rule = FaultRule(
            f"f{next(self._numbers)}",
            wanted,
            matcher,
            secrets.randbelow(_SEEDS) if seed is None else seed,
            now_ms,
        )
        self._rules[rule.fault_id] = rule
        self._find_live()
        return rule

    def all(self) -> list[FaultRule]:
        """Every rule, in their order."""
        return list(self._rules.values())

    def find(self, fault_id: str) -> FaultRule:
        """The fault with this id.

        Raises:
            NotFound: ``fault_not_found``.
        """
        try:
            return self._rules[fault_id]
        except KeyError:
            raise NotFound("fault_not_found", f"There is no fault {fault_id[:80]!r}.") from None

    def remove(self, fault_id: str) -> None:
        """Delete one rule; what it holds goes on being held.

        Raises:
            NotFound: ``fault_not_found``.
        """
        del self._rules[self.find(fault_id).fault_id]
        self._find_live()

    def clear(self, account: int | None = None) -> None:
        """Delete all rules and let go of every request that is held; of an account, only the rules that name it.

        Args:
            account: its row.
        """
        kept = {} if account is None else {one.fault_id: one for one in self.all() if one.matcher.account != account}
        self._rules = kept
        self._find_live()
        if account is None:
            self._release()

    def close(self) -> None:
        """The service ends: nothing is held any longer."""
        self._closed = True
        self._release()

    @contextlib.contextmanager
    def holding(self) -> Iterator[asyncio.Future[None]]:
        """A future that ends when nothing is to be held any longer."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._closed:
            future.set_result(None)
        self._held.add(future)
        try:
            yield future
        finally:
            self._held.discard(future)
            future.cancel()

    def decide(self, request: RequestFacts, before: Decision | None = None) -> Decision:
        """What happens to a request; counts it.

        Args:
            request: what is known of it.
            before: what is decided already.
        """
        decision = before or Decision()
        for rule in self.live:
            if not rule.meets(request):
                continue
            if rule.is_used_up:
                self._find_live()
            effect = rule.wanted.effect
            if effect.latency is None:
                return Decision((*decision.fault_ids, rule.fault_id), decision.request_s, decision.answer_s, effect)
            decision = decision.with_wait(rule.fault_id, effect.latency, rule.draw(effect.latency))
        return decision

    def _find_live(self) -> None:
        self.live = tuple(rule for rule in self._rules.values() if not rule.is_used_up)

    def _release(self) -> None:
        for future in self._held:
            if not future.done():
                future.set_result(None)


def draw_latency(latency: FaultLatency, random: Random) -> float:
    """How long one request waits, seconds."""
    if latency.min_s is not None and latency.max_s is not None:
        return random.uniform(latency.min_s, latency.max_s)
    return latency.fixed_s or 0.0
