"""Rules, as they are changed and read. Where they stand with devices is kept by :mod:`.rule_states`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pydantic_core import from_json, to_json
from sqlalchemy import Connection, Row, delete, func, insert, select, update

from agent.wire.base import JsonObject
from agent.wire.json_text import size_bytes
from agent.wire.limits import COMMAND_PAYLOAD_BYTES
from simulator.service.core.columns import check_payload
from simulator.service.errors import Conflict, invalid_all, not_found, too_large
from simulator.service.storage import databases, devices
from simulator.service.storage.lists import Rows, Window, fetch
from simulator.service.storage.tables import products, rule_firings, rule_states, rules
from simulator.service.times import show_time, show_time_or_none
from simulator.wire.rules import CommandAction, NewRule, NewTrigger, RecordAction, RuleChange

RULES_MAX: Final = 100
"""Rules of one product at most: each reading of its devices is compared with all of them."""

_RULES: Final = select(rules, products.c.id.label("product_id")).join(products, products.c.seq == rules.c.product_seq)


def show(row: Row[Any]) -> JsonObject:
    """The rule record, as the wire has it."""
    return {
        "id": row.id,
        "product_id": row.product_id,
        "name": row.name,
        "enabled": row.enabled,
        "trigger": from_json(row.trigger),
        "actions": from_json(row.actions),
        "last_fired_at": show_time_or_none(row.last_fired_at),
        "created_at": show_time(row.created_at),
        "updated_at": show_time(row.updated_at),
    }


def add(connection: Connection, product: Row[Any], rule: NewRule, rule_id: str, now_ms: int) -> JsonObject:
    """Store a new rule.

    Raises:
        ServiceError: an action names what is not there; ``rule_limit_reached``.
    """
    _check_actions(connection, product, rule.actions)
    mine = select(func.count()).select_from(rules).where(rules.c.product_seq == product.seq)
    if connection.execute(mine).scalar_one() >= RULES_MAX:
        raise Conflict("rule_limit_reached", f"This product has {RULES_MAX} rules: delete one first.")
    connection.execute(
        insert(rules).values(
            id=rule_id,
            manufacturer_seq=product.manufacturer_seq,
            product_seq=product.seq,
            name=rule.name,
            enabled=rule.enabled,
            trigger=_trigger_text(rule.trigger),
            actions=_actions_text(rule.actions),
            created_at=now_ms,
            updated_at=now_ms,
        )
    )
    return show(find(connection, product.manufacturer_seq, rule_id))


def find(connection: Connection, manufacturer_seq: int, rule_id: str) -> Row[Any]:
    """The stored rule with this id.

    Raises:
        NotFound: ``rule_not_found``.
    """
    statement = _RULES.where(rules.c.id == rule_id, rules.c.manufacturer_seq == manufacturer_seq)
    row = connection.execute(statement).one_or_none()
    if row is None:
        raise not_found("rule", rule_id)
    return row


def change(connection: Connection, manufacturer_seq: int, rule_id: str, changes: RuleChange, now_ms: int) -> JsonObject:
    """Replace the members that were given. Another trigger, or being switched, makes the rule begin anew.

    Raises:
        ServiceError: not found, or an action names what is not there.
    """
    row = find(connection, manufacturer_seq, rule_id)
    values: dict[str, Any] = {"updated_at": now_ms}
    if changes.name is not None:
        values["name"] = changes.name
    if changes.enabled is not None:
        values["enabled"] = changes.enabled
    if changes.trigger is not None:
        values["trigger"] = _trigger_text(changes.trigger)
    if changes.actions is not None:
        product = connection.execute(select(products).where(products.c.seq == row.product_seq)).one()
        _check_actions(connection, product, changes.actions)
        values["actions"] = _actions_text(changes.actions)
    if values.get("enabled", row.enabled) != row.enabled or values.get("trigger", row.trigger) != row.trigger:
        connection.execute(delete(rule_states).where(rule_states.c.rule_seq == row.seq))
    connection.execute(update(rules).where(rules.c.seq == row.seq).values(values))
    return show(find(connection, manufacturer_seq, rule_id))


def find_by_name(connection: Connection, product_seq: int, name: str) -> Row[Any] | None:
    """The product's rule of this name, the oldest if it has several."""
    statement = _RULES.where(rules.c.product_seq == product_seq, rules.c.name == name)
    return connection.execute(statement.order_by(rules.c.seq).limit(1)).one_or_none()


def is_as(row: Row[Any], rule: NewRule) -> bool:
    """Whether the stored rule is what ``rule`` says."""
    return bool(
        row.name == rule.name
        and row.enabled == rule.enabled
        and from_json(row.trigger) == rule.trigger.to_wire()
        and from_json(row.actions) == from_json(_actions_text(rule.actions))
    )


def remove(connection: Connection, manufacturer_seq: int, rule_id: str) -> None:
    """Delete a rule with all it did.

    Raises:
        NotFound: there is none.
    """
    row = find(connection, manufacturer_seq, rule_id)
    for table in (rule_states, rule_firings):
        connection.execute(delete(table).where(table.c.rule_seq == row.seq))
    connection.execute(delete(rules).where(rules.c.seq == row.seq))


def drop(connection: Connection, product_seq: int) -> None:
    """The product is deleted, and its rules with it."""
    mine = select(rules.c.seq).where(rules.c.product_seq == product_seq)
    for table in (rule_states, rule_firings):
        connection.execute(delete(table).where(table.c.rule_seq.in_(mine)))
    connection.execute(delete(rules).where(rules.c.product_seq == product_seq))


def list_page(connection: Connection, manufacturer_seq: int, product_seq: int | None, window: Window) -> Rows[Row[Any]]:
    """Rules in the order of their creation, one more than the window takes."""
    c = rules.c
    statement = _RULES.where(c.manufacturer_seq == manufacturer_seq)
    if product_seq is not None:
        statement = statement.where(c.product_seq == product_seq)
    return fetch(connection, statement, window, c.seq)


def check_sizes(actions: Sequence[CommandAction | RecordAction]) -> None:
    """What a rule sends must be no larger than what anybody may send.

    Raises:
        TooLarge: an action's command is.
    """
    for index, action in enumerate(actions):
        if isinstance(action, CommandAction) and size_bytes(action.command_payload) > COMMAND_PAYLOAD_BYTES:
            raise too_large(f"actions.{index}.command_payload", COMMAND_PAYLOAD_BYTES)


def _check_actions(connection: Connection, product: Row[Any], actions: Sequence[CommandAction | RecordAction]) -> None:
    """What can be known now: a device that is named is there, and a record fits its table."""
    faults = []
    for index, action in enumerate(actions):
        if isinstance(action, CommandAction):
            if action.device_id is not None:
                devices.find(connection, product.manufacturer_seq, action.device_id)
            continue
        table = databases.find_table(connection, product, action.table_name)
        _, found = check_payload(databases.columns_of(table), action.data_payload)
        faults += [(f"actions.{index}.{field}", issue) for field, issue in found]
    if faults:
        raise invalid_all(faults)


def _trigger_text(trigger: NewTrigger) -> str:
    return to_json(trigger.to_wire()).decode()


def _actions_text(actions: Sequence[CommandAction | RecordAction]) -> str:
    # Opaque objects stay as they came: ``exclude_none`` would take nulls out of them too.
    shown: list[JsonObject] = []
    for action in actions:
        members = action.model_dump()
        if members.get("device_id", "") is None:
            del members["device_id"]
        shown.append(members)
    return to_json(shown).decode()
