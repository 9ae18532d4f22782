"""The keys of commands, arrivals and phases, see ``key_table.py``."""

from __future__ import annotations

import math

from tests.unit.simulator.fleet.key_table import (
    NO_ARRIVALS,
    NO_COMMANDS,
    NO_PHASES,
    PING,
    Key,
    arrived,
    differs,
    gaps,
    orders,
    results,
    sent_at,
    statuses,
)
from tests.virtual_fleet.scenarios import Look

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
