"""Rules inside the writer: what the hot path costs, and what a rolled-back transaction leaves behind."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from sqlalchemy import event, func, select

from agent.wire.registration import RegisterDevice
from simulator.service.config import ServiceConfig
from simulator.service.ingest import IncomingReading
from simulator.service.service import Service
from simulator.service.storage import devices, products, rules
from simulator.service.storage.tables import commands, readings, rule_firings, rule_states
from simulator.wire.products import NewProduct
from simulator.wire.rules import CommandAction, NewRule, NewTrigger


@pytest.fixture
def world():
    service = Service(ServiceConfig())
    account = service.first_caller().manufacturer_seq

    def set_up(connection):
        for product_id in ("hot", "cold"):
            products.add(connection, account, NewProduct(name=product_id), product_id, 1)
            request = RegisterDevice(user_id="u", product_id=product_id, device_identifier="1")
            devices.register(connection, account, request, f"{product_id}-1", 1)

    service.writer.call(set_up)

    def add_rule(connection, product_id="hot", for_seconds=0):
        trigger = NewTrigger(reading="t", op=">", value=60, for_seconds=for_seconds)
        rule = NewRule(product_id=product_id, name="x", trigger=trigger, actions=(CommandAction(command_payload={}),))
        rules.add(connection, products.find(connection, account, product_id), rule, service.ids.next(), 1)
        service.rules.have_changed()

    def post(connection, value=61, at_ms=1000, device_id="hot-1"):
        text = f'{{"t":{value}}}'
        item = IncomingReading(account, device_id, service.ids.next(), at_ms, at_ms, text)
        return service.store_readings(connection, [item])[0]

    def count(table):
        return service.read_now(lambda c: c.execute(select(func.count()).select_from(table)).scalar_one())

    yield SimpleNamespace(service=service, call=service.writer.call, add_rule=add_rule, post=post, count=count)
    service.close()


def _statements(world, operation) -> list[str]:
    seen: list[str] = []

    def note(_connection, _cursor, statement, *_rest):
        seen.append(statement)

    engine = world.service.database._write_engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        world.call(operation)
    finally:
        event.remove(engine, "before_cursor_execute", note)
    return seen


def test_without_rules_a_reading_costs_no_further_statement(world):
    world.call(world.post)
    plain = _statements(world, world.post)
    assert not [statement for statement in plain if "rule" in statement]
    assert len([s for s in plain if "SELECT" in s or "INSERT" in s]) == 2


def test_a_rule_of_another_product_is_not_looked_up(world):
    world.call(lambda c: world.add_rule(c, "cold"))
    world.call(world.post)
    assert not [statement for statement in _statements(world, world.post) if "rule" in statement]


def test_reading_state_and_command_are_stored_or_lost_together(world):
    world.call(world.add_rule)

    def broken(connection):
        assert world.post(connection).changed
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError):
        world.call(broken)
    assert [world.count(table) for table in (readings, rule_states, rule_firings, commands)] == [0, 0, 0, 0]
    assert world.call(world.post).changed
    assert [world.count(table) for table in (readings, rule_states, rule_firings, commands)] == [1, 1, 1, 1]


def test_a_rule_whose_transaction_was_rolled_back_fires_nothing(world):
    def broken(connection):
        world.add_rule(connection)
        assert world.post(connection).changed
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError):
        world.call(broken)
    assert world.call(world.post).changed == ()


def test_a_timer_that_was_rolled_back_runs_at_the_next_look(world):
    world.call(lambda c: world.add_rule(c, for_seconds=30))
    world.call(world.post)
    assert world.service.rules.next_due_ms == 31_000

    def broken(connection):
        assert world.service.rules.run_timers(connection, 31_000)
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError):
        world.call(broken)
    assert world.service.rules.next_due_ms == 0
    assert world.call(lambda c: world.service.rules.run_timers(c, 31_000))
    assert world.count(commands) == 1
    assert world.service.rules.next_due_ms is None
