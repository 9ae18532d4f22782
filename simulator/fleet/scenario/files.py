"""The files that a scenario names: there, readable, and where they hold a secret, private."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from agent.errors import ConfigurationError
from agent.wire.key_files import read_key_file
from simulator.fleet.device.handlers import SENSOR, VOCABULARY, VirtualHandler, payload_fault
from simulator.fleet.products import load_product
from simulator.fleet.scenario.finding import Finding
from simulator.fleet.scenario.identities import read_identifiers
from simulator.fleet.scenario.load import CommandSettings
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.signals import build_signals
from simulator.wire.models import NewProduct
from simulator.yaml_document import KeyPath

BUILT_IN_PRODUCT: Final = "climate-node"
_OTHERS_MAY_NOT: Final = 0o077


def product_of(scenario: Scenario, folder: Path) -> NewProduct:
    """The product of a scenario's devices.

    Raises:
        ConfigurationError: its file cannot be read or is no product.
    """
    name = scenario.fleet.product
    return load_product(None if name == BUILT_IN_PRODUCT else folder / name)


def check_code(scenario: Scenario) -> Iterator[Finding]:
    """The signals that run code, which somebody has to allow."""
    for index, model in enumerate(scenario.fleet.models):
        for name, settings in model.signals.items():
            if settings.runs_code:
                yield Finding.at(
                    ("fleet", "models", index, "signals", name, "file"),
                    issue="is a program; look into it, and give --allow-python if you trust it",
                )


def check_files(scenario: Scenario, folder: Path) -> Iterator[Finding]:
    """What is wrong with the files.

    Args:
        scenario: that names them.
        folder: relative paths start here.
    """
    try:
        product = product_of(scenario, folder)
    except ConfigurationError as error:
        issue = f"{error.source}: {_short(error)}; built in is {BUILT_IN_PRODUCT!r}"
        yield Finding.at(("fleet", "product"), issue=issue)
    else:
        yield from _payloads(scenario, product)
    yield from _models(scenario, folder)
    for index, pair in enumerate(scenario.target.keys):
        try:
            read_key_file(folder / pair.secret_key_file, others_may_not=_OTHERS_MAY_NOT)
        except ConfigurationError as error:
            yield Finding.at(("target", "keys", index, "secret_key_file"), issue=_short(error))
    for name, section in (("tls", scenario.target.tls), ("broker", scenario.target.broker)):
        if section is not None and section.ca_file is not None and not (folder / section.ca_file).is_file():
            issue = f"{folder / section.ca_file} is no file; name a PEM file that is there"
            yield Finding.at(("target", name, "ca_file"), issue=issue)
    if scenario.fleet.identities.from_file is not None:
        try:
            read_identifiers(scenario.fleet, folder)
        except ConfigurationError as error:
            yield Finding.at(("fleet", "identities", "from"), ("fleet", "devices"), issue=_short(error))


def _models(scenario: Scenario, folder: Path) -> Iterator[Finding]:
    for index, model in enumerate(scenario.fleet.models):
        try:
            build_signals(model.signals, folder=folder)
        except ConfigurationError as error:
            for fault in error.faults:
                yield Finding.at(("fleet", "models", index, "signals"), issue=fault)


def _payloads(scenario: Scenario, product: NewProduct) -> Iterator[Finding]:
    words = {command.name: command.payload_schema for command in product.commands or ()}
    for index, command in enumerate(scenario.commands):
        if command.expect in {"rejected", "any"}:
            continue
        here = ("commands", index, "payload")
        name = command.payload.get("command")
        if not isinstance(name, str) or (words and name not in words):
            yield Finding.at(
                here,
                ("fleet", "product"),
                issue=f"command {name!r} is not in the product's vocabulary ({', '.join(words) or 'empty'}); "
                "give 'expect: rejected' if that is meant",
            )
        elif name not in VOCABULARY:
            yield Finding.at(
                here,
                issue=f"virtual devices have no handler for {name!r} and reject it ({', '.join(VOCABULARY)}); "
                "give 'expect: rejected' if that is meant",
            )
        else:
            found = list(_against(command.payload, words.get(name) or {}, here))
            yield from found or _refused(scenario, command, VOCABULARY[name], here)


def _refused(scenario: Scenario, command: CommandSettings, handler: VirtualHandler, here: KeyPath) -> Iterator[Finding]:
    """What the devices themselves have against a command that they are to carry out."""
    fault = payload_fault(handler, command.payload)
    if fault is not None:
        yield Finding.at(here, issue=f"{fault[:200]}; give 'expect: rejected' if that is meant")
        return
    named = command.payload.get("names") or [command.payload.get("name", SENSOR)]
    for name in named:
        if name != SENSOR:
            yield Finding.at(
                here,
                issue=f"virtual devices have one sensor, {SENSOR!r}, and no {str(name)[:80]!r}; write that, or "
                "'expect: rejected' if it is meant",
            )
    if command.payload.get("command") == "update_firmware":
        for index, model in enumerate(scenario.fleet.models):
            if model.firmware is None:
                yield Finding.at(
                    here,
                    ("fleet", "models", index, "firmware"),
                    issue=f"devices of the model {model.name!r} have no firmware that could be updated, and reject it; "
                    "give it a section 'firmware:', or 'expect: any'",
                )


def _against(payload: dict[str, Any], schema: dict[str, Any], here: KeyPath) -> Iterator[Finding]:
    try:
        Draft202012Validator.check_schema(schema)
        faults = list(Draft202012Validator(schema).iter_errors(payload))
    except SchemaError as error:
        yield Finding.at(("fleet", "product"), issue=f"its payload_schema is no JSON Schema: {error.message[:200]}")
        return
    for fault in faults:
        yield Finding.at((*here, *fault.absolute_path), ("fleet", "product"), issue=f"{fault.message[:200]}")


def _short(error: ConfigurationError) -> str:
    return "; ".join(error.faults)
