"""Faults planted into forked agents, so that the harness can be seen to find them: each a change of a fork server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent.adapters.store.journal_rows import JournalRows
from agent.adapters.store.outbox_rows import OutboxRows
from agent.core.commands import HandlerRule
from agent.core.values import Contract, SendOutcome
from agent.runtime import intake


def once_runs_again() -> None:
    """An agent that takes every contract for ``idempotent`` after a crash."""
    recover = intake.recover

    def careless(entry: Any, rule: HandlerRule | None, *rest: Any, **options: Any) -> Any:
        if rule is not None and rule.contract is Contract.ONCE:
            rule = replace(rule, contract=Contract.IDEMPOTENT)
        return recover(entry, rule, *rest, **options)

    intake.recover = careless


def forgets_what_is_over() -> None:
    """A journal that deletes what it has reported, though the service may still list it."""
    reported = JournalRows.reported

    def forgetful(self: JournalRows, command_ids: Any) -> None:
        ids = list(command_ids)
        reported(self, ids)
        self._db.executemany("DELETE FROM command WHERE id = ?", [(each,) for each in ids])

    JournalRows.reported = forgetful  # type: ignore[method-assign]


def deletes_one_more() -> None:
    """An outbox that deletes the reading after the delivered ones as well."""
    settle = OutboxRows.settle

    def greedy(self: OutboxRows, outcome: SendOutcome) -> None:
        more = (max(outcome.delivered) + 1,) if outcome.delivered else ()
        settle(self, replace(outcome, delivered=(*outcome.delivered, *more)))

    OutboxRows.settle = greedy  # type: ignore[method-assign]


def sends_under_new_keys() -> None:
    """An uplink whose idempotency keys are of the process, not of the reading."""
    import os

    hand_out = OutboxRows._hand_out

    def renamed(self: OutboxRows, keys: Any) -> Any:
        return [
            replace(stored, idempotency_key=f"{os.getpid()}-{stored.idempotency_key}")
            for stored in hand_out(self, keys)
        ]

    OutboxRows._hand_out = renamed  # type: ignore[method-assign]
