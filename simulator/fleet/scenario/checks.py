"""What no section of a scenario can know on its own: whether its parts fit each other, and the files that it names."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError
from agent.wire.secret import read_key_file
from simulator.fleet.device.handlers import SENSOR, VOCABULARY, payload_fault
from simulator.fleet.metrics.thresholds import Source, ThresholdError, parse
from simulator.fleet.products import load_product
from simulator.fleet.scenario.conditions import ConditionError, parse_condition
from simulator.fleet.scenario.identities import read_identifiers
from simulator.fleet.scenario.model import (
    REGISTERED_PER_S,
    BackfillScenario,
    DevicesScenario,
    OnboardingScenario,
    RampPhase,
    RequestsScenario,
    Scenario,
    StepsPhase,
    StormPhase,
    preparing_s,
)
from simulator.fleet.settings import shares_make_one
from simulator.fleet.signals import build_signals
from simulator.wire.models import NewProduct
from simulator.yaml_document import KeyPath

BUILT_IN_PRODUCT: Final = "climate-node"
_OTHERS_MAY_NOT: Final = 0o077
_MINUTE_S: Final = 60.0

Found = Iterator[tuple[KeyPath, str]]
"""Where something does not fit, and what to do about it."""


def check_scenario(scenario: Scenario, folder: Path) -> list[tuple[KeyPath, str]]:
    """Everything that does not fit in a scenario whose sections are valid each for itself.

    Args:
        scenario: the scenario.
        folder: relative paths in it start here.
    """
    found = [*_target(scenario), *_fleet(scenario), *_files(scenario, folder)]
    if not isinstance(scenario, BackfillScenario):
        found += _phases(scenario)
    if isinstance(scenario, OnboardingScenario):
        found += _labels(scenario)
    if isinstance(scenario, DevicesScenario | RequestsScenario):
        found += _searches(scenario)
    return [*found, *_faults(scenario), *_thresholds(scenario)]


def check_code(scenario: Scenario) -> Found:
    """The signals that run code, which somebody has to allow."""
    for index, model in enumerate(scenario.fleet.models):
        for name, settings in model.signals.items():
            if settings.runs_code:
                here = ("fleet", "models", index, "signals", name, "file")
                yield here, "is a program; look into it, and give --allow-python if you trust it"


def _target(scenario: Scenario) -> Found:
    target = scenario.target
    if target.tls is not None and not target.base_url.startswith("https:"):
        yield ("target", "tls"), "needs a base_url that begins with https://"
    if target.broker is not None and target.broker.ca_file is not None and not target.broker.tls:
        yield ("target", "broker", "ca_file"), "needs 'tls: true'"
    if max(Counter(pair.api_key for pair in target.keys).values(), default=1) > 1:
        yield ("target", "keys"), "holds a key pair twice; each pair of a pool is another one"
    workers = scenario.workers if isinstance(scenario.workers, int) and target.is_pooled else 1
    if target.pool < min(workers, scenario.fleet.devices):
        yield ("workers",), f"each has a connection at least, and target.connections is {target.pool}; write fewer"


def _fleet(scenario: Scenario) -> Found:
    fleet, models = scenario.fleet, ("fleet", "models")
    names: set[str] = set()
    for index, model in enumerate(fleet.models):
        if model.name in names:
            issue = f"there is a model {model.name!r} already: give each a name of its own"
            yield (*models, index, "name"), issue
        names.add(model.name)
    total = sum(model.share for model in fleet.models)
    if fleet.models and not shares_make_one(model.share for model in fleet.models):
        yield models, f"the shares of the models make {total:.6g} together; they must make 1"
    if isinstance(scenario, DevicesScenario):
        transport = scenario.target.transport
        useless = "wait_s" if transport == "http_poll" else "every_s"
        for index, each in enumerate(scenario.fleet.models):
            if useless in each.poll.model_fields_set:
                yield (*models, index, "poll", useless), f"does nothing with 'transport: {transport}'; remove it"
    needed_s = preparing_s(scenario)
    if not isinstance(scenario, OnboardingScenario) and needed_s > scenario.fleet.prepare_within_s:
        issue = (
            f"registering {fleet.devices:,} devices takes about {needed_s / _MINUTE_S:.0f} minutes at "
            f"{REGISTERED_PER_S:g}/s, more than prepare_within_s ({scenario.fleet.prepare_within_s / _MINUTE_S:g}): "
            "take fewer devices that read and poll more often, or write "
            f"prepare_within_s: {math.ceil(needed_s / _MINUTE_S)}m, also where they are registered already"
        )
        yield ("fleet", "devices"), issue


def _labels(scenario: OnboardingScenario) -> Found:
    rate_per_s, labels = scenario.onboarding.rate_per_s, scenario.fleet.devices
    scanned = rate_per_s * sum(phase.rate_factor * phase.duration_s for phase in scenario.phases)
    if scanned < labels:
        issue = f"at {rate_per_s:g} labels/s only {scanned:.0f} of {labels} are scanned"
        yield ("phases",), f"{issue}; make a phase longer or the rate higher"


def _phases(scenario: DevicesScenario | RequestsScenario | OnboardingScenario) -> Found:
    names: set[str] = set()
    online = 0.0
    listed = scenario.phases if isinstance(scenario, OnboardingScenario) else scenario.listed
    for index, phase in enumerate(listed):
        here: KeyPath = ("phases", index)
        if phase.name in names:
            yield (*here, "name"), f"there is a phase {phase.name!r} already: give each a name of its own"
        names.add(phase.name)
        if isinstance(phase, StepsPhase):
            continue
        if isinstance(phase, RampPhase):
            if phase.to == online:
                yield (*here, "to"), f"{online:.6g} of the fleet is online already"
            online = phase.to
        elif not index:
            online = 1.0
        if isinstance(phase, StormPhase):
            if phase.waves * phase.away_s > phase.duration_s:
                needed = f"{phase.waves} waves of {phase.away_s:g} s do not fit into {phase.duration_s:g} s"
                yield (*here, "duration_s"), f"{needed}; give at least {phase.waves * phase.away_s:g}"
            if phase.share == 0 or online == 0:
                yield (*here, "share"), "nobody is online whom this storm would hit"
        if phase.until is not None:
            yield from _barrier(scenario, phase.until, online, (*here, "until"))
        elif "until_within_s" in phase.model_fields_set:
            yield (*here, "until_within_s"), "does nothing without 'until'"


def _searches(scenario: DevicesScenario | RequestsScenario) -> Found:
    names = {phase.name for phase in scenario.listed}
    for index, phase in enumerate(scenario.listed):
        if not isinstance(phase, StepsPhase):
            continue
        if phase is not scenario.search:
            yield ("phases", index), "a search for the limit ends the run: make it the last phase"
        if names.intersection(each.name for each in phase.phases(scenario.whole)):
            yield ("phases", index, "name"), "a phase is called as one of its steps: give it another name"
        yield from _steps(scenario, phase, ("phases", index))


def _steps(scenario: DevicesScenario | RequestsScenario, steps: StepsPhase, here: KeyPath) -> Found:
    if steps.to > scenario.whole:
        whole = f"{scenario.whole:,.10g}"
        if isinstance(scenario, DevicesScenario):
            yield (*here, "to"), f"the fleet has {whole} devices: write fewer, or more in fleet.devices"
        else:
            yield (*here, "to"), f"all arrivals make {whole} requests a second: raise their rate_per_s"
    if isinstance(scenario, DevicesScenario):
        for name, value in (("from", steps.first), ("to", steps.to), ("by", steps.by)):
            if not value.is_integer():
                yield (*here, name), "counts devices: write a whole number"
    for place, expression in enumerate(steps.until_broken):
        at: KeyPath = (*here, "until_broken", place)
        faults = list(_threshold(scenario, expression, at))
        yield from faults
        if faults:
            continue
        threshold = parse(expression)
        if threshold.source is Source.AUDIT or threshold.phase is not None:
            yield at, "is about one step: leave out 'in', and put the audit in 'thresholds'"
        elif (threshold.over_s or 0) > steps.hold_s - 1:
            yield at, f"no {threshold.over_s} s fit into hold_s: hold longer"


def _barrier(scenario: Scenario, until: str, online: float, here: KeyPath) -> Found:
    try:
        condition = parse_condition(until)
    except ConditionError as error:
        yield here, str(error)
        return
    devices = scenario.fleet.devices
    for part in condition.comparisons:
        if part.gauge == "online" and part.comparison in {">", ">=", "=="}:
            wanted = part.number * devices if part.of_devices else part.number
            if wanted > round(online * devices):
                yield here, f"never holds: this phase ends with {online:.6g} of {devices} devices online"
        if part.gauge == "open_commands" and not scenario.commands:
            yield here, "the scenario sends no commands whose end could be waited for"


def _faults(scenario: Scenario) -> Found:
    known = {name for model in scenario.fleet.models for name in model.signals}
    for index, fault in enumerate(scenario.faults):
        end_s = fault.at_s + fault.duration_s
        if end_s > scenario.duration_s:
            issue = f"ends {end_s:g} s after the begin; the phases end after {scenario.duration_s:g} s"
            yield ("faults", index, "duration_s" if fault.duration_s else "at_s"), issue
        for place, name in enumerate(getattr(fault, "readings", ())):
            if name not in known:
                here = ("faults", index, "readings", place)
                yield here, f"no model has a reading {name!r}; there are {', '.join(sorted(known))}"


def _thresholds(scenario: Scenario) -> Found:
    for index, expression in enumerate(scenario.thresholds):
        yield from _threshold(scenario, expression, ("thresholds", index))
    for index, expression in enumerate(scenario.abort_on):
        here: KeyPath = ("abort_on", index)
        faults = list(_threshold(scenario, expression, here))
        yield from faults
        if not faults and (parse(expression).over_s is None or parse(expression).phase is not None):
            yield here, "is held against the latest seconds of the run: write 'over 10s' or the like, and no 'in'"


def _threshold(scenario: Scenario, expression: str, here: KeyPath) -> Found:
    commands = {command.name for command in scenario.commands}
    reads = isinstance(scenario, DevicesScenario) or any(each.operation == "sensor_data" for each in scenario.arrivals)
    try:
        parse(expression, phases={phase.name for phase in scenario.phases}, commands=commands)
    except ThresholdError as error:
        yield here, str(error)
        return
    if expression.strip().startswith("commands.") and not commands:
        yield here, "the scenario sends no commands: add 'commands:', or remove the threshold"
    if expression.strip().startswith("readings.") and not reads:
        yield here, "nothing takes readings here that could grow old; remove the threshold"


# --- files ------------------------------------------------------------------------------------------------------------


def product_of(scenario: Scenario, folder: Path) -> NewProduct:
    """The product of a scenario's devices.

    Raises:
        ConfigurationError: its file cannot be read or is no product.
    """
    name = scenario.fleet.product
    return load_product(None if name == BUILT_IN_PRODUCT else folder / name)


def _files(scenario: Scenario, folder: Path) -> Found:
    """Whether files are there, readable, and where they hold a secret, private."""
    try:
        yield from _payloads(scenario, product_of(scenario, folder))
    except ConfigurationError as error:
        yield ("fleet", "product"), f"{error.source}: {'; '.join(error.faults)}; built in is {BUILT_IN_PRODUCT!r}"
    for index, model in enumerate(scenario.fleet.models):
        try:
            build_signals(model.signals, folder=folder)
        except ConfigurationError as error:
            for fault in error.faults:
                yield ("fleet", "models", index, "signals"), fault
    for index, pair in enumerate(scenario.target.keys):
        try:
            read_key_file(folder / pair.secret_key_file, others_may_not=_OTHERS_MAY_NOT)
        except ConfigurationError as error:
            yield ("target", "keys", index, "secret_key_file"), "; ".join(error.faults)
    for name, section in (("tls", scenario.target.tls), ("broker", scenario.target.broker)):
        if section is not None and section.ca_file is not None and not (folder / section.ca_file).is_file():
            yield ("target", name, "ca_file"), f"{folder / section.ca_file} is no file; name a PEM file that is there"
    if scenario.fleet.identities.from_file is not None:
        try:
            read_identifiers(scenario, folder)
        except ConfigurationError as error:
            yield ("fleet", "identities", "from"), "; ".join(error.faults)


def _payloads(scenario: Scenario, product: NewProduct) -> Found:
    """Whether product and virtual devices take the commands that are to succeed."""
    words = [command.name for command in product.commands or ()]
    meant = "give 'expect: rejected' if that is meant"
    for index, command in enumerate(scenario.commands):
        here, name = ("commands", index, "payload"), command.payload.get("command")
        if command.expect in {"rejected", "any"}:
            continue
        if not isinstance(name, str) or (words and name not in words):
            known = ", ".join(words) or "empty"
            yield here, f"command {name!r} is not in the product's vocabulary ({known}); {meant}"
        elif name not in VOCABULARY:
            known = ", ".join(VOCABULARY)
            yield here, f"virtual devices have no handler for {name!r} and reject it ({known}); {meant}"
        elif fault := payload_fault(VOCABULARY[name], command.payload):
            yield here, f"{fault[:200]}; {meant}"
        elif others := {*command.payload.get("names", ()), command.payload.get("name", SENSOR)} - {SENSOR}:
            yield here, f"virtual devices have one sensor, {SENSOR!r}, and no {str(others.pop())[:80]!r}; {meant}"
        elif name == "update_firmware" and isinstance(scenario, DevicesScenario):
            for model in scenario.fleet.models:
                if model.firmware is None:
                    what = f"devices of the model {model.name!r} have no firmware that could be updated, and reject it"
                    yield here, f"{what}; give it a section 'firmware:', or 'expect: any'"
