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
faults are told at once, with their lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import yaml
from pydantic import BaseModel, Field, ValidationError

from agent.errors import ConfigurationError, InvalidMessage
from agent.wire.base import Items, JsonObject, Sent, Text, list_faults
from agent.wire.json_text import parse_json
from agent.wire.limits import JSON_DEPTH
from agent.wire.onboarding import Identifier
from agent.wire.products import NewProduct
from agent.wire.rules import ACTIONS_MAX, NewAction, NewTrigger
from simulator.service.oauth.client import GRANT_TYPES
from simulator.service.scopes import SCOPES

SEED_BYTES: Final = 4 * 1024 * 1024
_FAULTS_SHOWN: Final = 50
_DEPTH_MAX: Final = 2 * JSON_DEPTH
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"

Model = TypeVar("Model", bound=BaseModel)


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


class _Loader(yaml.SafeLoader):
    """YAML's JSON part: a date stays the text that it is written as."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
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
    root = _compose(raw)
    if root is None:
        return Seed()
    if not isinstance(root, yaml.MappingNode):
        raise SeedFaultsError([(_line(root), "", f"must be a mapping with {', '.join(_GROUPS)}")])
    faults: list[tuple[int, str, str]] = []
    found: dict[str, tuple[Line, ...]] = {}
    for key, value in root.value:
        model = _GROUPS.get(str(key.value))
        if model is None:
            faults.append((_line(key), str(key.value), f"unknown; a seed has {', '.join(_GROUPS)}"))
        elif key.value in found:
            faults.append((_line(key), key.value, "is there twice"))
        elif not isinstance(value, yaml.SequenceNode):
            faults.append((_line(value), key.value, "must be a list"))
        else:
            found[key.value] = tuple(_read_items(str(key.value), model, value, faults))
            if model is SeedProduct:
                found["rules"] = tuple(_read_rules(value, found[key.value], faults))
    if faults:
        raise SeedFaultsError(faults)
    return Seed(**found)


def _compose(raw: bytes) -> yaml.Node | None:
    if len(raw) > SEED_BYTES:
        raise SeedFaultsError([(1, "", f"a seed has at most {SEED_BYTES} bytes")])
    depth = 0
    try:
        for event in yaml.parse(raw, Loader=_Loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEPTH_MAX:  # the reader's time grows with the square of the depth
                raise SeedFaultsError([(_line(event), "", "nested too deeply")])
            if isinstance(event, yaml.AliasEvent):  # a few of them can stand for gigabytes
                raise SeedFaultsError([(_line(event), "", "aliases are not taken: write it out")])
        return yaml.compose(raw, Loader=_Loader)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        raise SeedFaultsError([(mark.line + 1 if mark else 1, "", f"not valid YAML: {exc.problem}")]) from None
    except (yaml.YAMLError, ValueError):
        raise SeedFaultsError([(1, "", "not valid YAML: it has characters that are not allowed")]) from None


def _read_items(
    group: str, model: type[BaseModel], items: yaml.SequenceNode, faults: list[tuple[int, str, str]]
) -> list[Line]:
    lines = []
    for index, node in enumerate(items.value):
        path = f"{group}.{index}"
        try:
            lines.append(Line(_line(node), path, model.model_validate(_json_value(node))))
        except ValidationError as exc:
            for field, issue in list_faults(exc):
                faults.append((_line_of(node, field), path if field == "body" else f"{path}.{field}", issue))
        except (InvalidMessage, ValueError, TypeError, yaml.YAMLError) as exc:
            faults.append((_line(node), path, f"is no JSON value: {exc}".partition("\n")[0]))
    return lines


def _read_rules(
    products: yaml.SequenceNode, lines: tuple[Line, ...], faults: list[tuple[int, str, str]]
) -> Iterator[Line]:
    """The rules that stand under the products, each with its own line."""
    nodes = {f"products.{index}": node for index, node in enumerate(products.value)}
    for line in lines:
        names: set[str] = set()
        for index, rule in enumerate(line.item.rules):
            number = _line_of(nodes[line.path], f"rules.{index}")
            if rule.name in names:
                faults.append((number, f"{line.path}.rules.{index}", f"the product has a rule {rule.name!r} already"))
            names.add(rule.name)
            yield Line(number, f"{line.path}.rules.{index}", rule, line.item.name)


def _json_value(node: yaml.Node) -> Any:
    """The node as a body of a request would hold it, with the same refusals: NaN, NUL, a key twice, depth."""
    _refuse_twice(node)
    loader = _Loader("")
    try:
        value = loader.construct_document(node)
    finally:
        loader.dispose()
    return parse_json(json.dumps(value, allow_nan=False).encode())


def _refuse_twice(node: yaml.Node) -> None:
    if isinstance(node, yaml.MappingNode):
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"{twice[0]} is there twice")
        for _, value in node.value:
            _refuse_twice(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_twice(value)


def _line(node: yaml.Node | yaml.Event) -> int:
    return node.start_mark.line + 1 if node.start_mark else 1


def _line_of(node: yaml.Node, field: str) -> int:
    """The line of a field such as ``commands.0.name``; of what is nearest around it when it is missing."""
    for part in field.split("."):
        if isinstance(node, yaml.MappingNode):
            below = next((value for key, value in node.value if key.value == part), None)
        elif isinstance(node, yaml.SequenceNode) and part.isdecimal() and int(part) < len(node.value):
            below = node.value[int(part)]
        else:
            below = None
        if below is None:
            break
        node = below
    return _line(node)
