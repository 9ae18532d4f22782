"""Firings of rules: what came of each action. They are kept for 30 days, and the newest 1,000 of each rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pydantic_core import from_json, to_json
from sqlalchemy import Connection, Row, delete, func, insert, select, update

from agent.wire.base import JsonObject
from simulator.service.storage.lists import Rows, Window, fetch
from simulator.service.storage.rule_states import LiveRule
from simulator.service.storage.tables import devices, rule_firings, rules
from simulator.service.times import show_time

KEPT_S: Final = 30 * 86_400
"""A firing is kept for so long."""
PER_RULE_MAX: Final = 1_000
"""Firings of one rule that are kept; a few more until the next time that somebody tidies up."""
PRUNE_ROWS: Final = 5_000


def add(
    connection: Connection,
    rule: LiveRule,
    device_seq: int,
    outcomes: Sequence[JsonObject],
    *,
    firing_id: str,
    now_ms: int,
) -> None:
    """Store that a rule fired, and what came of each of its actions."""
    connection.execute(
        insert(rule_firings).values(
            id=firing_id,
            manufacturer_seq=rule.manufacturer_seq,
            rule_seq=rule.seq,
            device_seq=device_seq,
            fired_at=now_ms,
            actions=to_json(outcomes).decode(),
        )
    )
    connection.execute(update(rules).where(rules.c.seq == rule.seq).values(last_fired_at=now_ms))


def list_page(connection: Connection, rule_seq: int, window: Window) -> Rows[Row[Any]]:
    """Firings of a rule, one more than the window takes."""
    c = rule_firings.c
    statement = (
        select(rule_firings, devices.c.id.label("device_id"))
        .join(devices, devices.c.seq == c.device_seq)
        .where(c.rule_seq == rule_seq)
    )
    return fetch(connection, statement, window, c.seq)


def show(row: Row[Any], rule_id: str) -> JsonObject:
    """One time that a rule fired."""
    return {
        "id": row.id,
        "rule_id": rule_id,
        "device_id": row.device_id,
        "fired_at": show_time(row.fired_at),
        "actions": from_json(row.actions),
    }


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
