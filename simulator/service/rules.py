"""Fires rules in the transaction that stores the reading: a firing, its state and its command are one commit.

When a condition holds is decided in :mod:`simulator.service.core.rule_machine`.

Everything here but :attr:`Rules.next_due_ms` runs in the writing thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import from_json
from sqlalchemy import Connection, Row

from agent.wire.base import JsonObject
from agent.wire.sending import SendCommand
from simulator.service.core import rule_machine as machine
from simulator.service.errors import ServiceError
from simulator.service.ids import IdSource
from simulator.service.payload_checks import PayloadChecks
from simulator.service.storage import commands, databases, devices, products, rule_firings, rule_states, runtime_data
from simulator.service.storage.readings import NewReading
from simulator.service.storage.rule_states import ChangedState, Key, LiveRule
from simulator.wire.rules import CommandAction, RecordAction

TIMERS_MAX: Final = 500
"""Timers that one transaction carries out at most."""


class Rules:
    """All enabled rules by product, kept in memory so that a reading that no rule looks at costs nothing.

    Args:
        ids: for commands, records and firings.
        deadline: of commands.
        payload_checks: checks payloads against the product's vocabulary.
    """

    def __init__(self, ids: IdSource, deadline: commands.Deadline, *, payload_checks: PayloadChecks | None) -> None:
        self._ids = ids
        self._deadline = deadline
        self._payload_checks = payload_checks
        self._live: dict[int, LiveRule] = {}
        self._by_product: dict[str, list[LiveRule]] = {}
        self._accounts: frozenset[int] = frozenset()
        self._stale = True
        self.next_due_ms: int | None = None

    def load(self, connection: Connection) -> None:
        """Read the enabled rules and the next timer from the storage."""
        self._live = {rule.seq: rule for rule in rule_states.load_live(connection)}
        self._by_product = {}
        for rule in self._live.values():
            self._by_product.setdefault(rule.product_id, []).append(rule)
        self._accounts = frozenset(rule.manufacturer_seq for rule in self._live.values())
        self.next_due_ms = rule_states.next_due_ms(connection)
        self._stale = False

    def have_changed(self) -> None:
        """Rules were changed, or a transaction that had changed them was rolled back: read them again before use."""
        self._stale = True
        self.next_due_ms = 0  # so that the next look at the timers comes soon

    def observe(
        self, connection: Connection, stored: Sequence[tuple[NewReading, int]]
    ) -> Mapping[int, tuple[int, ...]]:
        """Fire the rules that stored readings meet, in the transaction that stores them.

        Args:
            connection: of the transaction.
            stored: each reading with the row of its device, in the order of arrival.

        Returns:
            Place in ``stored`` -> rows of devices that got commands; without readings that sent none.
        """
        if self._stale:
            self.load(connection)
        if not self._by_product:
            return {}
        watched = [
            (place, item, device_seq)
            for place, (item, device_seq) in enumerate(stored)
            if item.manufacturer_seq in self._accounts
        ]
        of_product = rule_states.products_of(connection, dict.fromkeys(seq for _, _, seq in watched))
        looked_at = [
            (place, item, device_seq, rules)
            for place, item, device_seq in watched
            if (rules := self._by_product.get(of_product.get(device_seq, "")))
        ]
        if not looked_at:
            return {}
        states = _States(rule_states.load(connection, dict.fromkeys(seq for _, _, seq, _ in looked_at)))
        changed: dict[int, tuple[int, ...]] = {}
        for place, item, device_seq, rules in looked_at:
            found = self._observe(connection, item, device_seq, rules, states)
            if found:
                changed[place] = tuple(found)
        self._save(connection, list(states.moved.values()))
        return changed

    def _observe(
        self,
        connection: Connection,
        item: NewReading,
        device_seq: int,
        rules: Sequence[LiveRule],
        states: _States,
    ) -> list[int]:
        """Compare one reading with its product's rules; the devices that got commands."""
        values: JsonObject = from_json(item.sensor_data)
        changed: list[int] = []
        for rule in rules:
            value = values.get(rule.condition.reading)
            if value is None:
                continue
            before = states.known.get((device_seq, rule.seq))
            step = machine.observe(rule.condition, before, value, item.recorded_at, item.received_at)
            if step.state == before:
                continue
            states.move(device_seq, rule, step.state)
            if step.fires:
                device = rule_states.find_device(connection, device_seq)
                if device is not None:
                    changed += self._fire(connection, _Firing(rule, device, item.received_at))
        return changed

    def run_timers(self, connection: Connection, now_ms: int) -> list[int]:
        """Fire what has held for long enough, oldest first, a bounded number at a time; devices that got commands."""
        if self._stale:
            self.load(connection)
        changed: list[int] = []
        moved: list[ChangedState] = []
        over: list[Key] = []
        for row in rule_states.due(connection, now_ms, TIMERS_MAX):
            rule = self._live.get(row.rule_seq)
            device = rule_states.find_device(connection, row.device_seq)
            if rule is None or device is None:
                over.append((row.device_seq, row.rule_seq))
                continue
            state = machine.State(machine.Phase(row.phase), row.since_at, row.observed_at)
            step = machine.elapse(rule.condition, state, now_ms)
            moved.append(
                ChangedState(row.device_seq, rule, step.state, machine.due_ms(rule.condition, step.state), is_new=False)
            )
            if step.fires:
                changed += self._fire(connection, _Firing(rule, device, now_ms))
        rule_states.forget(connection, over)
        rule_states.save(connection, moved)
        self.next_due_ms = rule_states.next_due_ms(connection)
        return changed

    def _save(self, connection: Connection, moved: Sequence[ChangedState]) -> None:
        rule_states.save(connection, moved)
        earliest = min((one.due_ms for one in moved if one.due_ms is not None), default=None)
        if earliest is not None and (self.next_due_ms is None or earliest < self.next_due_ms):
            self.next_due_ms = earliest

    def _fire(self, connection: Connection, firing: _Firing) -> list[int]:
        """Carry out a rule's actions. One that cannot be is noted, and keeps nothing else from happening."""
        outcomes: list[JsonObject] = []
        for action in firing.rule.actions:
            try:
                if isinstance(action, CommandAction):
                    outcomes.append(self._send(connection, firing, action))
                else:
                    outcomes.append(self._record(connection, firing, action))
            except ServiceError as exc:  # each is raised before anything is written
                outcomes.append(_outcome(action.type, error=exc.error, message=exc.message))
        firing_id = self._ids.next()
        rule_firings.add(connection, firing.rule, firing.device.seq, outcomes, firing_id=firing_id, now_ms=firing.ms)
        return firing.changed

    def _send(self, connection: Connection, firing: _Firing, action: CommandAction) -> JsonObject:
        account, target = firing.rule.manufacturer_seq, firing.device
        if action.device_id is not None:
            target = devices.find(connection, account, action.device_id)
        if self._payload_checks is not None:
            product = products.find(connection, account, target.product_id)
            self._payload_checks.check_now(products.vocabulary(product), action.command_payload)
        request = SendCommand(device_id=target.id, command_payload=action.command_payload)
        sent = commands.queue(connection, target, request, self._ids.next(), firing.ms, deadline=self._deadline)
        firing.changed.append(target.seq)
        return _outcome(action.type, command_id=sent.id)

    def _record(self, connection: Connection, firing: _Firing, action: RecordAction) -> JsonObject:
        product = products.find_by_seq(connection, firing.rule.product_seq)
        stored = runtime_data.add(
            connection,
            databases.find_table(connection, product, action.table_name),
            firing.device,
            action.data_payload,
            product_id=product.id,
            record_id=self._ids.next(),
            now_ms=firing.ms,
        )
        return _outcome(action.type, record_id=stored["id"])


@dataclass(slots=True)
class _States:
    """States of a group of readings: those that were found, and those that are to be written."""

    known: dict[Key, machine.State]
    moved: dict[Key, ChangedState] = field(default_factory=dict)

    def move(self, device_seq: int, rule: LiveRule, state: machine.State) -> None:
        """The state is another one now."""
        key = (device_seq, rule.seq)
        is_new = self.moved[key].is_new if key in self.moved else key not in self.known
        self.known[key] = state
        self.moved[key] = ChangedState(device_seq, rule, state, machine.due_ms(rule.condition, state), is_new)


@dataclass(frozen=True, slots=True)
class _Firing:
    """A rule that fires now.

    Attributes:
        ms: the time.
        changed: rows of devices that get commands of it.
    """

    rule: LiveRule
    device: Row[Any]
    ms: int
    changed: list[int] = field(default_factory=list)


def _outcome(kind: str, **found: str) -> JsonObject:
    members = dict.fromkeys(("command_id", "record_id", "error", "message"))
    return {"type": kind, "status": "failed" if "error" in found else "done", **members, **found}
