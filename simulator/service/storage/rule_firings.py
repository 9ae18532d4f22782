"""How long the firings of rules are kept: 30 days, and the newest 1,000 of each rule."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, delete, func, select

from simulator.service.storage.tables import rule_firings

KEPT_S: Final = 30 * 86_400
"""A firing is kept for so long."""
PER_RULE_MAX: Final = 1_000
"""Firings of one rule that are kept; a few more until the next time that somebody tidies up."""
PRUNE_ROWS: Final = 5_000


def prune(connection: Connection, now_ms: int) -> int:
    """Delete firings that are too old or of which the rule has too many, a bounded number at a time; how many.

    A rule's ``last_fired_at`` stays, and so do the commands and records that it made.
    """
    c = rule_firings.c
    pruned = list(
        connection.execute(select(c.seq).where(c.fired_at <= now_ms - KEPT_S * 1000).limit(PRUNE_ROWS)).scalars()
    )
    _delete(connection, pruned)
    many = select(c.rule_seq).group_by(c.rule_seq).having(func.count() > PER_RULE_MAX)
    for rule_seq in connection.execute(many).scalars().all():
        left = PRUNE_ROWS - len(pruned)
        if left <= 0:
            break
        mine = select(c.seq).where(c.rule_seq == rule_seq)
        first_kept = mine.order_by(c.seq.desc()).offset(PER_RULE_MAX - 1).limit(1).scalar_subquery()
        over = list(connection.execute(mine.where(c.seq < first_kept).order_by(c.seq).limit(left)).scalars())
        _delete(connection, over)
        pruned += over
    return len(pruned)


def _delete(connection: Connection, seqs: list[int]) -> None:
    if seqs:
        connection.execute(delete(rule_firings).where(rule_firings.c.seq.in_(seqs)))
