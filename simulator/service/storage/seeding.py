"""Brings an account to what a seed says, in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic_core import from_json
from sqlalchemy import Connection, Row, select, update

from agent.errors import ConfigurationError
from agent.wire.onboarding import RegisterDevice
from agent.wire.products import NewProduct, ProductChange
from agent.wire.secret import Secret
from simulator.service.faults import ServiceFault
from simulator.service.passwords import hash_password, is_password
from simulator.service.seed import Line, Seed, SeedClient, SeedDevice, SeedFaultsError, SeedUser
from simulator.service.storage import clients, devices, keys, people, products
from simulator.service.storage.tables import people as people_table
from simulator.service.storage.tables import products as products_table

CREATED: Final = "created"
CHANGED: Final = "changed"
UNCHANGED: Final = "unchanged"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a seed goes.

    Attributes:
        manufacturer_seq: the account's row.
        next_id: makes ids.
    """

    manufacturer_seq: int
    next_id: Callable[[], str]
    now_ms: int


def apply(connection: Connection, seed: Seed, target: Target) -> dict[str, int]:
    """Make what is missing and change what differs.

    Returns:
        How many items were created, changed and unchanged.

    Raises:
        SeedFaultsError: everything that does not fit what is stored. The caller rolls back.
    """
    counts = {CREATED: 0, CHANGED: 0, UNCHANGED: 0}
    faults: list[tuple[int, str, str]] = []
    groups: tuple[tuple[tuple[Line, ...], Callable[[Connection, Any, Target], str]], ...] = (
        (seed.products, _put_product),
        (seed.devices, _put_device),
        (seed.users, _put_user),
        (seed.clients, _put_client),
    )
    for lines, put in groups:
        for line in lines:
            try:
                counts[put(connection, line.item, target)] += 1
            except ServiceFault as fault:
                faults.append((line.number, line.path, fault.message))
            except ConfigurationError as exc:
                faults += [(line.number, line.path, fault) for fault in exc.faults]
    if faults:
        raise SeedFaultsError(faults)
    return counts


def _find_product(connection: Connection, name: str, target: Target) -> Row[Any] | None:
    # The name is a member of the stored JSON: a seed is small, and so is the list of an account's products.
    table = products_table
    for row in connection.execute(
        select(table).where(table.c.manufacturer_seq == target.manufacturer_seq).order_by(table.c.seq)
    ):
        if from_json(row.definition).get("name") == name:
            return row
    return None


def _put_product(connection: Connection, product: NewProduct, target: Target) -> str:
    for index, command in enumerate(product.commands or ()):
        try:
            Draft202012Validator.check_schema(command.payload_schema or {})
        except SchemaError as exc:
            raise ConfigurationError(
                [f"commands.{index}.payload_schema is no JSON Schema: {exc.message:.200}"], "seed"
            ) from None
    row = _find_product(connection, product.name, target)
    if row is None:
        products.add(connection, target.manufacturer_seq, product, target.next_id(), target.now_ms)
        return CREATED
    given = {
        name: value
        for name, value in product.model_dump(mode="json", exclude_unset=True).items()
        if name not in products.SERVER_SET
    }
    stored = from_json(row.definition)
    full = product.model_dump(mode="json")
    if all(name in stored and stored[name] == full[name] for name in given):
        return UNCHANGED
    changes = ProductChange.model_validate(given, strict=False)
    products.change(connection, target.manufacturer_seq, row.id, changes, target.now_ms)
    return CHANGED


def _put_device(connection: Connection, device: SeedDevice, target: Target) -> str:
    row = _find_product(connection, device.product, target)
    if row is None:
        raise ConfigurationError([f"there is no product named {device.product!r}: add it to products"], "seed")
    request = RegisterDevice(
        user_id=device.user_id,
        product_id=row.id,
        device_identifier=device.device_identifier,
        device_name=device.device_name,
        qr_info=device.qr_info,
    )
    _, is_new = devices.register(connection, target.manufacturer_seq, request, target.next_id(), target.now_ms)
    return CREATED if is_new else UNCHANGED


def _put_user(connection: Connection, user: SeedUser, target: Target) -> str:
    password = people.check_password(user.password)
    account = target.manufacturer_seq if user.has_account else None
    row = _find_user(connection, user, account)
    if row is None:
        person = people.make(user.email, hash_password(password), user.user_id or target.next_id(), account)
        people.add(connection, person, target.now_ms)
        return CREATED
    if user.user_id is not None and row.id != user.user_id:
        raise ConfigurationError([f"{user.email} has the user_id {row.id!r} already, which cannot be changed"], "seed")
    if is_password(row.password_hash, Secret(user.password)):
        return UNCHANGED
    connection.execute(
        update(people_table).where(people_table.c.seq == row.seq).values(password_hash=hash_password(password))
    )
    return CHANGED


def _find_user(connection: Connection, user: SeedUser, account: int | None) -> Row[Any] | None:
    """The person that the seed means; None for nobody, and for one of another account, whom adding then refuses."""
    row = people.find_anywhere(connection, user.email)
    if row is None or row.manufacturer_seq == account:
        return row
    # Somebody without an account may have got one since, by an approval.
    is_own = not user.has_account and not keys.has_keys(connection, row.manufacturer_seq)
    return row if is_own else None


def _put_client(connection: Connection, client: SeedClient, target: Target) -> str:
    if client.client_secret is None and not client.public:
        raise ConfigurationError([f"{client.client_id}: give client_secret, or public: true"], "seed")
    wanted = client.model_dump() | {"client_secret": Secret(client.client_secret) if client.client_secret else None}
    is_new = clients.put(
        connection, target.manufacturer_seq, clients.make(clients.WantedClient(**wanted))[0], target.now_ms
    )
    return UNCHANGED if is_new is None else CREATED if is_new else CHANGED
