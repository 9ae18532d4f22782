"""Seeds: a YAML file of products, devices, users and partner applications that are to be there.

::

    products:
      - name: Door controller
        commands: [{name: unlock, payload_schema: {type: object}}]
        rules:
          - name: Too hot
            trigger: {reading: temperature, op: ">", value: 60, for_seconds: 30}
            actions: [{type: command, command_payload: {command: unlock}}]
    devices:
      - product: Door controller
        device_identifier: SN-000001
        user_id: user-0001
    users:
      - email: ada@example.com
        password: correct horse battery staple
        user_id: user-0001
    clients:
      - client_id: fleet-view
        client_secret: at-least-32-random-characters-here
        name: Fleet View
        redirect_uris: ["https://fleet-view.example.com/callback"]
        scopes: ["manufacturer:devices", "manufacturer:data"]

A product is known by its name, a rule by its product and name, a device by product and identifier, a user by the
address, a client by its id: what is there as the file says stays as it is, so the same file twice changes nothing. All
faults are reported at once, with their lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field, ValidationError

from agent.errors import ConfigurationError, InvalidMessage
from agent.wire.base import Items, JsonObject, Sent, Text
from agent.wire.json_text import parse_json
from agent.wire.limits import JSON_DEPTH
from agent.wire.registration import Identifier
from simulator.service.core.client import GRANT_TYPES
from simulator.service.core.scopes import SCOPES
from simulator.service.member_faults import list_member_faults
from simulator.wire.products import NewProduct
from simulator.wire.rules import ACTIONS_MAX, NewAction, NewTrigger
from simulator.yaml_document import Document, KeyPath, read_document

SEED_BYTES: Final = 4 * 1024 * 1024
_FAULTS_SHOWN: Final = 50
_DEPTH_MAX: Final = 2 * JSON_DEPTH


class SeedRule(Sent):
    """A rule of the product that it stands under; members as in ``POST /rules``."""

    name: Text
    enabled: bool = True
    trigger: NewTrigger
    actions: Annotated[Items[NewAction], Field(min_length=1, max_length=ACTIONS_MAX)]


class SeedProduct(NewProduct):
    """A product as in ``POST /products``, and its rules."""

    rules: Items[SeedRule] = ()

    def definition(self) -> NewProduct:
        """The product alone, with the members that were given."""
        return NewProduct.model_validate(self.model_dump(exclude={"rules"}, exclude_unset=True))


class SeedDevice(Sent):
    """A device of a seed.

    Attributes:
        product: the name of a product, in this file or stored before.
    """

    product: Text
    device_identifier: Identifier
    user_id: Identifier
    device_name: str | None = None
    qr_info: JsonObject | None = None


class SeedUser(Sent):
    """A person who may sign in.

    Attributes:
        has_account: false for one who is no manufacturer before the first approval of a partner.
    """

    email: Text
    password: Text
    user_id: Text | None = None
    has_account: bool = True


class SeedClient(Sent):
    """A partner application. Its secret is given, since a seed that made one could not tell it.

    Attributes:
        public: it keeps no secret.
        scopes: what it may ask for; all when left out.
    """

    client_id: Text
    client_secret: Text | None = None
    public: bool = False
    name: Text
    redirect_uris: Items[Text]
    scopes: Items[Text] = SCOPES
    grant_types: Items[Text] = GRANT_TYPES
    description: Text | None = None
    home_url: Text | None = None
    logo_url: Text | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One item of a seed with the line that it begins at.

    Attributes:
        product: the name of the product that it stands under, when it stands under one.
    """

    number: int
    path: str
    item: Any
    product: str = ""


@dataclass(frozen=True, slots=True)
class Seed:
    """What is to be there; each :class:`Line` holds the model of its group."""

    products: tuple[Line, ...] = ()
    rules: tuple[Line, ...] = ()
    devices: tuple[Line, ...] = ()
    users: tuple[Line, ...] = ()
    clients: tuple[Line, ...] = ()


class SeedFaultsError(Exception):
    """A seed that cannot be used.

    Attributes:
        faults: (line, field, issue), in the order of the lines.
    """

    def __init__(self, faults: list[tuple[int, str, str]]) -> None:
        self.faults = sorted(faults)[:_FAULTS_SHOWN]
        super().__init__("; ".join(self.lines()))

    def lines(self) -> list[str]:
        """One sentence for each fault."""
        return [f"line {line}: {f'{field}: ' if field else ''}{issue}" for line, field, issue in self.faults]


_GROUPS: Final[dict[str, type[BaseModel]]] = {
    "products": SeedProduct,
    "devices": SeedDevice,
    "users": SeedUser,
    "clients": SeedClient,
}


def read_seed(path: Path) -> Seed:
    """The seed of a file.

    Raises:
        ConfigurationError: it cannot be read, or has faults; all of them, with their lines.
    """
    try:
        text = path.read_bytes()
    except OSError as exc:
        raise ConfigurationError([f"seed {path}: {exc.strerror}; give a file that can be read"], "seed") from None
    try:
        return parse_seed(text)
    except SeedFaultsError as exc:
        raise ConfigurationError([f"seed {path} {line}" for line in exc.lines()], "seed") from None


def parse_seed(raw: bytes) -> Seed:
    """The seed of a YAML text.

    Raises:
        SeedFaultsError: everything that is wrong with it.
    """
    document = read_document(raw, bytes_max=SEED_BYTES, depth_max=_DEPTH_MAX)
    faults = [(fault.place.line, _dotted(fault.path), fault.issue) for fault in document.faults]
    if document.value is None and not faults:
        return Seed()
    if document.value is not None and not isinstance(document.value, dict):
        faults.append((document.place_of(()).line, "", f"must be a mapping with {', '.join(_GROUPS)}"))
    found: dict[str, tuple[Line, ...]] = {}
    for group, items in document.value.items() if isinstance(document.value, dict) else ():
        if group not in _GROUPS:
            faults.append(
                (document.place_of((group,), key=True).line, group, f"unknown; a seed has {', '.join(_GROUPS)}")
            )
        elif not isinstance(items, list):
            faults.append((document.place_of((group,)).line, group, "must be a list"))
        else:
            found[group] = tuple(_read_items(group, items, document, faults))
    found["rules"] = tuple(_read_rules(found.get("products", ()), document, faults))
    if faults:
        raise SeedFaultsError(faults)
    return Seed(**found)


def _read_items(group: str, items: list[Any], document: Document, faults: list[tuple[int, str, str]]) -> Iterator[Line]:
    wrong = {fault.path[:2] for fault in document.faults}
    for index, item in enumerate(items):
        here: KeyPath = (group, index)
        number = document.place_of(here).line
        if here in wrong:
            continue
        try:
            # As a body of a request, with the same refusals: depth, numbers, names.
            value = parse_json(json.dumps(item).encode())
            yield Line(number, _dotted(here), _GROUPS[group].model_validate(value))
        except ValidationError as exc:
            for field, issue in list_member_faults(exc, _GROUPS[group]):
                path = here if field == "body" else (*here, *_steps(field))
                faults.append((document.place_of(path).line, _dotted(path), issue))
        except (InvalidMessage, ValueError) as exc:
            faults.append((number, _dotted(here), f"is no JSON value: {exc}".partition("\n")[0]))


def _read_rules(products: tuple[Line, ...], document: Document, faults: list[tuple[int, str, str]]) -> Iterator[Line]:
    """The rules that stand under the products, each with its own line."""
    for line in products:
        names: set[str] = set()
        for index, rule in enumerate(line.item.rules):
            path = (*_steps(line.path), "rules", index)
            number = document.place_of(path).line
            if rule.name in names:
                faults.append((number, _dotted(path), f"the product has a rule {rule.name!r} already"))
            names.add(rule.name)
            yield Line(number, _dotted(path), rule, line.item.name)


def _dotted(path: KeyPath) -> str:
    """``commands.0.name``, as answers of the service name fields."""
    return ".".join(map(str, path))


def _steps(field: str) -> KeyPath:
    """The path of such a name."""
    return tuple(int(step) if step.isdecimal() else step for step in field.split("."))
