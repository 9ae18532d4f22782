"""For each key of a scenario what it changes, and where it is refused. ``test_every_key.py`` plays all of it.

A claim compares what is seen without the key (or with another value) with what is seen with it.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.virtual_fleet.scenarios import Answers, Document, Look, frozen, limited, silent

Claim = Callable[[Look, Look], object]


@dataclass(frozen=True)
class Key:
    """One value of a key.

    Attributes:
        value: what it is set to.
        claim: of what is seen before and after; has to be true wherever the key is not refused.
        given: what both have beside it.
        refused: patterns of contexts with what is said there.
        only: patterns of the contexts that this is about.
        answers: what the service does otherwise.
    """

    value: Any
    claim: Claim = lambda _before, _after: False
    given: Document = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    only: str = "*"
    answers: Answers | None = None


PING = {"commands": [{"payload": {"command": "ping"}, "rate_per_s": 0.5}]}
UPDATE = {"commands": [{"payload": {"command": "update_firmware", "version": "2.0"}, "rate_per_s": 1}]}
HTTPS = {"target": {"base_url": "https://127.0.0.1:8443"}}
ONLY_MQTT = {"core-poll|core-hold|wire-http|history|labels|limiter": "does nothing without 'transport: mqtt'"}
NO_COMMANDS = {
    "wire-*|limiter": "commands: nobody would carry them out",
    "history|labels": "sends no commands; remove them",
}
NO_ARRIVALS = {
    "core-*": "arrivals: devices of level core send by their own schedules",
    "history|labels|limiter": "makes requests of its own; remove them",
}
NO_MODELS = {"labels": "labels have no devices that read", "limiter": "fleet.models"}
NO_WIRE = {"wire-*": "level wire has no devices", **NO_MODELS}
ONLY_CORE = {**NO_WIRE, "history": "history has readings at their true times alone"}
NOT_OVER_MQTT = {"*-mqtt": "does nothing with 'transport: mqtt'"}
ITS_OWN_WAY = {
    "history": "history goes to the service itself",
    "labels": "labels go to the service itself",
    "limiter": "the limiter's test asks the service itself",
}
NOT_HEARD = {
    "labels": "labels have no devices that read",
    "limiter": "the limiter's test reads neither readings nor commands",
}
NO_PHASES = {
    "history": "history has no devices that come and go",
    "labels": "labels have no devices that come and go",
    "limiter": "phases only give the limiter's test its time",
}


def http(look: Look, option: str) -> list[Any]:
    return [getattr(options, option) for options in look.run.engines.http]


def sends(look: Look, name: str) -> list[str]:
    """The values of a header in everything that was sent, before the run as well."""
    return [sent.headers[name] for sent in look.run.service.sent if name in sent.headers]


def bodies(look: Look, *operations: str) -> list[Any]:
    return [sent.json() for sent in look.run.of(*operations)]


def authorities(trust: Any) -> int:
    return int(trust.cert_store_stats()["x509_ca"])


def gaps(times: list[float]) -> set[float]:
    return {round(later - earlier, 3) for earlier, later in itertools.pairwise(times)}


def sent_at(look: Look, *operations: str) -> list[float]:
    return sorted(sent.at_s for sent in look.run.of(*operations))


def moments(look: Look) -> int:
    """At how many moments of the period readings are made."""
    times = [reading["recorded_at"] for _, _, reading in look.run.readings]
    return len(set(times))


def differs(before: Look, after: Look) -> bool:
    return before.wire != after.wire


def shorter(before: Look, after: Look) -> bool:
    return after.run.record.duration_s < before.run.record.duration_s - 2


def times_off(look: Look) -> dict[str, int]:
    return {outage.cause: outage.times for outage in look.forecast.outages}


def orders(look: Look) -> list[dict[str, Any]]:
    return bodies(look, "POST /commands/send")


def results(look: Look) -> list[dict[str, Any]]:
    return look.run.service.results


def statuses(look: Look) -> Counter[str]:
    return Counter(each["status"] for each in results(look))


def arrived(look: Look) -> int:
    return len(look.run.of("POST /sensor-data", "sensor-data"))


TOP: list[tuple[str, Key]] = [
    ("scenario", Key("other", lambda _, a: a.run.record.name == "other")),
    ("description", Key("a try", lambda b, a: "a try" in a.plan and "a try" not in b.plan)),
    ("seed", Key(2, differs, refused={"limiter": "nothing in the limiter's test is left to chance"})),
    (
        "workers",
        Key(
            2,
            lambda b, a: (len(b.run.jobs), len(a.run.jobs)) == (1, 2),
            refused={"labels": "one process plays all labels", "limiter": "one process makes all requests"},
        ),
    ),
    ("drain_s", Key(1, shorter, answers=frozen, only="core-*|wire-*")),
    ("drain_s", Key(1, shorter, answers=silent, given={"target": {"timeout_s": 30}}, only="limiter")),
    ("drain_s", Key(1, shorter, answers=frozen, given={"fleet": {"devices": 24}}, only="labels")),
    (
        "drain_s",
        Key(
            1,
            shorter,
            answers=silent,
            given={"phases": [{"duration_s": 4, "until": "waiting_readings >= 0"}]},
            only="history",
        ),
    ),
    (
        "thresholds",
        Key(
            ["generator.sent >= 99.5%", "http.failed.count > 1000000"],
            lambda _, a: [t.held for t in a.run.record.thresholds][1:] == [False],
        ),
    ),
    (
        "audit.numbers",
        Key(
            False,
            lambda b, a: "fleet_sequence" in b.run.values and "fleet_sequence" not in a.run.values,
            refused={
                "wire-*|history|limiter": "only devices with the agent's core make sure",
                "labels": "labels have no devices",
            },
        ),
    ),
    (
        "audit.late_after_s",
        Key(
            0.001,
            lambda b, a: b.run.record.audit.readings.late == 0 < a.run.record.audit.readings.late,
            refused={**NOT_HEARD, "history": "history is late by its nature"},
        ),
    ),
    (
        "onboarding.rate_per_s",
        Key(5, lambda b, a: gaps(sent_at(a, "POST /onboarding/scan-qr")) == {0.2}, only="labels"),
    ),
    (
        "onboarding.races",
        Key(
            1,
            lambda b, a: len(a.run.of("POST /onboarding/device")) == 24 > len(b.run.of("POST /onboarding/device")),
            only="labels",
        ),
    ),
    ("onboarding.remove", Key(1, lambda b, a: a.run.service.devices == {} != b.run.service.devices, only="labels")),
    (
        "onboarding",
        Key(
            {},
            refused={"core-*|wire-*|history|limiter": "does nothing without 'kind: onboarding_storm'"},
            only="core-*|wire-*|history|limiter",
        ),
    ),
    (
        "limiter.quota",
        Key(
            4,
            lambda b, a: (b.job.rules.quota, a.job.rules.quota) == (5, 4) and len(a.wire) < len(b.wire),
            only="limiter",
        ),
    ),
    ("limiter.window_s", Key(1, lambda b, a: a.job.rules.window_s == 1 and differs(b, a), only="limiter")),
    ("limiter.over", Key(3, lambda b, a: len(a.wire) > len(b.wire), only="limiter")),
    (
        "limiter.tolerance",
        Key(0.5, lambda b, a: (b.job.rules.tolerance, a.job.rules.tolerance) == (0, 0.5), only="limiter"),
    ),
    (
        "limiter",
        Key(
            {},
            refused={"core-*|wire-*|history|labels": "does nothing without 'kind: limiter'"},
            only="core-*|wire-*|history|labels",
        ),
    ),
    ("backfill.history_s", Key(300, lambda b, a: len(a.run.readings) * 2 == len(b.run.readings), only="history")),
    (
        "backfill.ends_at",
        Key(
            "2025-01-01T00:00:00Z",
            lambda b, a: (
                all(r["recorded_at"] < "2025-01-01T00:00:01" for _, _, r in a.run.readings) and bool(a.run.readings)
            ),
            only="history",
        ),
    ),
    (
        "backfill",
        Key(
            {},
            refused={"core-*|wire-*|labels|limiter": "does nothing without 'kind: backfill'"},
            only="core-*|wire-*|labels|limiter",
        ),
    ),
]

TARGET: list[tuple[str, Key]] = [
    (
        "target.base_url",
        Key(
            "http://127.0.0.1:9999",
            lambda b, a: 9999 in {o.port for o in http(a, "origin")} - {o.port for o in http(b, "origin")},
        ),
    ),
    (
        "target.through",
        Key(
            "gateway",
            lambda b, a: sends(a, "authorization") and not sends(b, "authorization"),
            only="core-poll|core-hold|wire-http|history|labels|limiter",
            refused=ITS_OWN_WAY,
        ),
    ),
    (
        "target.through",
        Key("service", refused={"*-mqtt": "the service speaks no MQTT, the gateway does"}, only="*-mqtt"),
    ),
    (
        "target.connections",
        Key(
            "per_device",
            lambda b, a: any(http(a, "per_device")) > any(http(b, "per_device")),
            refused={**NOT_OVER_MQTT, **ITS_OWN_WAY},
        ),
    ),
    (
        "target.pool",
        Key(
            7,
            lambda b, a: 7 in http(a, "pool") and 7 not in http(b, "pool"),
            refused={**NOT_OVER_MQTT, "limiter": ITS_OWN_WAY["limiter"]},
        ),
    ),
    ("target.pool", Key(64, refused={"history": "history takes 32 connections at most"}, only="history")),
    (
        "target.source_addresses",
        Key(
            2,
            lambda _, a: (
                2
                in {len(sources) for sources in http(a, "sources")} | {len(o["sources"]) for _, o in a.run.engines.mqtt}
            ),
            refused=ITS_OWN_WAY,
        ),
    ),
    ("target.timeout_s", Key(3, lambda b, a: 3.0 in a.run.engines.timeouts_s and 3.0 not in b.run.engines.timeouts_s)),
    (
        "target.tls.ca_file",
        Key(
            "ca.pem",
            lambda b, a: (
                {authorities(o.tls) for o in http(a, "origin") if o.port == 8443}
                == {1}
                != {authorities(o.tls) for o in http(b, "origin") if o.port == 8443}
            ),
            given=HTTPS,
        ),
    ),
    ("target.tls", Key({}, refused={"*": "needs a base_url that begins with https://"})),
    ("target.broker", Key({}, refused=ONLY_MQTT, only="core-poll|core-hold|wire-http|history|labels|limiter")),
    (
        "target.broker.host",
        Key(
            "localhost", lambda _, a: {broker.host for broker, _ in a.run.engines.mqtt} == {"localhost"}, only="*-mqtt"
        ),
    ),
    (
        "target.broker.port",
        Key(1999, lambda _, a: {broker.port for broker, _ in a.run.engines.mqtt} == {1999}, only="*-mqtt"),
    ),
    (
        "target.broker.tls",
        Key(
            True,
            lambda b, a: (
                all(br.tls for br, _ in a.run.engines.mqtt) and not any(br.tls for br, _ in b.run.engines.mqtt)
            ),
            only="*-mqtt",
        ),
    ),
    (
        "target.broker.ca_file",
        Key(
            "ca.pem",
            lambda _, a: {authorities(broker.tls) for broker, _ in a.run.engines.mqtt} == {1},
            given={"target": {"broker": {"tls": True}}},
            only="*-mqtt",
        ),
    ),
    ("target.broker.ca_file", Key("ca.pem", refused={"*-mqtt": "needs 'tls: true'"}, only="*-mqtt")),
    (
        "target.keys[].api_key",
        Key(
            "mk_b",
            lambda b, a: "mk_b" in sends(a, "x-api-key") and "mk_b" not in sends(b, "x-api-key"),
            given={"target": {"keys": [{"api_key": "mk_a", "secret_key_file": "one"}]}},
        ),
    ),
    (
        "target.keys[].secret_key_file",
        Key(
            "two",
            lambda b, a: "msk_" + "two" * 8 in set(sends(a, "x-secret-key")) - set(sends(b, "x-secret-key")),
            given={"target": {"keys": [{"api_key": "mk_a", "secret_key_file": "one"}]}},
        ),
    ),
    (
        "target.dialect.extensions",
        Key(
            ["recorded-at", "list-parameters"],
            lambda b, a: a.job.offers < b.job.offers,
            only="core-poll|core-mqtt|wire-*|history|labels|limiter",
        ),
    ),
    (
        "target.dialect.extensions",
        Key(["recorded-at"], refused={"core-hold": "the service holds no polls"}, only="core-hold"),
    ),
    (
        "target.dialect.extensions",
        Key(
            [],
            lambda b, a: (
                any("status=open" in s.target for s in b.run.polls) and not any("?" in s.target for s in a.run.polls)
            ),
            only="core-poll",
        ),
    ),
    (
        "target.dialect.command_id",
        Key(
            "nr",
            lambda b, a: (b.header.command_id, a.header.command_id) == ("auto", "nr"),
            refused={**NOT_HEARD, "history": "history has no commands"},
        ),
    ),
    (
        "target.dialect.time_zone",
        Key("+05:00", lambda b, a: (b.header.time_zone, a.header.time_zone) == ("auto", "+05:00"), refused=NOT_HEARD),
    ),
    (
        "target.dialect.recorded_at_reading",
        Key(
            "taken",
            lambda b, a: (b.header.time_name, a.header.time_name) == (None, "taken"),
            refused={**NOT_HEARD, "history": "its readings carry recorded_at"},
        ),
    ),
    (
        "target.dialect.recorded_at_reading",
        Key(
            "taken",
            lambda b, a: "taken" in a.run.values and "taken" not in b.run.values,
            given={"target": {"dialect": {"extensions": []}}},
            only="core-poll|wire-http",
        ),
    ),
    (
        "target.dialect.results",
        Key("none", lambda b, a: results(b) and not results(a), given=PING, only="core-poll|core-hold"),
    ),
    (
        "target.dialect.results",
        Key(
            "none",
            only="*-mqtt|wire-http|history|labels|limiter",
            refused={
                "*-mqtt": "the gateway, which answers no 429",
                "wire-http": "level wire has no devices to report",
                "history": "history has no commands",
                **NOT_HEARD,
            },
        ),
    ),
    (
        "target.dialect.results_table",
        Key(
            "mine",
            lambda b, a: {r["table_name"] for r in results(a)} == {"mine"} and results(b),
            given={**PING, "target": {"dialect": {"results": "table"}}},
            only="core-poll|core-hold",
        ),
    ),
    (
        "target.dialect.results_table",
        Key(
            "mine",
            only="*-mqtt|wire-http|history|labels|limiter",
            refused={
                "*-mqtt": "the gateway, which answers no 429",
                "wire-http": "level wire has no devices to report",
                "history": "history has no commands",
                **NOT_HEARD,
            },
        ),
    ),
    (
        "target.dialect.command_lists",
        Key(
            "everything",
            lambda b, a: (b.header.command_lists, a.header.command_lists) == (None, "everything"),
            refused={**NOT_HEARD, "history": "history has no commands"},
        ),
    ),
    (
        "target.on_limited",
        Key(
            "defy",
            lambda b, a: arrived(a) > arrived(b),
            answers=limited,
            refused={
                "wire-*|history|labels|limiter": "does nothing without devices that could wait",
                "core-mqtt": "answers no 429",
            },
        ),
    ),
]


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
FIRMWARE = {"fleet": {"models": [{"firmware": {"versions": {"1.0": 1}}}]}}
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

COMMANDS: list[tuple[str, Key]] = [
    (
        "commands",
        Key(PING["commands"], lambda b, a: statuses(a)["succeeded"] > 0 == len(results(b)), refused=NO_COMMANDS),
    ),
    (
        "commands[].payload",
        Key(
            {"command": "read_sensors"},
            lambda _, a: {o["command_payload"]["command"] for o in orders(a)} == {"read_sensors"},
            given=PING,
            only="core-*",
        ),
    ),
    (
        "commands[].rate_per_s",
        Key(2, lambda b, a: (len(orders(b)), len(orders(a))) == (6, 24), given=PING, only="core-*"),
    ),
    (
        "commands[].spacing",
        Key(
            "poisson",
            lambda b, a: (
                gaps(sent_at(b, "POST /commands/send")) == {2.0} and len(gaps(sent_at(a, "POST /commands/send"))) > 2
            ),
            given=PING,
            only="core-*",
        ),
    ),
    (
        "commands[].expect",
        Key(
            "failed",
            lambda b, a: b.run.record.verdict.exit_code == 0 and a.run.record.verdict.exit_code == 1,
            given=PING,
            only="core-*",
        ),
    ),
    (
        "commands[].ttl_s",
        Key(
            7,
            lambda b, a: {o["ttl_seconds"] for o in orders(a)} == {7} != {o["ttl_seconds"] for o in orders(b)},
            given=PING,
            only="core-*",
        ),
    ),
    (
        "commands[].ttl_s",
        Key(
            7,
            refused={"core-poll": "the service ends no commands"},
            given={**PING, "target": {"dialect": {"extensions": []}}},
            only="core-poll",
        ),
    ),
    (
        "commands[].devices",
        Key(
            0.34,
            lambda b, a: len({o["device_id"] for o in orders(a)}) == 2 < len({o["device_id"] for o in orders(b)}),
            given=PING,
            only="core-*",
        ),
    ),
]
USERS = {"arrivals": [{"kind": "closed", "users": 2, "pause_s": 1, "rate_per_s": None}]}

ARRIVALS: list[tuple[str, Key]] = [
    ("arrivals", Key([{"kind": "open", "rate_per_s": 1}], lambda b, a: arrived(a) < arrived(b), refused=NO_ARRIVALS)),
    ("arrivals[open].rate_per_s", Key(4, lambda b, a: arrived(a) > 1.5 * arrived(b), only="wire-*")),
    (
        "arrivals[open].spacing",
        Key(
            "poisson",
            lambda b, a: (
                len(gaps(sent_at(a, "POST /sensor-data", "sensor-data")))
                > len(gaps(sent_at(b, "POST /sensor-data", "sensor-data")))
            ),
            only="wire-*",
        ),
    ),
    (
        "arrivals[open].operation",
        Key(
            "poll",
            lambda b, a: a.run.polls and not b.run.polls,
            only="wire-*",
            refused={"wire-mqtt": "nobody polls over MQTT"},
        ),
    ),
    (
        "arrivals[open].operation",
        Key(
            "send_command",
            lambda b, a: orders(a) and not orders(b),
            only="wire-*",
            refused={"wire-mqtt": "the operator orders over HTTP"},
        ),
    ),
    ("arrivals", Key([{"kind": "closed", "users": 3}], lambda b, a: arrived(a) > 2 * arrived(b), only="wire-*")),
]
CLOSED: list[tuple[str, Key]] = [
    ("arrivals[closed].users", Key(4, lambda b, a: arrived(a) > 1.5 * arrived(b))),
    ("arrivals[closed].pause_s", Key(3, lambda b, a: arrived(a) < 0.6 * arrived(b))),
    (
        "arrivals[closed].operation",
        Key("poll", lambda b, a: a.run.polls and not b.run.polls, refused={"wire-mqtt": "nobody polls over MQTT"}),
    ),
]
"""On top of two users with a pause of a second."""


def ends(look: Look) -> list[float]:
    return [math.floor(phase.end_s + 0.01) for phase in look.run.record.phases]


UP = {"phases": [{"name": "up", "kind": "ramp", "duration_s": 6}, {"name": "last", "kind": "hold", "duration_s": 6}]}
STORM = {"phases": [{}, {"name": "storm", "kind": "storm", "duration_s": 12, "away_s": 3}]}
SHUT = {"phases": [{"until": "connections > 1000000"}]}

PHASES: list[tuple[str, Key]] = [
    ("phases[hold].name", Key("other", lambda _, a: a.run.record.phases[0].name == "other")),
    ("phases[hold].duration_s", Key(15, lambda b, a: ends(a)[0] > ends(b)[0])),
    (
        "phases[hold].until",
        Key(
            "connections > 1000000",
            lambda b, a: ends(a)[0] == 72 and any("did not come true" in s for s in a.run.record.verdict.sentences),
            refused={"labels|limiter": "does nothing"},
        ),
    ),
    (
        "phases[hold].until_within_s",
        Key(5, lambda b, a: (ends(b)[0], ends(a)[0]) == (72, 17), given=SHUT, only="core-*|wire-*|history"),
    ),
    (
        "phases[hold].until_within_s",
        Key(5, refused={"core-*|wire-*": "does nothing without 'until'"}, only="core-*|wire-*"),
    ),
    (
        "phases[hold].rate_factor",
        Key(
            2,
            lambda b, a: len(a.wire) > 1.2 * len(b.wire) or gaps(sent_at(a, "POST /onboarding/scan-qr")) == {0.25},
            only="wire-*|labels|history|limiter",
            refused={"history": "as fast as the target takes it", "limiter": "the limiter's test goes by its windows"},
        ),
    ),
    (
        "phases[hold].rate_factor",
        Key(2, lambda b, a: len(orders(a)) == 2 * len(orders(b)) > 0, given=PING, only="core-*"),
    ),
    ("phases[hold].rate_factor", Key(2, refused={"core-*": "there is no rate to multiply"}, only="core-*")),
    (
        "phases[ramp].name",
        Key("other", lambda _, a: a.run.record.phases[0].name == "other", given=UP, only="core-*|wire-*"),
    ),
    ("phases[ramp].kind", Key("ramp", refused=NO_PHASES, only="history|labels|limiter")),
    (
        "phases[ramp].duration_s",
        Key(10, lambda b, a: a.run.online[5] < b.run.online[5], given=UP, only="core-*|wire-*"),
    ),
    (
        "phases[ramp].until",
        Key("connections > 1000000", lambda b, a: ends(a) == [66, 72], given=UP, only="core-*|wire-*"),
    ),
    (
        "phases[ramp].until_within_s",
        Key(
            5,
            lambda b, a: ends(a) == [11, 17],
            given={"phases": [{**UP["phases"][0], "until": "connections > 1000000"}, UP["phases"][1]]},
            only="core-*|wire-*",
        ),
    ),
    ("phases[ramp].rate_factor", Key(3, lambda b, a: arrived(a) > arrived(b), given=UP, only="wire-*")),
    (
        "phases[ramp].rate_factor",
        Key(3, lambda b, a: len(orders(a)) > len(orders(b)), given={**UP, **PING}, only="core-*"),
    ),
    (
        "phases[ramp].to",
        Key(
            0.5, lambda b, a: (max(b.run.online[:12]), max(a.run.online[:12])) == (6, 3), given=UP, only="core-*|wire-*"
        ),
    ),
    (
        "phases[storm].kind",
        Key(
            "storm",
            refused={**NO_PHASES, "wire-*": "level wire has no devices for a storm"},
            given=STORM,
            only="wire-*|history|labels|limiter",
        ),
    ),
    (
        "phases[storm].name",
        Key("other", lambda _, a: a.run.record.phases[1].name == "other", given=STORM, only="core-*"),
    ),
    ("phases[storm].duration_s", Key(20, lambda b, a: ends(a) == [12, 32], given=STORM, only="core-*")),
    ("phases[storm].until", Key("connections > 1000000", lambda b, a: ends(a) == [12, 84], given=STORM, only="core-*")),
    (
        "phases[storm].until_within_s",
        Key(
            5,
            lambda b, a: ends(a) == [12, 29],
            given={"phases": [{}, {**STORM["phases"][1], "until": "connections > 1000000"}]},
            only="core-*",
        ),
    ),
    (
        "phases[storm].rate_factor",
        Key(3, lambda b, a: len(orders(a)) > len(orders(b)), given={**STORM, **PING}, only="core-*"),
    ),
    (
        "phases[storm].share",
        Key(
            0.5, lambda b, a: (min(b.run.online[12:15]), min(a.run.online[12:15])) == (0, 3), given=STORM, only="core-*"
        ),
    ),
    (
        "phases[storm].away_s",
        Key(8, lambda b, a: sum(a.run.online[12:24]) < sum(b.run.online[12:24]), given=STORM, only="core-*"),
    ),
    ("phases[storm].waves", Key(2, lambda b, a: a.run.online[18] < b.run.online[18], given=STORM, only="core-*")),
    ("phases[storm].loss", Key("connection", differs, given=STORM, only="core-*")),
]


NO_LINKS = {
    "wire-*": "level wire has no devices for",
    "history": "kind backfill plays none",
    "labels": "kind onboarding_storm plays none",
    "limiter": "kind limiter plays none",
}
NO_FAULTS = {name: text for name, text in NO_LINKS.items() if name != "wire-*"}
LINKS = frozenset(
    {
        "blackout",
        "disconnect_storm",
        "half_open",
        "link_profile",
        "revoked_keys",
        "rotated_keys",
        "slow_loris",
        "tls_failure",
    }
)
FAULTS: dict[str, dict[str, Any]] = {
    "bad_firmware": {"restarts_every_s": 2, "down_s": 1},
    "broken_json": {"often": 1},
    "clock_jump": {"jump_s": 99},
    "clock_skew": {"offset_s": 50},
    "dead_battery": {},
    "duplicates": {"often": 1},
    "frozen_sensor": {},
    "in_step_timers": {"every_s": 1},
    "late_batches": {"hold_s": 3},
    "nan_sensor": {"often": 1},
    "out_of_order": {"order": "reversed"},
    "oversized_json": {"often": 1},
    "reboot_loop": {"up_s": 1, "down_s": 1},
    "schema_drift": {"add": {"x": 1}},
    "spiking_sensor": {"often": 1},
    "blackout": {},
    "disconnect_storm": {"waves": 2, "away_s": 0.4},
    "half_open": {},
    "link_profile": {"profile": "satellite"},
    "revoked_keys": {},
    "rolling_restart": {"away_s": 1},
    "rotated_keys": {},
    "slow_loris": {},
    "tls_failure": {},
}
"""The least of each kind that changes something."""

OF_FAULTS: list[tuple[str, Key]] = [
    (
        "faults[bad_firmware].version",
        Key(
            "6.6",
            lambda b, a: "6.6" in str(results(a)) and "6.6" not in str(results(b)),
            given={**FIRMWARE, **PING},
            only="core-*",
        ),
    ),
    ("faults[bad_firmware].version", Key("6.6", refused={"core-*": "nobody asks for the version"}, only="core-*")),
    ("faults[bad_firmware].restarts_every_s", Key(1, differs)),
    ("faults[bad_firmware].down_s", Key(2, differs)),
    (
        "faults[bad_firmware].factors",
        Key(
            {"temperature_celsius": 100},
            lambda b, a: max(a.run.values["temperature_celsius"]) > 10 * max(b.run.values["temperature_celsius"]),
        ),
    ),
    ("faults[broken_json].often", Key(0, differs)),
    ("faults[broken_json].how", Key("python", differs)),
    ("faults[clock_jump].jump_s", Key(-5000, differs, given=PING)),
    ("faults[clock_skew].offset_s", Key(5, differs)),
    ("faults[clock_skew].drift_ppm", Key(90000, differs, given=PING)),
    ("faults[dead_battery].spread_s", Key(4, differs)),
    ("faults[duplicates].often", Key(0, lambda b, a: arrived(a) < arrived(b))),
    ("faults[duplicates].copies", Key(3, lambda b, a: arrived(a) > arrived(b))),
    ("faults[duplicates].delay_s", Key(2, differs)),
    ("faults[duplicates].idempotency_key", Key("fresh", lambda b, a: keys_sent(a) > keys_sent(b))),
    ("faults[frozen_sensor].readings", Key(["temperature_celsius"], differs)),
    ("faults[in_step_timers].every_s", Key(0.5, lambda b, a: len(a.run.readings) > len(b.run.readings))),
    ("faults[late_batches].hold_s", Key(1, differs)),
    ("faults[late_batches].together", Key(True, differs)),
    ("faults[nan_sensor].readings", Key(["humidity_percent"], differs)),
    ("faults[nan_sensor].often", Key(0, differs)),
    (
        "faults[nan_sensor].value",
        Key("-Infinity", lambda b, a: "-Infinity" in str(a.wire) and "-Infinity" not in str(b.wire)),
    ),
    ("faults[out_of_order].order", Key("shuffled", differs)),
    ("faults[oversized_json].often", Key(0, differs)),
    ("faults[oversized_json].size_bytes", Key(9999, lambda b, a: max(map(len, texts(a))) < max(map(len, texts(b))))),
    ("faults[reboot_loop].up_s", Key(2, differs)),
    ("faults[reboot_loop].down_s", Key(2, differs)),
    ("faults[schema_drift].rename", Key({"temperature_celsius": "t"}, lambda b, a: "t" in a.run.values)),
    (
        "faults[schema_drift].drop",
        Key(
            ["temperature_celsius"],
            lambda b, a: len(a.run.values["temperature_celsius"]) < len(b.run.values["temperature_celsius"]),
        ),
    ),
    ("faults[schema_drift].add", Key({"y": 2}, lambda b, a: "y" in a.run.values)),
    (
        "faults[schema_drift].retype",
        Key(
            {"temperature_celsius": "text"},
            lambda b, a: any(isinstance(each, str) for each in a.run.values["temperature_celsius"]),
        ),
    ),
    ("faults[spiking_sensor].readings", Key(["temperature_celsius"], differs)),
    ("faults[spiking_sensor].often", Key(0.3, differs)),
    (
        "faults[spiking_sensor].height",
        Key(
            5000,
            lambda b, a: (
                max(map(abs, a.run.values["temperature_celsius"]))
                > 4000
                > max(map(abs, b.run.values["temperature_celsius"]))
            ),
        ),
    ),
    ("faults[spiking_sensor].sign", Key("up", differs)),
    ("faults[blackout].recovery_s", Key(3, differs)),
    ("faults[disconnect_storm].waves", Key(1, differs)),
    ("faults[disconnect_storm].away_s", Key(2, differs)),
    ("faults[half_open].arrives", Key(1, differs, only="core-poll|core-hold|wire-http")),
    ("faults[link_profile].profile", Key("captive_portal", differs)),
    ("faults[link_profile].more_loss", Key(0.9, differs)),
    ("faults[link_profile].more_delay_s", Key(1, differs)),
    ("faults[rolling_restart].away_s", Key(3, differs)),
    (
        "faults[slow_loris].connections",
        Key(7, lambda b, a: [slow.count for slow in (*b.run.engines.slow, *a.run.engines.slow)] == [100, 7]),
    ),
    (
        "faults[slow_loris].every_s",
        Key(3, lambda b, a: [slow.every_s for slow in (*b.run.engines.slow, *a.run.engines.slow)] == [1, 3]),
    ),
    (
        "faults[tls_failure].reason",
        Key(
            "unknown protocol",
            lambda b, a: (
                "unknown protocol" in str(a.run.record.extras) and "unknown protocol" not in str(b.run.record.extras)
            ),
        ),
    ),
]
"""Beside what all kinds have in common."""


def keys_sent(look: Look) -> int:
    """How many idempotency keys, or keys of messages, there are."""
    return len(set(sends(look, "idempotency-key")) | {str(reading.get("key")) for _, _, reading in look.run.readings})


def texts(look: Look) -> list[bytes]:
    return [sent.body for sent in look.run.batches]


_WALK = {"kind": "random_walk", "start": 50, "step": 1}
SIGNALS: dict[str, dict[str, Any]] = {
    "constant": {"value": 50.123456},
    "sine": {"mean": 50, "amplitude": 5, "period_s": 60, "noise": 0.1},
    "diurnal": {"mean": 50, "amplitude": 5, "noise": 0.1},
    "random_walk": {"start": 50, "step": 0.5},
    "noise": {"mean": 50, "deviation": 5},
    "steps": {"steps": [{"value": 40.123456, "for_s": 20}, {"value": 60, "for_s": 20}]},
    "markov": {
        "states": {
            "a": {"value": 40.123456, "stay_s": 20},
            "b": {"value": 60, "stay_s": 20},
            "c": {"value": 70, "stay_s": 20},
        }
    },
    "csv": {"file": "values.csv", "column": "a", "every_s": 20},
    "gps_route": {"file": "route.csv", "noise_m": 1},
    "formula": {"expression": "other * 1.000001"},
    "correlated": {"follows": "other", "factor": 1.000001},
    "battery": {"life_s": 200, "charge_s": 50, "spread": 0.1},
}
"""The least of each kind; ``other`` is a walk around 50."""
OTHER = _WALK
SHAPE: dict[str, Any] = {"min": 1000, "max": -1000, "digits": 0}
"""What all kinds have but gps_route; ``battery`` has its own digits."""
OF_SIGNALS: dict[str, Any] = {
    "constant.value": 7,
    "sine.mean": 9,
    "sine.amplitude": 9,
    "sine.period_s": 7,
    "sine.phase": 0.25,
    "sine.noise": 3,
    "diurnal.mean": 9,
    "diurnal.amplitude": 9,
    "diurnal.peak_hour": 3,
    "diurnal.noise": 3,
    "diurnal.spread": 9,
    "random_walk.start": 9,
    "random_walk.step": 9,
    "random_walk.span_s": 60,
    "random_walk.resolution_s": 30,
    "random_walk.spread": 9,
    "noise.distribution": "uniform",
    "noise.mean": 9,
    "noise.deviation": 1,
    "steps.steps": [{"value": 1, "for_s": 20}, {"value": 2, "for_s": 20}],
    "steps.steps[].value": 9,
    "steps.steps[].for_s": 33,
    "steps.phase": "in_step",
    "markov.states": {"a": {"value": 1, "stay_s": 20}, "b": {"value": 2, "stay_s": 20}},
    "markov.states[].value": 9,
    "markov.states[].stay_s": 99,
    "markov.states[].stay": "fixed",
    "markov.states[].next": {"c": 1},
    "csv.file": "other.csv",
    "csv.column": "b",
    "csv.time_column": "t",
    "csv.every_s": 33,
    "csv.device_column": "device",
    "csv.between": "hold",
    "csv.loop": False,
    "csv.begin": "in_step",
    "gps_route.file": "other.csv",
    "gps_route.speed_mps": 1,
    "gps_route.at_the_end": "jump_to_start",
    "gps_route.begin": "in_step",
    "gps_route.noise_m": 99,
    "gps_route.latitude": "north",
    "gps_route.longitude": "east",
    "gps_route.heading": "course",
    "gps_route.speed": "pace",
    "formula.expression": "other * 2",
    "correlated.follows": "third",
    "correlated.factor": 3,
    "correlated.offset": 9,
    "correlated.lag_s": 99,
    "correlated.noise": 9,
    "battery.full": 500,
    "battery.empty": -500,
    "battery.life_s": 20,
    "battery.charge_s": 500,
    "battery.spread": 0.9,
    "battery.curve": "lithium",
}
BESIDE: dict[str, dict[str, Any]] = {
    "csv.time_column": {"every_s": None},
    "csv.device_column": {"file": "two.csv"},
}
"""What has to be given beside a key, also before."""
AXES = frozenset({"kind", "level", "target.transport"})
"""What the contexts are made of."""
