"""The keys of devices and their models, see ``key_table.py``."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.simulator.fleet.key_table import (
    FIRMWARE,
    NO_MODELS,
    NO_WIRE,
    ONLY_CORE,
    PING,
    UPDATE,
    Key,
    differs,
    moments,
    results,
    statuses,
    times_off,
)
from tests.virtual_fleet.scenarios import Look


def two_models(**more: Any) -> list[dict[str, Any]]:
    signals = {"x": {"kind": "constant", "value": 1}}
    return [{"name": "a", "share": 0.5, "signals": signals, **more}, {"name": "b", "share": 0.5, **more}]


FLEET: list[tuple[str, Key]] = [
    (
        "fleet.product",
        Key(
            "product.yaml",
            lambda _, a: a.run.service.products[0]["name"].endswith("Pump"),
            refused={"limiter": "the limiter's test has no devices"},
            given={"fleet": {"models": [{"signals": {"x": {"kind": "constant", "value": 1}}}]}},
            only="core-*|wire-*|history",
        ),
    ),
    (
        "fleet.product",
        Key(
            "product.yaml",
            lambda _, a: a.run.service.products[0]["name"].endswith("Pump"),
            refused={"limiter": "the limiter's test has no devices"},
            only="labels|limiter",
        ),
    ),
    ("fleet.devices", Key(5, lambda b, a: (b.run.record.devices, a.run.record.devices) in {(6, 5), (12, 5)})),
    (
        "fleet.prepare_within_s",
        Key(
            "10ms",
            refused={
                "core-*|wire-*|history": "more than prepare_within_s",
                "labels": "its labels are what is registered",
                "limiter": "it asks for the list of devices alone",
            },
        ),
    ),
    (
        "fleet.identities.prefix",
        Key(
            "x-",
            lambda _, a: names(a) and all(name.startswith("x-") for name in names(a)),
            refused={"limiter": "the limiter's test has no devices"},
        ),
    ),
    (
        "fleet.identities.from",
        Key(
            "ids.csv",
            lambda _, a: names(a) and all(name.startswith("own-") for name in names(a)),
            refused={"limiter": "the limiter's test has no devices"},
        ),
    ),
    (
        "fleet.identities.user_id",
        Key(
            "me",
            lambda _, a: users(a) and users(a) <= {"me", "me-2"},
            refused={"limiter": "the limiter's test has no devices"},
        ),
    ),
    ("fleet.models[].name", Key("pump", lambda b, a: "pump" in a.plan and "pump" not in b.plan, refused=NO_MODELS)),
    (
        "fleet.models",
        Key(
            two_models(),
            lambda b, a: {"x", "temperature_celsius"} <= a.run.values.keys() and "x" not in b.run.values,
            only="wire-*|labels|limiter",
            refused=NO_MODELS,
        ),
    ),
    (
        "fleet.models",
        Key(
            two_models(telemetry={"every_s": 3}),
            lambda b, a: {"x", "temperature_celsius"} <= a.run.values.keys() and "x" not in b.run.values,
            only="core-*|history",
        ),
    ),
    ("fleet.models[].share", Key(0.5, refused={"core-*|wire-*|history": "they must make 1", **NO_MODELS})),
    (
        "fleet.models[].signals",
        Key(
            {"x": {"kind": "constant", "value": 1}},
            lambda b, a: a.run.values.keys() == {"x", "fleet_sequence"} != b.run.values.keys(),
            refused=NO_MODELS,
        ),
    ),
    (
        "fleet.models[].telemetry.every_s",
        Key(1, lambda b, a: len(a.run.readings) > 2 * len(b.run.readings) > 0, refused=NO_WIRE),
    ),
    ("fleet.models[].telemetry.phase", Key("in_step", lambda b, a: moments(a) * 4 < moments(b), refused=NO_WIRE)),
    (
        "fleet.models[].telemetry.batch",
        Key(2, lambda b, a: batch(a) == 2 < batch(b), refused=NO_WIRE, only="wire-*|labels|limiter|history"),
    ),
    (
        "fleet.models[].telemetry.batch",
        Key(
            2,
            lambda b, a: batch(a) == 2 < batch(b),
            given={
                "fleet": {"models": [{"telemetry": {"every_s": 1}}]},
                "faults": [{"kind": "blackout", "at_s": 2, "duration_s": 5}],
            },
            only="core-*",
        ),
    ),
    (
        "fleet.models[].telemetry.batch",
        Key(
            2,
            refused={"core-poll": "the service takes no arrays"},
            given={"target": {"dialect": {"extensions": []}}},
            only="core-poll",
        ),
    ),
    (
        "fleet.models[].poll.every_s",
        Key(
            1,
            lambda b, a: len(a.run.polls) > 2 * len(b.run.polls) > 0,
            refused={**ONLY_CORE, "core-hold|core-mqtt": "only http_poll asks periodically"},
        ),
    ),
    (
        "fleet.models[].poll.wait_s",
        Key(
            2,
            lambda b, a: all("wait=2" in s.target for s in a.run.polls) and len(a.run.polls) > len(b.run.polls),
            refused={**ONLY_CORE, "core-poll|core-mqtt|history": "only http_long_poll has polls that are held"},
        ),
    ),
    (
        "fleet.models[].poll.wait_s",
        Key(
            2,
            refused={"core-hold": "the service holds no polls"},
            given={"target": {"dialect": {"extensions": []}}},
            only="core-hold",
        ),
    ),
]


def names(look: Look) -> list[str]:
    """What devices are registered as, or labels say."""
    return [
        json.loads(s.body)["device_identifier"]
        for s in look.run.service.sent
        if s.operation == "POST /onboarding/device"
    ]


def users(look: Look) -> set[str]:
    return {json.loads(s.body)["user_id"] for s in look.run.service.sent if s.operation == "POST /onboarding/device"}


def batch(look: Look) -> int:
    return max(len(sent.readings) for sent in look.run.batches)


TWO_STATES = {"fleet": {"models": [{"states": {"on": {"stay_s": 3}, "off": {"stay_s": 3, "powered": False}}}]}}
THREE_STATES = {
    "fleet": {
        "models": [{"states": {"on": {"stay_s": 3}, "other": {"stay_s": 3}, "off": {"stay_s": 3, "powered": False}}}]
    }
}
LOUD = {"fleet": {"models": [{"states": {"on": {"stay_s": 3}, "off": {"stay_s": 3}}}]}}
BATTERY = {"fleet": {"models": [{"battery": {"life_s": 10, "dead_s": 4, "charge_s": 4}}]}}
REBOOTS = {"fleet": {"models": [{"reboots": {"every_s": 6, "away_s": 1}}]}}
CLOCK = {"fleet": {"models": [{"clock": {"drift_ppm": 100000}}]}}


def levels(look: Look) -> list[float]:
    return look.run.values["battery_percent"]


def versions(look: Look) -> set[str]:
    return {
        each["result"].get("firmware_version") or str(each["result"]) for each in results(look) if each.get("result")
    }


def how_wrong(look: Look) -> float:
    """How far the times of readings are from when they were sent, at the most."""
    from agent.wire.times import parse_time
    from tests.virtual_fleet.virtual_time import EPOCH_S, START_S

    began_s = EPOCH_S + look.run.service.began_s - START_S
    return max(abs(parse_time(r["recorded_at"]) - began_s - at_s) for at_s, _, r in look.run.readings)


MODELS: list[tuple[str, Key]] = [
    ("fleet.models[].states", Key(TWO_STATES["fleet"]["models"][0]["states"], differs, refused=NO_WIRE)),
    ("fleet.models[].states[].stay_s", Key(30, differs, given=TWO_STATES, refused=NO_WIRE)),
    (
        "fleet.models[].states[].stay_s",
        Key(
            300,
            lambda b, a: times_off(a).get("states of climate", 0) < times_off(b)["states of climate"],
            given=TWO_STATES,
            only="core-*",
        ),
    ),
    ("fleet.models[].states[].stay", Key("fixed", differs, given=TWO_STATES, refused=NO_WIRE)),
    ("fleet.models[].states[].next", Key({"other": 1}, differs, given=THREE_STATES, refused=NO_WIRE)),
    (
        "fleet.models[].states[].powered",
        Key(False, lambda b, a: len(a.run.readings) < len(b.run.readings), given=LOUD, refused=NO_WIRE),
    ),
    (
        "fleet.models[].states[].telemetry_every_s",
        Key(0.5, lambda b, a: len(a.run.readings) > len(b.run.readings), given=LOUD, refused=NO_WIRE),
    ),
    (
        "fleet.models[].states[].signals",
        Key(
            {"temperature_celsius": {"kind": "constant", "value": 777}},
            lambda b, a: (
                777 in a.run.values["temperature_celsius"] and set(a.run.values["temperature_celsius"]) != {777}
            ),
            given=LOUD,
            refused=NO_WIRE,
        ),
    ),
    (
        "fleet.models[].battery",
        Key(
            {},
            lambda b, a: "battery_percent" in a.run.values and "battery_percent" not in b.run.values,
            given={"fleet": {"models": [{"signals": {"x": {"kind": "constant", "value": 1}}}]}},
            refused=NO_MODELS,
        ),
    ),
    (
        "fleet.models[].battery.reading",
        Key(
            "left", lambda b, a: "left" in a.run.values and "left" not in b.run.values, given=BATTERY, refused=NO_MODELS
        ),
    ),
    (
        "fleet.models[].battery.life_s",
        Key(1e6, lambda b, a: max(levels(a)) - min(levels(b)) >= 0 and differs(b, a), given=BATTERY, refused=NO_MODELS),
    ),
    ("fleet.models[].battery.dead_s", Key(0.5, differs, given=BATTERY, refused=NO_MODELS)),
    ("fleet.models[].battery.charge_s", Key(0.5, differs, given=BATTERY, refused=NO_MODELS)),
    (
        "fleet.models[].battery.full",
        Key(1000, lambda b, a: max(levels(a)) > 100 >= max(levels(b)), given=BATTERY, refused=NO_MODELS),
    ),
    (
        "fleet.models[].battery.empty",
        Key(90, lambda b, a: min(levels(a)) >= 90 > min(levels(b)), given=BATTERY, refused=NO_MODELS),
    ),
    ("fleet.models[].battery.spread", Key(0.9, differs, given=BATTERY, refused=NO_MODELS)),
    (
        "fleet.models[].battery.curve",
        Key("lithium", lambda b, a: levels(a) != levels(b), given=BATTERY, refused=NO_MODELS),
    ),
    (
        "fleet.models[].battery.digits",
        Key(
            0,
            lambda b, a: all(x == int(x) for x in levels(a)) and not all(x == int(x) for x in levels(b)),
            given=BATTERY,
            refused=NO_MODELS,
        ),
    ),
    (
        "fleet.models[].firmware.versions",
        Key(
            {"7.7": 1},
            lambda b, a: "7.7" in str(results(a)) and "7.7" not in str(results(b)),
            given={**FIRMWARE, **PING},
            only="core-*",
        ),
    ),
    (
        "fleet.models[].firmware.update_s",
        Key(
            1,
            lambda b, a: statuses(a)["succeeded"] > statuses(b)["succeeded"],
            given={**FIRMWARE, **UPDATE},
            only="core-*",
        ),
    ),
    (
        "fleet.models[].firmware.failure_share",
        Key(
            1,
            lambda b, a: statuses(a)["failed"] > 0 == statuses(b)["failed"],
            given={**UPDATE, "fleet": {"models": [{"firmware": {"versions": {"1.0": 1}, "update_s": 1}}]}},
            only="core-*",
        ),
    ),
    (
        "fleet.models[].firmware.failure_share",
        Key(1, refused={"core-*": "there are no updates"}, given={**FIRMWARE, **PING}, only="core-*"),
    ),
    (
        "fleet.models[].firmware",
        Key({"versions": {"1.0": 1}}, refused={**ONLY_CORE, "core-*": "nobody asks for the version"}),
    ),
    (
        "fleet.models[].reboots",
        Key(
            {"every_s": 6, "away_s": 2},
            lambda b, a: sum(a.run.online[3:12]) < sum(b.run.online[3:12]),
            refused=ONLY_CORE,
        ),
    ),
    (
        "fleet.models[].reboots.every_s",
        Key(
            3,
            lambda b, a: times_off(a)["reboots of climate"] > times_off(b)["reboots of climate"] and differs(b, a),
            given=REBOOTS,
            only="core-*",
        ),
    ),
    (
        "fleet.models[].reboots.away_s",
        Key(2.9, lambda b, a: sum(a.run.online[:12]) < sum(b.run.online[:12]), given=REBOOTS, only="core-*"),
    ),
    ("fleet.models[].clock", Key({"offset_s": 600}, differs, refused=ONLY_CORE)),
    (
        "fleet.models[].clock.offset_s",
        Key(
            600,
            lambda b, a: how_wrong(a) > how_wrong(b) + 10,
            given={
                "fleet": {"models": [{"clock": {"drift_ppm": 1}}]},
                "target": {"dialect": {"extensions": ["recorded-at"]}},
            },
            only="core-poll",
        ),
    ),
    (
        "fleet.models[].clock.offset_s",
        Key(600, differs, given={**PING, "fleet": {"models": [{"clock": {"drift_ppm": 1}}]}}, only="core-*"),
    ),
    (
        "fleet.models[].clock.drift_ppm",
        Key(90000, differs, given={**PING, "fleet": {"models": [{"clock": {"offset_s": 1}}]}}, only="core-*"),
    ),
    ("fleet.models[].clock.set_every_s", Key(2, differs, given={**PING, **CLOCK}, only="core-*")),
]
