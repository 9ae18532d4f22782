"""Rules (specification, "Other groups")."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, Row

from agent.wire import paths
from simulator.service.answers import NO_CONTENT, Answer, WriteResult, created, ok
from simulator.service.call import Call
from simulator.service.endpoints import ERROR, Endpoint, Reply
from simulator.service.paging import PAGE_PARAMETERS, answer_list, read_page
from simulator.service.parameters import PAGING, text_filter
from simulator.service.records import RuleFiringRecord, RuleRecord
from simulator.service.storage import products, rule_firings, rules
from simulator.service.storage.lists import Rows
from simulator.wire.rules import NewRule, RuleChange

_TAG: Final = "rules"
MANAGEMENT: Final = "rule-management"
"""Creating, reading, changing and deleting single rules; the specification has the list alone."""
FIRINGS: Final = "rule-firings"
"""Extension: ``GET /rules/{rule_id}/firings``."""


async def list_rules(call: Call) -> Answer:
    """The account's rules."""
    query = call.query(PAGE_PARAMETERS | {"product_id"})
    page = read_page(call, query, default_order="asc", sort_values=1)
    account, product_id = call.caller.manufacturer_seq, query.get("product_id")

    def find(connection: Connection) -> Rows[Row[Any]]:
        product_seq = None if product_id is None else products.find(connection, account, product_id).seq
        return rules.list_page(connection, account, product_seq, page)

    return await answer_list(call, page, find, rules.show)


async def create_rule(call: Call) -> Answer:
    """A new rule of a product."""
    rule = await call.message(NewRule)
    rules.check_sizes(rule.actions)
    service, account = call.service, call.caller.manufacturer_seq
    rule_id, now_ms = service.ids.next(), service.clock.now_ms()

    def add(connection: Connection) -> WriteResult:
        product = products.find(connection, account, rule.product_id)
        record = rules.add(connection, product, rule, rule_id, now_ms)
        service.rules.have_changed()
        return WriteResult(created(record, paths.rule(rule_id)))

    return await call.write(add)


async def show_rule(call: Call) -> Answer:
    """One rule."""
    account, rule_id = call.caller.manufacturer_seq, call.path("rule_id")
    return ok(await call.service.look_up(lambda c: rules.show(rules.find(c, account, rule_id))))


async def change_rule(call: Call) -> Answer:
    """Replace the members of a rule that were given."""
    changes = await call.message(RuleChange)
    rules.check_sizes(changes.actions or ())
    service, account, rule_id = call.service, call.caller.manufacturer_seq, call.path("rule_id")
    now_ms = service.clock.now_ms()

    def change(connection: Connection) -> WriteResult:
        record = rules.change(connection, account, rule_id, changes, now_ms)
        service.rules.have_changed()
        return WriteResult(ok(record))

    return await call.write(change)


async def delete_rule(call: Call) -> Answer:
    """Delete a rule; the commands that it sent stay."""
    service, account, rule_id = call.service, call.caller.manufacturer_seq, call.path("rule_id")

    def remove(connection: Connection) -> WriteResult:
        rules.remove(connection, account, rule_id)
        service.rules.have_changed()
        return WriteResult(NO_CONTENT)

    return await call.write(remove)


async def list_firings(call: Call) -> Answer:
    """When a rule fired and what came of its actions."""
    page = read_page(call, call.query(PAGE_PARAMETERS), default_order="desc", sort_values=1)
    account, rule_id = call.caller.manufacturer_seq, call.path("rule_id")

    def find(connection: Connection) -> Rows[Row[Any]]:
        return rule_firings.list_page(connection, rules.find(connection, account, rule_id).seq, page)

    return await answer_list(call, page, find, lambda row: rule_firings.show(row, rule_id))


_INVALID: Final = Reply(400, "`validation_error`", ERROR)
_NOT_FOUND: Final = Reply(404, "`rule_not_found`", ERROR)

ENDPOINTS: Final = (
    Endpoint(
        "GET",
        paths.RULES,
        list_rules,
        "list_rules",
        "The account's rules, in the order of creation",
        _TAG,
        (Reply(200, "One page", RuleRecord, listed=True), _INVALID, Reply(404, "`product_not_found`", ERROR)),
        parameters=(text_filter("product_id", "Of this product"), *PAGING),
    ),
    Endpoint(
        "POST",
        paths.RULES,
        create_rule,
        "create_rule",
        "Create a rule: it fires when a reading of a device of its product has met the trigger for `for_seconds`, "
        "and again only after a reading that does not",
        _TAG,
        (
            Reply(201, "The created rule", RuleRecord, located=True),
            _INVALID,
            Reply(404, "`product_not_found`, or `device_not_found` or `table_not_found` of an action", ERROR),
            Reply(409, "`rule_limit_reached`", ERROR),
        ),
        body=(NewRule,),
        extension=MANAGEMENT,
    ),
    Endpoint(
        "GET",
        paths.RULE,
        show_rule,
        "show_rule",
        "One rule",
        _TAG,
        (Reply(200, "The rule", RuleRecord), _INVALID, _NOT_FOUND),
        extension=MANAGEMENT,
    ),
    Endpoint(
        "PUT",
        paths.RULE,
        change_rule,
        "change_rule",
        "Change the given fields of a rule; with another trigger, or switched off or on, it begins anew",
        _TAG,
        (
            Reply(200, "The whole rule", RuleRecord),
            _INVALID,
            Reply(404, "`rule_not_found`, or `device_not_found` or `table_not_found` of an action", ERROR),
        ),
        body=(RuleChange,),
        extension=MANAGEMENT,
    ),
    Endpoint(
        "DELETE",
        paths.RULE,
        delete_rule,
        "delete_rule",
        "Delete a rule; the commands that it sent stay",
        _TAG,
        (Reply(204, "Deleted"), _NOT_FOUND),
        extension=MANAGEMENT,
    ),
    Endpoint(
        "GET",
        f"{paths.RULE}/firings",
        list_firings,
        "list_rule_firings",
        "When a rule fired and what came of each action, newest first; a full command queue shows here",
        _TAG,
        (Reply(200, "One page", RuleFiringRecord, listed=True), _INVALID, _NOT_FOUND),
        parameters=PAGING,
        extension=FIRINGS,
    ),
)
