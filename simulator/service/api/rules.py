"""Rules (specification, "Other groups"): a reading compared with a value, and what is done when it meets it.

A rule fires once when its condition has held for ``for_seconds``, and again only after a reading that does not meet it.
Where each rule stands with each device is kept in memory: after a restart every rule begins anew.
"""

from __future__ import annotations

import heapq
import logging
import operator
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import Query, Response
from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from agent.wire.encoding import encode_json
from agent.wire.limits import COMMAND_PAYLOAD_BYTES
from agent.wire.models import JsonObject
from gateway.client import SendCommand
from simulator.service import scopes
from simulator.service.api.commands import queue
from simulator.service.api.database import add_record, find_columns
from simulator.service.api.devices import find_device
from simulator.service.api.products import find_product, vocabulary
from simulator.service.columns import keep_payload
from simulator.service.db import insert, one, update
from simulator.service.errors import ApiError, conflict, invalid_all, not_found, too_large
from simulator.service.http import Call, CallDep, Json, Router, answers, created, extends, no_content
from simulator.service.paging import Page, PageQuery, page
from simulator.service.payload_checks import check_payload
from simulator.service.times import show_time, show_time_or_none
from simulator.wire import paths
from simulator.wire.models import CommandAction, NewAction, NewRule, NewTrigger, RecordAction, Rule, RuleChange

if TYPE_CHECKING:
    from simulator.service.service import Service

log = logging.getLogger(__name__)
router = Router(tag="rules", scope=scopes.RULES)

MANAGEMENT: Final = "rule-management"
"""Extension: creating, reading, changing and deleting single rules; the specification has the list alone."""
RULES_MAX: Final = 100
"""Rules of one product at most: each reading of its devices is compared with all of them."""
LATE_MS: Final = 15 * 60_000
"""A reading that was taken longer ago ends a condition; it begins none and fires nothing."""
_TIMERS_AT_ONCE: Final = 500
_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
_ACTIONS: Final = TypeAdapter(tuple[NewAction, ...])


class RuleQuery(PageQuery):
    """Of the list of rules."""

    product_id: str | None = None


# --- endpoints --------------------------------------------------------------------------------------------------


@router.get(paths.RULES, response_model=Page[Rule], responses=answers(404))
async def list_rules(call: CallDep, query: Annotated[RuleQuery, Query()]) -> Response:
    """The account's rules, in the order of creation."""
    statement, values = "SELECT * FROM rules WHERE account = ?", list[Any]([call.account])
    if query.product_id is not None:
        find_product(call.db.sql, call.account, query.product_id)
        statement, values = f"{statement} AND product_id = ?", [*values, query.product_id]
    return page(call, query, statement, values, _show)


@router.post(
    paths.RULES, status_code=201, response_model=Rule, responses=answers(404, 409), openapi_extra=extends(MANAGEMENT)
)
async def create_rule(call: CallDep, body: NewRule) -> Response:
    """Create a rule. It fires when a reading of a device of its product has met the trigger for `for_seconds`, and
    again only after a reading that does not."""
    product = find_product(call.db.sql, call.account, body.product_id)
    await check_payloads(call.service, call.account, vocabulary(product), body.actions)
    with call.db.write() as sql:
        rule = add_rule(call.service, sql, call.account, body, call.now_ms)
    return created(_show(rule), paths.rule(rule["id"]))


@router.get(paths.RULE, response_model=Rule, responses=answers(404), openapi_extra=extends(MANAGEMENT))
async def show_rule(call: CallDep, rule_id: str) -> Response:
    """One rule."""
    return Json(_show(_find(call, rule_id)))


@router.put(paths.RULE, response_model=Rule, responses=answers(404), openapi_extra=extends(MANAGEMENT))
async def change_rule(call: CallDep, rule_id: str, body: RuleChange) -> Response:
    """Change the given fields of a rule; with another trigger, or switched off or on, it begins anew."""
    product = find_product(call.db.sql, call.account, _find(call, rule_id)["product_id"])
    await check_payloads(call.service, call.account, vocabulary(product), body.actions or ())
    with call.db.write() as sql:
        replace_rule(call.service, sql, _find(call, rule_id), body, call.now_ms)
    return Json(_show(_find(call, rule_id)))


@router.delete(paths.RULE, status_code=204, responses=answers(404), openapi_extra=extends(MANAGEMENT))
async def delete_rule(call: CallDep, rule_id: str) -> Response:
    """Delete a rule; the commands that it sent stay."""
    rule = _find(call, rule_id)
    with call.db.write() as sql:
        sql.execute("DELETE FROM rules WHERE row = ?", [rule["row"]])
    call.service.rules.begin_anew(rule)
    return no_content()


def add_rule(service: Service, sql: sqlite3.Connection, account: int, rule: NewRule, now_ms: int) -> sqlite3.Row:
    """Store a new rule of a product that is there; its row.

    Raises:
        ApiError: an action names what is not there or does not fit; ``rule_limit_reached``.
    """
    _check_actions(sql, account, rule.product_id, rule.actions)
    count = sql.execute("SELECT count(*) FROM rules WHERE product_id = ?", [rule.product_id]).fetchone()[0]
    if count >= RULES_MAX:
        raise conflict("rule_limit_reached", f"This product has {RULES_MAX} rules: delete one first.")
    row = insert(
        sql,
        "rules",
        id=service.ids.next(),
        account=account,
        product_id=rule.product_id,
        name=rule.name,
        enabled=rule.enabled,
        trigger=_trigger_text(rule.trigger),
        actions=_actions_text(rule.actions),
        created_at=now_ms,
        updated_at=now_ms,
    )
    found: sqlite3.Row = sql.execute("SELECT * FROM rules WHERE row = ?", [row]).fetchone()
    return found


def replace_rule(service: Service, sql: sqlite3.Connection, rule: sqlite3.Row, change: RuleChange, now_ms: int) -> bool:
    """Replace the members that are given; whether anything differs. See :func:`add_rule` for what is raised."""
    values: dict[str, Any] = {}
    if change.name is not None:
        values["name"] = change.name
    if change.enabled is not None:
        values["enabled"] = int(change.enabled)
    if change.trigger is not None:
        values["trigger"] = _trigger_text(change.trigger)
    if change.actions is not None:
        _check_actions(sql, rule["account"], rule["product_id"], change.actions)
        values["actions"] = _actions_text(change.actions)
    differing = {name for name, value in values.items() if rule[name] != value}
    if differing:
        update(sql, "rules", rule["row"], **values, updated_at=now_ms)
    if differing & {"enabled", "trigger"}:
        service.rules.begin_anew(rule)
    return bool(differing)


async def check_payloads(
    service: Service,
    account: int,
    vocabulary_: Sequence[Mapping[str, Any]],
    actions: Sequence[CommandAction | RecordAction],
) -> None:
    """With ``--validate-commands``, check what a rule will send. It is not checked again when the rule fires.

    Args:
        vocabulary_: of the rule's product.
        actions: of the rule.

    Raises:
        ApiError: the vocabulary of the product, or of that of an action's device, does not have it.
    """
    if not service.config.validate_commands:
        return
    for action in actions:
        words = vocabulary_
        if isinstance(action, RecordAction):
            continue
        if action.device_id is not None:
            device = find_device(service.db.sql, account, action.device_id)
            words = vocabulary(find_product(service.db.sql, account, device["product_id"]))
        await check_payload(service.payload_checker, words, action.command_payload)


def _check_actions(
    sql: sqlite3.Connection, account: int, product_id: str, actions: Sequence[CommandAction | RecordAction]
) -> None:
    """What can be known now: a device that is named is there, a record fits its table, a command is not too large."""
    problems = []
    for index, action in enumerate(actions):
        if isinstance(action, RecordAction):
            _, found = keep_payload(find_columns(sql, product_id, action.table_name), action.data_payload)
            problems += [(f"actions.{index}.{field}", issue) for field, issue in found]
            continue
        if len(encode_json(action.command_payload)) > COMMAND_PAYLOAD_BYTES:
            raise too_large(f"actions.{index}.command_payload", COMMAND_PAYLOAD_BYTES)
        if action.device_id is not None:
            find_device(sql, account, action.device_id)
    if problems:
        raise invalid_all(problems)


def _find(call: Call, rule_id: str) -> sqlite3.Row:
    row = one(call.db.sql, "SELECT * FROM rules WHERE id = ? AND account = ?", [rule_id, call.account])
    if row is None:
        raise not_found("rule", rule_id)
    return row


def _show(row: sqlite3.Row) -> JsonObject:
    return {
        "id": row["id"],
        "product_id": row["product_id"],
        "name": row["name"],
        "enabled": bool(row["enabled"]),
        "trigger": from_json(row["trigger"]),
        "actions": from_json(row["actions"]),
        "last_fired_at": show_time_or_none(row["last_fired_at"]),
        "created_at": show_time(row["created_at"]),
        "updated_at": show_time(row["updated_at"]),
    }


def _trigger_text(trigger: NewTrigger) -> str:
    return to_json(trigger.to_wire()).decode()


def _actions_text(actions: Sequence[CommandAction | RecordAction]) -> str:
    # Opaque objects stay as they came: ``exclude_none`` would take nulls out of them too.
    shown = [action.model_dump() for action in actions]
    for members in shown:
        if members.get("device_id", "") is None:
            del members["device_id"]
    return to_json(shown).decode()


# --- firing -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Standing:
    """Where a rule stands with a device; times in milliseconds since the epoch.

    Attributes:
        observed_ms: when the latest reading was taken that counted.
        since_ms: from when on the condition holds; None when it does not.
        fired: it has fired, and the condition has not ended since.
    """

    observed_ms: int
    since_ms: int | None = None
    fired: bool = False

    def due_ms(self, for_ms: int) -> int | None:
        """When the rule fires if no further reading comes."""
        return None if self.since_ms is None or self.fired else self.since_ms + for_ms


class Rules:
    """Fires rules, by readings and by time, in the transaction of the reading."""

    def __init__(self, service: Service) -> None:
        self._service = service
        # (account, rule) -> device -> standing, each by row.
        self._standings: dict[tuple[int, int], dict[int, _Standing]] = {}
        self._timers: list[tuple[int, int, int]] = []  # heap of (due_ms, device, rule); what is outdated is passed over
        service.timers.add(self.next_due_ms, self.run_due)
        service.on_reset(self.forget)

    def begin_anew(self, rule: sqlite3.Row) -> None:
        """Forget where the rule stands with all devices."""
        self._standings.pop((rule["account"], rule["row"]), None)

    def forget(self, account: int | None) -> None:
        """What an account has, or with None everything, was deleted or replaced."""
        for key in [key for key in self._standings if account in {None, key[0]}]:
            del self._standings[key]
        if account is None:
            self._timers.clear()

    def observe(self, sql: sqlite3.Connection, device: sqlite3.Row, sensor_data: JsonObject, recorded_ms: int) -> None:
        """A reading was stored: fire the rules of the device's product that it meets.

        Args:
            sql: in the block that stores it.
            device: its row.
            sensor_data: the readings by name.
            recorded_ms: when it was taken, as the device says. A time to come counts as now.
        """
        now_ms = self._service.clock.now_ms()
        select = "SELECT * FROM rules WHERE product_id = ? AND enabled ORDER BY row"
        for rule in sql.execute(select, [device["product_id"]]).fetchall():
            trigger = from_json(rule["trigger"])
            value = sensor_data.get(trigger["reading"])
            if value is None:
                continue
            devices = self._standings.setdefault((rule["account"], rule["row"]), {})
            standing = devices.setdefault(device["row"], _Standing(min(recorded_ms, now_ms)))
            for_ms = trigger["for_seconds"] * 1000
            before_ms, holds = standing.due_ms(for_ms), _COMPARE[trigger["op"]](value, trigger["value"])
            if _observe(standing, holds, for_ms, recorded_ms, now_ms):
                self._fire(sql, rule, device, now_ms)
            due_ms = standing.due_ms(for_ms)
            if due_ms is not None and due_ms != before_ms:
                heapq.heappush(self._timers, (due_ms, device["row"], rule["row"]))

    def next_due_ms(self) -> int | None:
        """When a rule may fire by time."""
        return self._timers[0][0] if self._timers else None

    def run_due(self, now_ms: int) -> None:
        """Fire what has held for long enough, oldest first, a bounded number at a time."""
        with self._service.db.write() as sql:
            for _ in range(_TIMERS_AT_ONCE):
                if not self._timers or self._timers[0][0] > now_ms:
                    return
                due_ms, device_row, rule_row = heapq.heappop(self._timers)
                rule = one(sql, "SELECT * FROM rules WHERE row = ?", [rule_row])
                device = one(sql, "SELECT * FROM devices WHERE row = ? AND removed_at IS NULL", [device_row])
                if rule is None or device is None:
                    continue
                standing = self._standings.get((rule["account"], rule_row), {}).get(device_row)
                for_ms = from_json(rule["trigger"])["for_seconds"] * 1000
                if standing is not None and standing.due_ms(for_ms) == due_ms:
                    standing.fired = True
                    self._fire(sql, rule, device, now_ms)

    def _fire(self, sql: sqlite3.Connection, rule: sqlite3.Row, device: sqlite3.Row, now_ms: int) -> None:
        """Carry out the actions. One that cannot be is logged, and keeps nothing else from happening."""
        update(sql, "rules", rule["row"], last_fired_at=now_ms)
        for action in _ACTIONS.validate_json(rule["actions"]):
            try:
                if isinstance(action, RecordAction):
                    add_record(self._service, sql, device, action.table_name, action.data_payload, now_ms)
                    continue
                target = device
                if action.device_id is not None:
                    target = find_device(sql, rule["account"], action.device_id)
                command = SendCommand(device_id=target["id"], command_payload=action.command_payload)
                queue(self._service, sql, target, command, now_ms)
            except ApiError as exc:  # raised before anything is written
                log.warning("rule %s, device %s: %s: %s", rule["id"], device["id"], exc.error, exc.message)


def _observe(standing: _Standing, holds: bool, for_ms: int, recorded_ms: int, now_ms: int) -> bool:
    """Take a reading into account; whether the rule fires.

    A reading that is older than one that was seen already says nothing of how things are now.
    """
    at_ms = min(recorded_ms, now_ms)
    if standing.observed_ms > now_ms:  # of a clock that was set back since: its times count no more
        standing.observed_ms = at_ms
        standing.since_ms = None if standing.since_ms is None else at_ms
    if at_ms < standing.observed_ms:
        return False
    is_late = at_ms < now_ms - LATE_MS
    standing.observed_ms = at_ms
    due_ms = standing.due_ms(for_ms)
    fires = due_ms is not None and due_ms <= at_ms and not is_late
    standing.fired = standing.fired or fires
    if not holds:
        standing.since_ms, standing.fired = None, False
    elif standing.since_ms is None and not is_late:
        standing.since_ms = at_ms
        if for_ms == 0:
            standing.fired = fires = True
    return fires
