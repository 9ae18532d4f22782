"""Seeds: a YAML text of products, devices, users and partner applications that are to be there.

A product is known by its name, a rule by its product and name, a device by product and identifier, a user by the
address, a client by its id. What is missing is made, what differs is changed, nothing is ever deleted: the same text
twice changes nothing. All problems are reported at once, with their lines. ``configs/seed.yaml`` is an example.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from fastapi import Query, Response
from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, from_json, to_json

from agent.errors import ConfigurationError
from agent.wire.encoding import find_fault
from agent.wire.limits import JSON_DEPTH
from agent.wire.models import Items, JsonObject, Sent, Text, describe_issue, list_faults
from gateway.client import Identifier, RegisterDevice
from simulator.service.api.devices import register
from simulator.service.api.products import SERVER_SET, add_product, change_definition, check_vocabulary
from simulator.service.api.rules import add_rule, replace_rule
from simulator.service.control.accounts import account_of_key, first_account
from simulator.service.db import one, update
from simulator.service.errors import ApiError, conflict, invalid, invalid_all
from simulator.service.gate import CONTROL_PREFIX
from simulator.service.http import CallDep, Json, Router, answers
from simulator.service.oauth.passwords import hash_password, is_password
from simulator.service.oauth.store import NewClient, NewPerson, add_person, find_person, put_client
from simulator.wire.models import ACTIONS_MAX, NewAction, NewProduct, NewRule, NewTrigger, ProductChange, RuleChange
from simulator.yaml_document import Document, KeyPath, read_document

if TYPE_CHECKING:
    from simulator.service.service import Service

SEED_BYTES: Final = 4 * 1024 * 1024
_PROBLEMS_SHOWN: Final = 50


class SeedRule(Sent):
    """A rule of the product that it stands under; members as in ``POST /rules``."""

    name: Text
    enabled: bool = True
    trigger: NewTrigger
    actions: Annotated[Items[NewAction], Field(min_length=1, max_length=ACTIONS_MAX)]


class SeedProduct(NewProduct):
    """A product as in ``POST /products``, and its rules."""

    rules: Items[SeedRule] = ()


class SeedDevice(Sent):
    """A device; ``product`` is the name of one in this text or stored before."""

    product: Text
    device_identifier: Identifier
    user_id: Identifier
    device_name: str | None = None
    qr_info: JsonObject | None = None


class SeedUser(NewPerson):
    """A person who may sign in; with ``has_account: false`` no manufacturer before the first approval of a partner."""

    has_account: bool = True


class SeedClient(NewClient):
    """A partner application. Its id and secret are given: a seed that made them could not tell them."""

    client_id: Text

    @model_validator(mode="after")
    def _check_secret_given(self) -> Self:
        if self.client_secret is None and not self.public:
            raise ValueError("give client_secret, or public: true")
        return self


class Seed(Sent):
    """What is to be there; every group may be left out."""

    products: Items[SeedProduct] = ()
    devices: Items[SeedDevice] = ()
    users: Items[SeedUser] = ()
    clients: Items[SeedClient] = ()


class SeedCounts(BaseModel):
    """How many items of a seed were created, changed, and there already."""

    created: int = 0
    changed: int = 0
    unchanged: int = 0


class SeedError(Exception):
    """A seed that cannot be used.

    Attributes:
        problems: (line, field, issue), in the order of the lines.
    """

    def __init__(self, document: Document, problems: list[tuple[KeyPath, str]]) -> None:
        placed = [(document.place_of(path).line, ".".join(map(str, path)), issue) for path, issue in problems]
        self.problems = sorted(placed)[:_PROBLEMS_SHOWN]
        super().__init__("; ".join(self.lines()))

    def lines(self) -> list[str]:
        """One sentence for each problem."""
        return [f"line {line}: {f'{field}: ' if field else ''}{issue}" for line, field, issue in self.problems]


# --- reading ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SeedText:
    """A seed and where its parts stand in the text.

    Attributes:
        hashes: address -> what is to be stored of the password.
    """

    seed: Seed
    document: Document
    hashes: Mapping[str, str]


def read_seed(raw: bytes, stored: Mapping[str, str]) -> SeedText:
    """The seed of a YAML or JSON text.

    Args:
        raw: the text.
        stored: address -> hash of the password that there is; it stays where it fits.

    Raises:
        SeedError: everything that is wrong with it.
    """
    document = read_document(raw, bytes_max=SEED_BYTES, depth_max=2 * JSON_DEPTH)
    problems: list[tuple[KeyPath, str]] = [(fault.path, fault.issue) for fault in document.faults]
    for group, items in document.value.items() if isinstance(document.value, dict) else ():
        for index, item in enumerate(items) if isinstance(items, list) else ():
            if (issue := find_fault(item)) is not None:
                problems.append(((group, index), issue))
    seed = Seed()
    try:
        seed = Seed.model_validate({} if document.value is None else document.value)
    except ValidationError as exc:
        wrong = [path for path, _ in problems]
        for field, issue in list_faults(exc, _describe):
            path = () if field == "body" else tuple(int(one) if one.isdecimal() else one for one in field.split("."))
            if not any(path[: len(place)] == place for place in wrong):  # what stands there is not what was written
                problems.append((path, issue))
    for place, product in enumerate(seed.products):
        names = [rule.name for rule in product.rules]
        for index, name in enumerate(names):
            if name in names[:index]:
                path = ("products", place, "rules", index)
                problems.append((path, f"the product has a rule {name!r} already"))
    if problems:
        raise SeedError(document, problems)
    hashes = {}
    for user in seed.users:  # each takes about 100 ms
        before, password = stored.get(user.email), user.password.reveal()
        hashes[user.email] = before if before and is_password(before, password) else hash_password(password)
    return SeedText(seed, document, hashes)


def _describe(fault: ErrorDetails) -> str:
    if fault["type"] == "missing":
        return "is missing"
    return "unknown member" if fault["type"] == "extra_forbidden" else describe_issue(fault)


# --- sowing -----------------------------------------------------------------------------------------------------


async def sow(service: Service, account: int, raw: bytes) -> SeedCounts:
    """Bring an account to what a text says, in one transaction.

    Raises:
        SeedError: everything that is wrong with it, or does not fit what is stored. Nothing was changed then.
    """
    text = await asyncio.to_thread(read_seed, raw, _stored_hashes(service))  # YAML and passwords take a while
    return _sow(service, account, text)


def sow_file(service: Service, account: int, path: Path) -> SeedCounts:
    """As :func:`sow`, with a file and before anything is served.

    Raises:
        ConfigurationError: it cannot be read or used.
    """
    try:
        return _sow(service, account, read_seed(path.read_bytes(), _stored_hashes(service)))
    except OSError as exc:
        raise ConfigurationError([f"seed {path}: {exc.strerror}; give a file that can be read"], "seed") from None
    except SeedError as exc:
        raise ConfigurationError([f"seed {path} {line}" for line in exc.lines()], "seed") from None


def _stored_hashes(service: Service) -> dict[str, str]:
    rows = service.db.sql.execute("SELECT email, password_hash FROM people")
    return {row["email"]: row["password_hash"] for row in rows}


def _sow(service: Service, account: int, text: SeedText) -> SeedCounts:
    problems: list[tuple[KeyPath, str]] = []
    counts: Counter[str] = Counter()
    with service.db.write() as sql:
        for path, put, item in _Sower(service, sql, account, text.hashes).steps(text.seed):
            try:
                counts[put(item)] += 1
            except ApiError as exc:
                problems.append((path, exc.message))
        if problems:
            raise SeedError(text.document, problems)
    return SeedCounts(**counts)


class _Sower:
    """One pass over a seed. Each method makes one item what it is to be: created, changed or unchanged."""

    def __init__(self, service: Service, sql: sqlite3.Connection, account: int, hashes: Mapping[str, str]) -> None:
        self._service, self._sql, self._account, self._hashes = service, sql, account, hashes
        self._now_ms = service.clock.now_ms()

    def steps(self, seed: Seed) -> Iterator[tuple[KeyPath, Callable[[Any], str], Any]]:
        """Each item with its path and its method, in the order in which they need each other."""
        groups: tuple[tuple[str, Sequence[Any], Callable[[Any], str]], ...] = (
            ("products", seed.products, self._put_product),
            ("devices", seed.devices, self._put_device),
            ("users", seed.users, self._put_user),
            ("clients", seed.clients, self._put_client),
        )
        for group, items, put in groups:
            for index, item in enumerate(items):
                yield (group, index), put, item
        for place, product in enumerate(seed.products):
            for index, rule in enumerate(product.rules):
                yield ("products", place, "rules", index), self._put_rule, (product.name, rule)

    def _find_product(self, name: str) -> sqlite3.Row | None:
        select = "SELECT * FROM products WHERE account = ? AND definition ->> '$.name' = ? ORDER BY row LIMIT 1"
        return one(self._sql, select, (self._account, name))

    def _product(self, name: str) -> sqlite3.Row:
        row = self._find_product(name)
        if row is None:
            raise invalid("product", f"there is none named {name!r}: add it to products")
        return row

    def _put_product(self, item: SeedProduct) -> str:
        if problems := check_vocabulary(item.commands or ()):
            raise invalid_all(problems)
        members = item.model_dump(exclude={"rules"})
        given = {name: members[name] for name in item.model_fields_set - {"rules"} - SERVER_SET}
        row = self._find_product(item.name)
        if row is None:
            product = NewProduct.model_validate(given)
            add_product(self._sql, self._account, product, self._service.ids.next(), self._now_ms)
            return "created"
        stored = from_json(row["definition"])
        if all(name in stored and stored[name] == from_json(to_json(value)) for name, value in given.items()):
            return "unchanged"
        change_definition(self._sql, row, ProductChange.model_validate(given), self._now_ms)
        return "changed"

    def _put_device(self, item: SeedDevice) -> str:
        product = self._product(item.product)
        wanted = RegisterDevice(product_id=product["id"], **item.model_dump(exclude={"product"}))
        row, is_new = register(self._sql, self._account, wanted, self._service.ids.next(), self._now_ms)
        if is_new:
            return "created"
        changes: dict[str, Any] = {}
        if item.device_name and item.device_name != row["device_name"]:
            changes["device_name"] = item.device_name
        if item.qr_info is not None and item.qr_info != from_json(row["qr_info"] or "null"):
            changes["qr_info"] = to_json(item.qr_info).decode()
        if not changes:
            return "unchanged"
        update(self._sql, "devices", row["row"], **changes, updated_at=self._now_ms)
        return "changed"

    def _put_user(self, item: SeedUser) -> str:
        password_hash, row = self._hashes[item.email], find_person(self._sql, item.email)
        account = self._account if item.has_account else None
        if row is None or (row["account"] != account and not self._is_provisioned(row, item)):
            user_id = item.user_id or self._service.ids.next()
            add_person(self._sql, account, item.email, password_hash, user_id, self._now_ms)
            return "created"
        if item.user_id not in {None, row["id"]}:
            issue = f"{item.email} has the user_id {row['id']!r} already, which cannot be changed"
            raise conflict("user_exists", issue)
        if row["password_hash"] == password_hash:
            return "unchanged"
        update(self._sql, "people", row["row"], password_hash=password_hash)
        return "changed"

    def _is_provisioned(self, row: sqlite3.Row, item: SeedUser) -> bool:
        """Whether a person without an account has got one since, by an approval: such an account has no keys."""
        keys = one(self._sql, "SELECT 1 FROM api_keys WHERE account = ?", (row["account"],))
        return not item.has_account and keys is None

    def _put_rule(self, item: tuple[str, SeedRule]) -> str:
        name, rule = item
        product = self._product(name)
        select = "SELECT * FROM rules WHERE product_id = ? AND name = ? ORDER BY row LIMIT 1"
        row = one(self._sql, select, (product["id"], rule.name))
        members: dict[str, Any] = {"enabled": rule.enabled, "trigger": rule.trigger, "actions": rule.actions}
        if row is None:
            wanted = NewRule(product_id=product["id"], name=rule.name, **members)
            add_rule(self._service, self._sql, self._account, wanted, self._now_ms)
            return "created"
        is_changed = replace_rule(self._service, self._sql, row, RuleChange(**members), self._now_ms)
        return "changed" if is_changed else "unchanged"

    def _put_client(self, item: SeedClient) -> str:
        return put_client(self._sql, self._account, item, self._now_ms)


# --- the endpoint -----------------------------------------------------------------------------------------------

router = Router(tag="control")
_BODY_TYPES: Final = ("application/json", "application/yaml", "application/x-yaml", "text/yaml")
_BODY: Final = {
    "type": ["object", "null"],
    "properties": {group: {"type": "array", "items": {"type": "object"}} for group in Seed.model_fields},
    "additionalProperties": False,
}


@router.post(
    f"{CONTROL_PREFIX}seed",
    response_model=SeedCounts,
    responses=answers(404),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _BODY}, "application/yaml": {"schema": {"type": "string"}}},
        }
    },
)
async def seed_account(call: CallDep, api_key: Annotated[str | None, Query()] = None) -> Response:
    """Bring an account, the first one without `api_key`, to what a seed says; the same seed twice changes nothing."""
    call.request.scope.update(body_types=_BODY_TYPES, body_limit=SEED_BYTES)
    account = account_of_key(call.db.sql, api_key) or first_account(call.db.sql)
    try:
        return Json(await sow(call.service, account, await call.request.body()))
    except SeedError as exc:
        raise invalid_all([(f"line {line} {field}".rstrip(), issue) for line, field, issue in exc.problems]) from None
