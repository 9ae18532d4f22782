"""The enabled rules, and the state of each with each device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from pydantic_core import from_json
from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select, update

from simulator.service.core.rule_machine import Condition, Phase, State
from simulator.service.storage.tables import devices, products, rule_states, rules
from simulator.wire.rules import CommandAction, RecordAction

CHUNK: Final = 500
"""Devices in one look-up."""

Key = tuple[int, int]
"""A device's row and a rule's row."""


@dataclass(frozen=True, slots=True)
class LiveRule:
    """An enabled rule, ready to be compared with readings."""

    seq: int
    manufacturer_seq: int
    product_id: str
    product_seq: int
    condition: Condition
    actions: tuple[CommandAction | RecordAction, ...]


def load_live(connection: Connection) -> list[LiveRule]:
    """Every enabled rule, in the order of creation."""
    statement = (
        select(rules, products.c.id.label("product_id"))
        .join(products, products.c.seq == rules.c.product_seq)
        .where(rules.c.enabled)
        .order_by(rules.c.seq)
    )
    return [_live(row) for row in connection.execute(statement)]


def _live(row: Row[Any]) -> LiveRule:
    trigger = from_json(row.trigger)
    return LiveRule(
        seq=row.seq,
        manufacturer_seq=row.manufacturer_seq,
        product_id=row.product_id,
        product_seq=row.product_seq,
        condition=Condition(trigger["reading"], trigger["op"], trigger["value"], trigger["for_seconds"] * 1000),
        actions=tuple(_KINDS[action["type"]].model_validate(action) for action in from_json(row.actions)),
    )


_KINDS: Final[dict[str, type[CommandAction | RecordAction]]] = {
    "command": CommandAction,
    "record": RecordAction,
}


def products_of(connection: Connection, device_seqs: Iterable[int]) -> dict[int, str]:
    """Device row -> its product's id."""
    found: dict[int, str] = {}
    for chunk in _chunks(device_seqs):
        statement = select(devices.c.seq, devices.c.product_id).where(devices.c.seq.in_(chunk))
        found.update((seq, product_id) for seq, product_id in connection.execute(statement))
    return found


def load(connection: Connection, device_seqs: Iterable[int]) -> dict[Key, State]:
    """All states of these devices."""
    c = rule_states.c
    found: dict[Key, State] = {}
    for chunk in _chunks(device_seqs):
        statement = select(rule_states).where(c.device_seq.in_(chunk))
        for row in connection.execute(statement):
            found[row.device_seq, row.rule_seq] = State(Phase(row.phase), row.since_at, row.observed_at)
    return found


def due(connection: Connection, now_ms: int, limit: int) -> Sequence[Row[Any]]:
    """States whose time has come, in the order of their times."""
    c = rule_states.c
    statement = select(rule_states).where(c.due_at <= now_ms).order_by(c.due_at, c.device_seq, c.rule_seq)
    return connection.execute(statement.limit(limit)).all()


def next_due_ms(connection: Connection) -> int | None:
    """When the next state falls due."""
    statement = select(func.min(rule_states.c.due_at)).where(rule_states.c.due_at.is_not(None))
    return connection.execute(statement).scalar()


_SET: Final[dict[str, Any]] = {
    "phase": bindparam("new_phase"),
    "since_at": bindparam("new_since"),
    "observed_at": bindparam("new_observed"),
    "due_at": bindparam("new_due"),
}
_OF_PAIR: Final = (
    rule_states.c.device_seq == bindparam("of_device"),
    rule_states.c.rule_seq == bindparam("of_rule"),
)
_UPDATE: Final = update(rule_states).where(*_OF_PAIR).values(_SET)
_DELETE: Final = delete(rule_states).where(*_OF_PAIR)


@dataclass(frozen=True, slots=True)
class ChangedState:
    """A state that is to be written."""

    device_seq: int
    rule: LiveRule
    state: State
    due_ms: int | None
    is_new: bool


def save(connection: Connection, moved: Sequence[ChangedState]) -> None:
    """Write states, with one statement for those that are new and one for the others."""
    new = [
        {
            "device_seq": one.device_seq,
            "rule_seq": one.rule.seq,
            "manufacturer_seq": one.rule.manufacturer_seq,
            "phase": one.state.phase.value,
            "since_at": one.state.since_ms,
            "observed_at": one.state.observed_ms,
            "due_at": one.due_ms,
        }
        for one in moved
        if one.is_new
    ]
    changed = [
        {
            "of_device": one.device_seq,
            "of_rule": one.rule.seq,
            "new_phase": one.state.phase.value,
            "new_since": one.state.since_ms,
            "new_observed": one.state.observed_ms,
            "new_due": one.due_ms,
        }
        for one in moved
        if not one.is_new
    ]
    if new:
        connection.execute(insert(rule_states), new)
    if changed:
        connection.execute(_UPDATE, changed)


def forget(connection: Connection, keys: Sequence[Key]) -> None:
    """Delete the states of these pairs of device and rule."""
    if keys:
        connection.execute(_DELETE, [{"of_device": device, "of_rule": rule} for device, rule in keys])


def forget_device(connection: Connection, device_seq: int) -> None:
    """The device is removed: no rule waits for it any more."""
    connection.execute(delete(rule_states).where(rule_states.c.device_seq == device_seq))


def find_device(connection: Connection, device_seq: int) -> Row[Any] | None:
    """The device, if it is still registered."""
    statement = select(devices).where(devices.c.seq == device_seq, devices.c.removed_at.is_(None))
    return connection.execute(statement).one_or_none()


def _chunks(device_seqs: Iterable[int]) -> Iterable[list[int]]:
    left = iter(device_seqs)
    while chunk := list(islice(left, CHUNK)):
        yield chunk
