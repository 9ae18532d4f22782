"""Scenarios put together from parts, for ``fleet-simulator init --with``: commented text, and the files it names."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from textwrap import indent
from typing import Final

from agent.errors import ConfigurationError

ROUTE_FILE: Final = "route.gpx"
_ROUTE_POINTS: Final = 24
_ROUTE_CENTRE: Final = (47.3717, 8.5423)
_ROUTE_SIZE: Final = (0.009, 0.014)
"""Half of its height and width in degrees: some 6 km around."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one word of ``--with`` adds to a scenario, each text YAML without indentation.

    Attributes:
        what: it does, for people.
        target: keys of the section; ``transport`` is HTTP with long polls without any.
        signals: readings of the model.
        model: further sections of the model.
        commands, faults, thresholds: entries of the lists.
        files: beside the scenario, by name.
    """

    what: str
    target: str = ""
    signals: str = ""
    model: str = ""
    commands: str = ""
    faults: str = ""
    thresholds: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


def _route() -> str:
    """A round trip as GPX 1.1."""
    points = []
    for number in range(_ROUTE_POINTS + 1):
        angle = math.tau * number / _ROUTE_POINTS
        latitude = _ROUTE_CENTRE[0] + _ROUTE_SIZE[0] * math.sin(angle)
        longitude = _ROUTE_CENTRE[1] + _ROUTE_SIZE[1] * math.cos(angle)
        points.append(f'    <trkpt lat="{latitude:.5f}" lon="{longitude:.5f}"/>')
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<gpx version="1.1" creator="fleet-simulator" xmlns="http://www.topografix.com/GPX/1/1">\n'
        "  <trk><trkseg>\n" + "\n".join(points) + "\n  </trkseg></trk>\n</gpx>\n"
    )


PARTS: Final[Mapping[str, Part]] = {
    "battery": Part(
        "batteries that empty, switch their device off, and are charged",
        model="""\
battery: {reading: battery_percent, life_s: 12h, dead_s: 5m, charge_s: 1h, spread: 0.3, curve: lithium}
""",
    ),
    "gps": Part(
        f"a drive along a route, {ROUTE_FILE}: latitude, longitude, heading, speed",
        signals=f"""\
place: {{kind: gps_route, file: {ROUTE_FILE}, speed_mps: 13.9, noise_m: 4, at_the_end: jump_to_start}}
""",
        files={ROUTE_FILE: _route()},
    ),
    "door": Part(
        "a door that is open now and then",
        signals="""\
door_open:
  kind: markov
  states:
    shut: {value: 0, stay_s: 2m}
    open: {value: 1, stay_s: 10s, stay: fixed}
""",
    ),
    "states": Part(
        "a state machine: idle devices, and busy ones that read faster",
        model="""\
states:
  idle: {stay_s: 2m, next: {busy: 1}}
  busy: {stay_s: 30s, next: {idle: 1}, telemetry_every_s: 2s}
""",
    ),
    "commands": Part(
        "commands that read, and that change what devices do",
        commands="""\
- payload: {command: ping}
  rate_per_s: 1                      # over the whole fleet
- payload: {command: read_sensors}
  rate_per_s: 0.5
- payload: {command: set_interval, name: climate, interval_s: 3}   # 'climate' is the one sensor of a virtual device
  rate_per_s: 0.2
""",
        thresholds="""\
- commands.age.p99 < 30s             # from the order until the service has the result
""",
    ),
    "firmware": Part(
        "versions, and updates of which some fail",
        model="""\
firmware: {versions: {1.4.0: 3, 1.5.0: 1}, update_s: 5s, failure_share: 0.1}
""",
        commands="""\
- payload: {command: update_firmware, version: 1.6.0}
  rate_per_s: 0.2
  expect: any                        # a tenth of the updates fails
""",
    ),
    "reboots": Part(
        "devices that lose their power once in a while",
        model="""\
reboots: {every_s: 1m, away_s: 3s}
""",
    ),
    "clocks": Part(
        "wall clocks that are off and drift",
        model="""\
clock: {offset_s: 20s, drift_ppm: 50}
""",
    ),
    "outage": Part(
        "half of the links gone for ten seconds; nothing may be lost",
        faults="""\
- {kind: blackout, at_s: 20s, duration_s: 10s, share: 0.5, recovery_s: 5s}
""",
        thresholds="""\
- readings.age.max < 2m              # what waited was handed over
""",
    ),
    "bad-network": Part(
        "a fifth of the links slow and lossy for twenty seconds",
        faults="""\
- {kind: link_profile, profile: bad_wifi, at_s: 15s, duration_s: 20s, share: 0.2}
""",
    ),
    "mqtt": Part(
        "MQTT 5 through broker and gateway instead of HTTP",
        target="""\
transport: mqtt
through: gateway                     # the service speaks no MQTT
broker: {host: 127.0.0.1, port: 1883}   # 'run --local' and --up take their own; needs mosquitto
""",
    ),
}
"""By the word that names it."""

_TARGET: Final = "transport: http_long_poll          # or http_poll\n"
_SCENARIO: Final = """\
# Made of: {made_of}
#
#   fleet-simulator plan {file}            # what it would do; --signals shows its readings
#   fleet-simulator run {file} --local     # with a service of its own
#
# Keys that end in _s take seconds (30) or 250ms, 30s, 5m, 2h, 1d.
scenario: {name}
description: Twenty devices with {made_of}.
seed: 1                              # the same seed plans the same events

target:
{target}
fleet:
  product: climate-node              # built in; or a YAML file as POST /products takes it
  devices: 20
  models:
    - name: node
      signals:
        temperature_celsius: {{kind: diurnal, mean: 20, amplitude: 4, noise: 0.2, digits: 1}}
        humidity_percent: {{kind: random_walk, start: 45, step: 0.1, min: 0, max: 100, digits: 1}}
{signals}      telemetry: {{every_s: 5s}}       # each device at its own moment of the five seconds
{model}
{commands}phases:
  - {{name: ramp, kind: ramp, duration_s: 5s}}
  - {{name: hold, kind: hold, duration_s: 1m}}
{faults}
thresholds:
  - audit.lost == 0
{thresholds}"""


def composed(names: Iterable[str], name: str, file: str) -> tuple[str, Mapping[str, str]]:
    """A scenario of these parts.

    Args:
        names: words of :data:`PARTS`; a word twice counts once.
        name: of the scenario.
        file: that it is written to, as its comments name it.

    Returns:
        The text, and the files beside it by name.

    Raises:
        ConfigurationError: a word names no part, or there is none.
    """
    wanted = list(dict.fromkeys(word.strip() for word in names if word.strip()))
    if unknown := [word for word in wanted if word not in PARTS]:
        raise ConfigurationError([f"{', '.join(map(_unknown, unknown))}; there are {', '.join(PARTS)}"], "--with")
    if not wanted:
        raise ConfigurationError([f"--with names no part; there are {', '.join(PARTS)}"], "--with")
    parts = [PARTS[word] for word in wanted]

    def joined(member: str, spaces: int, head: str = "") -> str:
        text = "".join(getattr(part, member) for part in parts)
        return head + indent(text, " " * spaces) if text else ""

    text = _SCENARIO.format(
        made_of=", ".join(wanted),
        file=file,
        name=name,
        target=joined("target", 2) or indent(_TARGET, "  "),
        signals=joined("signals", 8),
        model=joined("model", 6),
        commands=joined("commands", 2, "commands:\n") + ("\n" if any(part.commands for part in parts) else ""),
        faults=joined("faults", 2, "\nfaults:\n"),
        thresholds=joined("thresholds", 2),
    )
    return text, {name: content for part in parts for name, content in part.files.items()}


def _unknown(word: str) -> str:
    near = difflib.get_close_matches(word, PARTS, n=1)
    return f"there is no part {word!r}" + (f" (did you mean {near[0]!r}?)" if near else "")
