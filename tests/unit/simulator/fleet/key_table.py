"""For each key of a scenario what it changes, and where it is refused. ``test_every_key.py`` plays all of it.

A claim compares what is seen without the key (or with another value) with what is seen with it.
"""

from __future__ import annotations

import itertools
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
    (
        "target.source_addresses",
        Key(
            ["127.0.0.5", "127.0.0.8/31"],
            lambda _, a: (
                ("127.0.0.5", "127.0.0.8", "127.0.0.9")
                in {*http(a, "sources"), *(tuple(o["sources"]) for _, o in a.run.engines.mqtt)}
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
FIRMWARE = {"fleet": {"models": [{"firmware": {"versions": {"1.0": 1}}}]}}
AXES = frozenset({"kind", "level", "target.transport"})
"""What the contexts are made of."""
