"""The keys of faults and signals, see ``key_table.py``."""

from __future__ import annotations

from typing import Any

from tests.unit.simulator.fleet.key_table import FIRMWARE, PING, Key, arrived, differs, results, sends
from tests.virtual_fleet.scenarios import Look

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
