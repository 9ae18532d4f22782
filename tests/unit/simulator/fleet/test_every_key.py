"""Each key of a scenario, in each kind, level and transport: it changes what the table says, or is refused.

A refusal is cheap and is looked at everywhere. What a key changes is played in two contexts, the second of which
differs from key to key; ``make exhaustive`` plays it in all.
"""

from __future__ import annotations

import re
import zlib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from agent.errors import ConfigurationError
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.signals.base import Individual
from simulator.fleet.signals.build import build_signals
from simulator.fleet.signals.registry import SignalMap
from tests.exhaustive import EXHAUSTIVE
from tests.unit.simulator.fleet import key_table as table
from tests.unit.simulator.fleet import key_table_faults as fault_table
from tests.unit.simulator.fleet import key_table_fleet as fleet_table
from tests.unit.simulator.fleet import key_table_phases as phase_table
from tests.unit.simulator.fleet.key_table import Key
from tests.virtual_fleet.scenarios import CONTEXTS, Looker, key_text, keys_of, merged, put, write_files

pytestmark = pytest.mark.long

FAULT_S, FAULT_END_S = 3.0, 8.0
PLACES = {"[]": ".0", "[open]": ".0", "[closed]": ".0", "[ramp]": ".0", "[hold]": ".0", "[storm]": ".1"}
CLOSED = {"arrivals": [{"kind": "closed", "users": 2, "pause_s": 1}]}


def path_of(key: str) -> str:
    """Where a key of the table stands in a document."""
    return re.sub(r"\[\w*\]", lambda found: PLACES.get(found[0], ".0"), key.replace("states[]", "states.on"))


def matches(context: str, patterns: str) -> bool:
    return any(fnmatchcase(context, pattern) for pattern in patterns.split("|"))


def cases():
    entries = [
        *table.TOP,
        *table.TARGET,
        *fleet_table.FLEET,
        *fleet_table.MODELS,
        *phase_table.COMMANDS,
        *phase_table.ARRIVALS,
        *phase_table.PHASES,
    ]
    for name, key in entries:
        for context in contexts_of(name, key):
            yield pytest.param(name, key, context, id=f"{name}-{key_text(key.value)}-{context}")


def contexts_of(name: str, key: Key) -> list[str]:
    """Where a key is looked at: wherever it is refused, and in two contexts in which it has an effect, or in all."""
    about = [context for context in CONTEXTS if matches(context, key.only)]
    played = [context for context in about if not any(matches(context, pattern) for pattern in key.refused)]
    if not EXHAUSTIVE and len(played) > 2:
        turn = zlib.crc32(f"{name} {key_text(key.value)}".encode())
        played = [played[0], played[1 + turn % (len(played) - 1)]]
    return [context for context in about if context in played or any(matches(context, each) for each in key.refused)]


@pytest.fixture(scope="module")
def looker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenarios")
    write_files(folder)
    return Looker(folder)


def judge(looker: Looker, key: Key, context: str, base, path: str) -> None:
    document = put(base, path, key.value)
    said = [text for pattern, text in key.refused.items() if matches(context, pattern)]
    if said:
        with pytest.raises(ConfigurationError) as caught:
            looker(document)
        faults = [fault for fault in caught.value.faults if said[0] in fault]
        assert faults, caught.value.faults
        assert re.match(r"line \d+, column \d+: ", faults[0])
        return
    before, after = looker(base, key.answers), looker(document, key.answers)
    assert key.claim(before, after), f"{path}: {key.value} changes nothing of what it says"
    # A program without the key's effect would show the same twice: the claim has to fail then.
    assert not key.claim(before, before), f"{path}: this claim cannot fail"


@pytest.mark.parametrize(("name", "key", "context"), list(cases()))
def test_a_key_changes_what_happens_as_it_says_or_is_refused_with_the_reason(looker, name, key, context):
    judge(looker, key, context, merged(CONTEXTS[context], key.given), path_of(name))


@pytest.mark.parametrize("context", ["wire-http", "wire-mqtt"])
@pytest.mark.parametrize(("name", "key"), phase_table.CLOSED)
def test_a_key_of_closed_users_changes_what_happens_or_is_refused(looker, name, key, context):
    judge(looker, key, context, {**CONTEXTS[context], **CLOSED}, path_of(name))


# --- faults -----------------------------------------------------------------------------------------------------------


def with_fault(context: str, kind: str, given=None, **more):
    fault = {"kind": kind, "at_s": FAULT_S, "duration_s": FAULT_END_S - FAULT_S, **fault_table.FAULTS[kind], **more}
    if kind == "out_of_order":  # there is an order where several readings go together: after some time without a link
        dark = {"kind": "blackout", "at_s": 1, "duration_s": 4}
        often = {"fleet": {"models": [{"telemetry": {"every_s": 0.5}}]}}
        return {**merged(merged(CONTEXTS[context], given or {}), often), "faults": [fault, dark]}
    return {**merged(CONTEXTS[context], given or {}), "faults": [fault]}


@pytest.mark.parametrize("kind", fault_table.FAULTS)
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_fault_is_played_in_its_time_alone_and_stands_in_the_record_or_is_refused(looker, kind, context):
    document = with_fault(context, kind)
    refused = fault_table.NO_FAULTS if kind in fault_table.LINKS else fault_table.NO_LINKS
    said = [text for pattern, text in refused.items() if matches(context, pattern)]
    if said:
        with pytest.raises(ConfigurationError) as caught:
            looker(document)
        assert any(said[0] in fault for fault in caught.value.faults)
        return
    calm, struck = looker({**document, "faults": document["faults"][1:]}), looker(document)
    found = struck.run.record.faults[0]
    assert (found.begin_s, found.end_s) == (FAULT_S, FAULT_END_S)
    assert seen(calm) != seen(struck)
    assert [each for each in calm.wire if each[0] < FAULT_S - 0.1] == [
        each for each in struck.wire if each[0] < FAULT_S - 0.1
    ]


def seen(look):
    slow = [(each.begun_s, each.ended_s, each.count) for each in look.run.engines.slow]
    return look.wire, look.run.online, slow, [(round(at_s, 3), device) for at_s, device, _ in look.run.engines.openings]


@pytest.mark.parametrize("kind", fault_table.FAULTS)
def test_the_keys_that_all_faults_have_change_name_time_length_and_devices(looker, kind):
    context = "core-mqtt" if kind == "half_open" else "core-poll"  # its requests have no time to be lost by HTTP
    before = looker(with_fault(context, kind))
    renamed = looker(with_fault(context, kind, name="mine")).run.record.faults[0]
    later = looker(with_fault(context, kind, at_s=FAULT_S + 2))
    shorter = looker(with_fault(context, kind, duration_s=1))
    assert renamed.name == "mine" != before.run.record.faults[0].name
    assert later.run.record.faults[0].begin_s == FAULT_S + 2
    assert shorter.run.record.faults[0].end_s == FAULT_S + 1
    assert seen(later) != seen(before)
    if kind == "slow_loris":
        with pytest.raises(ConfigurationError, match="these connections belong to no device"):
            looker(with_fault(context, kind, share=0.4))
    else:
        fewer = looker(with_fault(context, kind, share=0.4))
        assert fewer.run.record.faults[0].devices < before.run.record.faults[0].devices == 6
        assert seen(fewer) != seen(before)
    if kind not in {"out_of_order", "dead_battery"}:
        assert seen(shorter) != seen(before)


@pytest.mark.parametrize(
    ("name", "key", "context"),
    [
        pytest.param(name, key, context, id=f"{name}-{key_text(key.value)}-{context}")
        for name, key in fault_table.OF_FAULTS
        for context in CONTEXTS
        if matches(context, "core-poll" if key.only == "*" else key.only)
    ],
)
def test_a_key_of_a_fault_changes_what_it_does(looker, name, key, context):
    judge(looker, key, context, with_fault(context, name[7 : name.index("]")], key.given), path_of(name))


# --- pairs ------------------------------------------------------------------------------------------------------------

WAITS = [
    {"name": "first", "kind": "hold", "duration_s": 4, "until": "connections > 1000000", "until_within_s": 4},
    {"name": "last", "kind": "hold", "duration_s": 9},
]
WAIT_S = 4


@pytest.mark.parametrize("kind", fault_table.FAULTS)
def test_a_fault_behind_a_barrier_that_waits_is_played_once_when_the_record_says(looker, kind):
    context = "core-mqtt" if kind == "half_open" else "core-poll"
    document = with_fault(context, kind, at_s=6, duration_s=4)
    document = {**document, "phases": WAITS, "faults": [*document["faults"][:1]]}
    if kind == "out_of_order":
        document["faults"].append({"kind": "blackout", "at_s": 4.5, "duration_s": 2})
    calm, struck = looker({**document, "faults": document["faults"][1:]}), looker(document)
    found = struck.run.record.faults[0]
    assert found.begin_s == pytest.approx(6 + WAIT_S, abs=0.2)
    assert found.end_s - found.begin_s == pytest.approx(4)
    assert len(struck.run.record.faults) == len(document["faults"])
    assert seen(calm) != seen(struck)
    early = found.begin_s - 0.1
    assert [each for each in calm.wire if each[0] < early] == [each for each in struck.wire if each[0] < early]


@pytest.mark.parametrize(
    "model",
    [
        {"battery": {"life_s": 6, "dead_s": 2, "charge_s": 1}},
        {"reboots": {"every_s": 4, "away_s": 1}},
        {"states": {"on": {"stay_s": 2}, "off": {"stay_s": 1, "powered": False}}},
    ],
)
@pytest.mark.parametrize("context", ["core-poll", "core-hold", "core-mqtt"])
def test_power_goes_and_comes_while_a_barrier_waits_as_it_would_without_one(looker, model, context):
    base = merged(CONTEXTS[context], {"fleet": {"models": [model]}})
    waiting = looker({**base, "phases": WAITS})
    going = looker({**base, "phases": [{"name": "all", "kind": "hold", "duration_s": 13}]})
    assert len(set(going.run.online[4:9])) > 1
    assert waiting.run.online[:12] == going.run.online[:12]


# --- signals ----------------------------------------------------------------------------------------------------------


def read(folder: Path, signal):
    """What three devices read within ten minutes."""
    document = {"x": signal, "other": fault_table.OTHER, "third": {"kind": "noise", "mean": 5}}
    signals = build_signals(TypeAdapter(SignalMap).validate_python(document), folder=folder)
    return [signals.read(Individual.at(1, index), 10_000.0 + 7 * turn) for index in range(3) for turn in range(90)]


def without_none(signal):
    return {name: value for name, value in signal.items() if value is not None}


@pytest.mark.parametrize("name", fault_table.OF_SIGNALS)
def test_a_key_of_a_signal_changes_what_is_read(looker, name):
    kind, _, key = name.partition(".")
    before = {"kind": kind, **fault_table.SIGNALS[kind]}
    beside = fault_table.BESIDE.get(name, {})
    after = put(
        without_none({**before, **beside}), path_of(key).replace("states.on", "states.a"), fault_table.OF_SIGNALS[name]
    )
    if "file" in beside:
        with pytest.raises(ConfigurationError, match="lines of several devices"):
            read(looker.folder, {**before, **beside})
    assert read(looker.folder, after) != read(looker.folder, before)


@pytest.mark.parametrize("kind", [kind for kind in fault_table.SIGNALS if kind != "gps_route"])
def test_bounds_decimals_and_unit_of_a_signal_hold(looker, kind):
    before = {"kind": kind, **fault_table.SIGNALS[kind]}
    values = {
        name: [each["x"] for each in read(looker.folder, {**before, name: value})]
        for name, value in fault_table.SHAPE.items()
    }
    assert set(values["min"]) == {1000}
    assert set(values["max"]) == {-1000}
    assert all(value == int(value) for value in values["digits"])
    assert not all(each["x"] == int(each["x"]) for each in read(looker.folder, before)) or kind == "csv"
    models = [{"signals": {"x": {**before, "unit": "furlong"}, "other": fault_table.OTHER}}]
    assert "x (furlong)" in looker(merged(CONTEXTS["core-poll"], {"fleet": {"models": models}})).plan


# --- none is left out -------------------------------------------------------------------------------------------------

COMMON = ("name", "at_s", "share", "duration_s", "kind")
BOUNDS = ("min", "max", "digits", "unit", "kind")


def covered():
    tables = [
        table.TOP,
        table.TARGET,
        fleet_table.FLEET,
        fleet_table.MODELS,
        phase_table.COMMANDS,
        phase_table.ARRIVALS,
        phase_table.CLOSED,
    ]
    yield from (name for entries in [*tables, phase_table.PHASES, fault_table.OF_FAULTS] for name, _ in entries)
    yield from table.AXES
    yield from (f"faults[{kind}].{name}" for kind in fault_table.FAULTS for name in COMMON)
    for place in ("fleet.models[].signals", "fleet.models[].states[].signals"):
        for name in fault_table.OF_SIGNALS:
            kind, _, key = name.partition(".")
            yield f"{place}[{kind}].{key}"
        yield from (f"{place}[{kind}].{name}" for kind in fault_table.SIGNALS for name in BOUNDS)


def test_every_key_of_the_models_has_an_entry():
    """A new key fails here until the table says what it does, or where it is refused."""
    known = set(covered())
    missing = [
        key
        for key, is_section in keys_of(Scenario)
        if key not in known
        and not key.endswith("].kind")
        and not (is_section and any(name.startswith((f"{key}.", f"{key}[")) for name in known))
    ]
    assert missing == []


def test_the_keys_are_played_in_every_context():
    played = {(context, key.refused == {}) for _, key, context in (case.values for case in cases())}
    assert {context for context, is_everywhere in played if is_everywhere} == set(CONTEXTS)


def test_every_entry_is_about_a_key_that_there_is_and_about_every_context():
    there = {key for key, _ in keys_of(Scenario)}
    assert {
        name for name in covered() if name not in there and not name.endswith((".digits", ".unit", ".min", ".max"))
    } == set()
    entries = [
        *table.TOP,
        *table.TARGET,
        *fleet_table.FLEET,
        *fleet_table.MODELS,
        *phase_table.COMMANDS,
        *phase_table.ARRIVALS,
        *phase_table.PHASES,
    ]
    about: dict[str, set[str]] = {}
    for name, key in entries:
        for section in (name, *(name[:at] for at, sign in enumerate(name) if sign in ".[")):
            about.setdefault(section, set()).update(context for context in CONTEXTS if matches(context, key.only))
    sections = {re.split(r"[.\[]", name)[0] for name, _ in entries}
    assert {section: set(CONTEXTS) - about[section] for section in sections if set(CONTEXTS) - about[section]} == {}
