"""Brings an account to what a seed says, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json, to_json
from sqlalchemy import Connection, Row, select, update

from agent.errors import ConfigurationError
from agent.wire.registration import RegisterDevice
from agent.wire.secret import Secret
from simulator.service.core.vocabulary import schema_fault
from simulator.service.errors import ServiceError
from simulator.service.passwords import hash_password, is_password
from simulator.service.seed import Line, Seed, SeedClient, SeedDevice, SeedFaultsError, SeedUser
from simulator.service.storage import clients, devices, keys, people, products, rules
from simulator.service.storage.tables import people as people_table
from simulator.service.storage.tables import products as products_table
from simulator.wire.products import ProductChange
from simulator.wire.rules import NewRule, RuleChange

CREATED: Final = "created"
CHANGED: Final = "changed"
UNCHANGED: Final = "unchanged"


Hashes = Mapping[tuple[str, str], str]
"""Address and password -> what is stored of the password."""


@dataclass(frozen=True, slots=True)
class SeedTarget:
    """Where a seed goes.

    Attributes:
        manufacturer_seq: the account's row.
        next_id: makes ids.
        hashes: what :func:`hash_passwords` made of the seed's passwords.
    """

    manufacturer_seq: int
    next_id: Callable[[], str]
    now_ms: int
    hashes: Hashes


def find_hashes(connection: Connection, seed: Seed) -> dict[str, str]:
    """Address -> what is stored of the password, for the users of the seed that are there."""
    rows = (people.find_anywhere(connection, line.item.email) for line in seed.users)
    return {row.email: row.password_hash for row in rows if row is not None}


def hash_passwords(seed: Seed, stored: Mapping[str, str]) -> Hashes:
    """What is to be stored of each password: what is there if it fits, else a new hash.

    Each takes a good part of a tenth of a second, so this is done before the transaction, not on the event loop.
    """
    hashes: dict[tuple[str, str], str] = {}
    for line in seed.users:
        user: SeedUser = line.item
        try:
            password = people.check_password(user.password)
        except ConfigurationError:  # reported with all other faults by _put_user
            continue
        before = stored.get(people.clean_email(user.email))
        fits = before is not None and is_password(before, password)
        hashes[_password_of(user)] = before if before is not None and fits else hash_password(password)
    return hashes


def _password_of(user: SeedUser) -> tuple[str, str]:
    return people.clean_email(user.email), user.password


def apply(connection: Connection, seed: Seed, target: SeedTarget) -> dict[str, int]:
    """Make what is missing and change what differs.

    Returns:
        How many items were created, changed and unchanged.

    Raises:
        SeedFaultsError: everything that does not fit what is stored. The caller rolls back.
    """
    counts = {CREATED: 0, CHANGED: 0, UNCHANGED: 0}
    faults: list[tuple[int, str, str]] = []
    groups: tuple[tuple[tuple[Line, ...], Callable[[Connection, Line, SeedTarget], str]], ...] = (
        (seed.products, _put_product),
        (seed.devices, _put_device),
        (seed.users, _put_user),
        (seed.rules, _put_rule),
        (seed.clients, _put_client),
    )
    for lines, put in groups:
        for line in lines:
            try:
                counts[put(connection, line, target)] += 1
            except ServiceError as exc:
                faults.append((line.number, line.path, exc.message))
            except ConfigurationError as exc:
                faults += [(line.number, line.path, fault) for fault in exc.faults]
    if faults:
        raise SeedFaultsError(faults)
    return counts


def _find_product(connection: Connection, name: str, target: SeedTarget) -> Row[Any] | None:
    # The name is a member of the stored JSON: a seed is small, and so is the list of an account's products.
    table = products_table
    for row in connection.execute(
        select(table).where(table.c.manufacturer_seq == target.manufacturer_seq).order_by(table.c.seq)
    ):
        if from_json(row.definition).get("name") == name:
            return row
    return None


def _put_product(connection: Connection, line: Line, target: SeedTarget) -> str:
    product = line.item.definition()
    for index, command in enumerate(product.commands or ()):
        fault = schema_fault(command.payload_schema or {})
        if fault is not None:
            raise ConfigurationError([f"commands.{index}.payload_schema {fault[1]}"], "seed")
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


def _put_device(connection: Connection, line: Line, target: SeedTarget) -> str:
    device: SeedDevice = line.item
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
    found, is_new = devices.register(connection, target.manufacturer_seq, request, target.next_id(), target.now_ms)
    if is_new:
        return CREATED
    wanted: dict[str, Any] = {}
    if device.device_name is not None and device.device_name != found.device_name:
        wanted["device_name"] = device.device_name
    if device.qr_info is not None and (found.qr_info is None or from_json(found.qr_info) != device.qr_info):
        wanted["qr_info"] = to_json(device.qr_info).decode()
    if not wanted:
        return UNCHANGED
    devices.change(connection, target.manufacturer_seq, found.id, wanted, target.now_ms)
    return CHANGED


def _put_rule(connection: Connection, line: Line, target: SeedTarget) -> str:
    row = _find_product(connection, line.product, target)
    if row is None:
        raise ConfigurationError(["its product cannot be used"], "seed")
    wanted = NewRule.model_validate({**line.item.model_dump(), "product_id": row.id})
    rules.check_sizes(wanted.actions)
    stored = rules.find_by_name(connection, row.seq, wanted.name)
    if stored is None:
        rules.add(connection, row, wanted, target.next_id(), target.now_ms)
        return CREATED
    if rules.is_as(stored, wanted):
        return UNCHANGED
    changes = RuleChange.model_validate(wanted.model_dump(exclude={"product_id", "name"}))
    rules.change(connection, target.manufacturer_seq, stored.id, changes, target.now_ms)
    return CHANGED


def _put_user(connection: Connection, line: Line, target: SeedTarget) -> str:
    user: SeedUser = line.item
    people.check_password(user.password)
    password_hash = target.hashes[_password_of(user)]
    account = target.manufacturer_seq if user.has_account else None
    row = _find_user(connection, user, account)
    if row is None:
        person = people.make(user.email, password_hash, user.user_id or target.next_id(), account)
        people.add(connection, person, target.now_ms)
        return CREATED
    if user.user_id is not None and row.id != user.user_id:
        raise ConfigurationError([f"{user.email} has the user_id {row.id!r} already, which cannot be changed"], "seed")
    if row.password_hash == password_hash:
        return UNCHANGED
    connection.execute(update(people_table).where(people_table.c.seq == row.seq).values(password_hash=password_hash))
    return CHANGED


def _find_user(connection: Connection, user: SeedUser, account: int | None) -> Row[Any] | None:
    """The person that the seed means; None for nobody, and for one of another account, whom adding then refuses."""
    row = people.find_anywhere(connection, user.email)
    if row is None or row.manufacturer_seq == account:
        return row
    # Somebody without an account may have got one since, by an approval.
    is_own = not user.has_account and not keys.has_keys(connection, row.manufacturer_seq)
    return row if is_own else None


def _put_client(connection: Connection, line: Line, target: SeedTarget) -> str:
    client: SeedClient = line.item
    if client.client_secret is None and not client.public:
        raise ConfigurationError([f"{client.client_id}: give client_secret, or public: true"], "seed")
    wanted = client.model_dump() | {"client_secret": Secret(client.client_secret) if client.client_secret else None}
    is_new = clients.put(
        connection, target.manufacturer_seq, clients.make(clients.WantedClient(**wanted))[0], target.now_ms
    )
    return UNCHANGED if is_new is None else CREATED if is_new else CHANGED
