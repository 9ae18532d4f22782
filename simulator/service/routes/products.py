"""Products and their command vocabulary (specification, "Products")."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from agent.wire import paths
from simulator.service.answers import NO_CONTENT, Answer, WriteResult, created, ok
from simulator.service.call import Call
from simulator.service.core.vocabulary import schema_fault
from simulator.service.endpoints import ERROR, Endpoint, Reply
from simulator.service.errors import invalid_all
from simulator.service.paging import PAGE_PARAMETERS, answer_list, read_page, whole
from simulator.service.parameters import PAGING, SINGLE_RECORDS
from simulator.service.records import CommandDefinitionRecord, ProductRecord
from simulator.service.storage import products
from simulator.wire.products import NewCommandDefinition, NewProduct, ProductChange

_TAG: Final = "products"


async def list_products(call: Call) -> Answer:
    """Products owned by the caller's account."""
    page = read_page(call, call.query(PAGE_PARAMETERS), default_order="asc", sort_values=1)
    account = call.caller.manufacturer_seq
    return await answer_list(call, page, lambda c: products.list_page(c, account, page), products.show)


async def create_product(call: Call) -> Answer:
    """A new product."""
    product = await call.message(NewProduct)
    _check_vocabulary(product.commands or ())
    service, account = call.service, call.caller.manufacturer_seq
    product_id, now_ms = service.ids.next(), service.clock.now_ms()
    return await call.write(
        lambda c: WriteResult(created(products.add(c, account, product, product_id, now_ms), paths.product(product_id)))
    )


async def show_product(call: Call) -> Answer:
    """One product."""
    call.query(frozenset())
    account, product_id = call.caller.manufacturer_seq, call.path("product_id")
    return ok(products.show(await call.service.look_up(lambda c: products.find(c, account, product_id))))


async def change_product(call: Call) -> Answer:
    """Change the fields that are given."""
    changes = await call.message(ProductChange)
    _check_vocabulary(changes.commands or ())
    account, product_id, now_ms = call.caller.manufacturer_seq, call.path("product_id"), call.service.clock.now_ms()
    return await call.write(lambda c: WriteResult(ok(products.change(c, account, product_id, changes, now_ms))))


async def delete_product(call: Call) -> Answer:
    """Delete a product that no device has."""
    service, account, product_id = call.service, call.caller.manufacturer_seq, call.path("product_id")

    def remove(connection: Connection) -> WriteResult:
        products.remove(connection, account, product_id)
        service.rules.have_changed()
        return WriteResult(NO_CONTENT)

    return await call.write(remove)


async def list_product_commands(call: Call) -> Answer:
    """The product's command vocabulary."""
    call.query(frozenset())
    account, product_id = call.caller.manufacturer_seq, call.path("product_id")
    return whole(products.vocabulary(await call.service.look_up(lambda c: products.find(c, account, product_id))))


def _check_vocabulary(definitions: tuple[NewCommandDefinition, ...]) -> None:
    """Names occur once, and each ``payload_schema`` is a schema: else no command could ever be checked against it."""
    faults = []
    seen: set[str] = set()
    for index, definition in enumerate(definitions):
        if definition.name in seen:
            faults.append((f"commands.{index}.name", "occurs twice in this vocabulary"))
        seen.add(definition.name)
        if definition.payload_schema is not None:
            fault = schema_fault(definition.payload_schema)
            if fault is not None:
                where = f"commands.{index}.payload_schema.{fault[0]}".rstrip(".")
                faults.append((where, fault[1]))
    if faults:
        raise invalid_all(faults)


_NOT_FOUND: Final = Reply(404, "`product_not_found`", ERROR)
_INVALID: Final = Reply(400, "`validation_error`", ERROR)

ENDPOINTS: Final = (
    Endpoint(
        "GET",
        paths.PRODUCTS,
        list_products,
        "list_products",
        "Products owned by the caller's account, in the order of creation",
        _TAG,
        (Reply(200, "One page", ProductRecord, listed=True), _INVALID),
        parameters=PAGING,
    ),
    Endpoint(
        "POST",
        paths.PRODUCTS,
        create_product,
        "create_product",
        "Create a product",
        _TAG,
        (Reply(201, "The created product", ProductRecord, located=True), _INVALID),
        body=(NewProduct,),
    ),
    Endpoint(
        "GET",
        paths.PRODUCT,
        show_product,
        "show_product",
        "One product",
        _TAG,
        (Reply(200, "The product", ProductRecord), _INVALID, _NOT_FOUND),
        extension=SINGLE_RECORDS,
    ),
    Endpoint(
        "PUT",
        paths.PRODUCT,
        change_product,
        "change_product",
        "Change the given fields of a product; null clears an optional one",
        _TAG,
        (
            Reply(200, "The whole product", ProductRecord),
            _INVALID,
            _NOT_FOUND,
            Reply(409, "`label_key_hidden`: the name of another key than the stored one", ERROR),
        ),
        body=(ProductChange,),
    ),
    Endpoint(
        "DELETE",
        paths.PRODUCT,
        delete_product,
        "delete_product",
        "Delete a product that no device has",
        _TAG,
        (Reply(204, "Deleted"), _NOT_FOUND, Reply(409, "`product_in_use`", ERROR)),
    ),
    Endpoint(
        "GET",
        paths.PRODUCT_COMMANDS,
        list_product_commands,
        "list_product_commands",
        "The product's command vocabulary",
        _TAG,
        (Reply(200, "The whole vocabulary", CommandDefinitionRecord, listed=True), _INVALID, _NOT_FOUND),
    ),
)
