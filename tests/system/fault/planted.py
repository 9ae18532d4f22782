"""Faults planted into forked agents, so that the harness can be seen to find them: each a change of a fork server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agent.core.commands import HandlerRule
from agent.core.values import Contract, SendOutcome
from agent.runtime import engine
from agent.store.journal import Journal
from agent.store.outbox import Draft, Outbox


def once_runs_again() -> None:
    """An agent that takes every contract for ``idempotent`` after a crash."""
    recover = engine.recover

    def careless(entry: Any, rule: HandlerRule | None, *rest: Any, **options: Any) -> Any:
        if rule is not None and rule.contract is Contract.ONCE:
            rule = replace(rule, contract=Contract.IDEMPOTENT)
        return recover(entry, rule, *rest, **options)

    engine.recover = careless


def forgets_what_is_over() -> None:
    """A journal that deletes what it has reported, though the service may still list it."""
    reported = Journal.reported

    def forgetful(self: Journal, command_ids: Any) -> None:
        ids = list(command_ids)
        reported(self, ids)
        rows = [(each,) for each in ids]
        self._store.call(lambda: self._db.executemany("DELETE FROM command WHERE id = ?", rows), writes=True)

    Journal.reported = forgetful  # type: ignore[method-assign]


def deletes_one_more() -> None:
    """An outbox that deletes the reading after the delivered ones as well, be it there already or the next to come."""
    settle, accept = Outbox.settle, Outbox.accept
    greed: set[int] = set()

    def greedy(self: Outbox, outcome: SendOutcome) -> None:
        greed.update(key + 1 for key in outcome.delivered[-1:])
        settle(self, replace(outcome, delivered=(*outcome.delivered, *greed)))

    def still_greedy(self: Outbox, drafts: Sequence[Draft]) -> None:
        accept(self, drafts)
        if drafts:
            settle(self, SendOutcome(delivered=tuple(greed)))

    Outbox.settle = greedy  # type: ignore[method-assign]
    Outbox.accept = still_greedy  # type: ignore[method-assign]


def sends_under_new_keys() -> None:
    """An uplink whose idempotency keys are of the process, not of the reading."""
    import os

    hand_out = Outbox._hand_out

    def renamed(self: Outbox, keys: Any) -> Any:
        return [
            replace(stored, idempotency_key=f"{os.getpid()}-{stored.idempotency_key}")
            for stored in hand_out(self, keys)
        ]

    Outbox._hand_out = renamed  # type: ignore[method-assign]
