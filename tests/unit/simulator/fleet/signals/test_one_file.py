"""A kind of signal is one module: put into the package, it is read, planned, played and in the schema."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.fleet.signals.kind import REGISTERED, register_signal

SIGNAL = '''\
"""A signal that counts the seconds of the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.fleet.settings import key
from simulator.fleet.signals.base import Individual, Signal
from simulator.fleet.signals.kind import Shape, SignalContext, register_signal


class SawtoothSettings(Shape):
    """Rises evenly, and begins again."""

    kind: Literal["sawtooth"]
    teeth: int = key("values before it begins again", ge=2)


@dataclass(frozen=True, slots=True)
class Sawtooth:
    """The second, modulo the teeth."""

    teeth: int

    def value_at(self, device: Individual, time_s: float) -> float:
        """A number from 0 to below the teeth."""
        return time_s // 1 % self.teeth


@register_signal(SawtoothSettings)
def make_signal(name: str, settings: SawtoothSettings, context: SignalContext) -> Signal:
    """Make the signal that the settings describe."""
    return Sawtooth(settings.teeth)
'''
PLAY = """\
import json, sys
from pathlib import Path
from simulator.fleet.signals import kinds
kinds.__path__.append(sys.argv[1])
from simulator.fleet.scenario.model import scenario_schema
from tests.virtual_fleet.scenarios import CONTEXTS, Looker, merged
signals = {"tooth": {"kind": "sawtooth", "teeth": 3}, "double": {"kind": "formula", "expression": "tooth * 2"}}
model = {"name": "node", "signals": signals}
context = merged(CONTEXTS["core-poll"], {"fleet": {"models": [model]}})
run = Looker(Path(sys.argv[2]))(context).run
readings = [(each["sensor_data"]["tooth"], each["sensor_data"]["double"]) for _, _, each in run.readings]
print(json.dumps([readings, scenario_schema()["$defs"]["SawtoothSettings"]["properties"]]))
"""


def test_a_signal_from_outside_is_one_file(tmp_path):
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "sawtooth.py").write_text(SIGNAL, encoding="utf-8")
    root = Path(__file__).parents[5]
    done = subprocess.run(
        [sys.executable, "-c", PLAY, str(folder), str(tmp_path)], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    readings, documented = json.loads(done.stdout)
    assert {tooth for tooth, _ in readings} == {0, 1, 2}
    assert all(double == 2 * tooth for tooth, double in readings)
    assert documented["teeth"]["description"] == "values before it begins again"


def test_two_signals_cannot_have_one_word():
    kind = REGISTERED["sine"]
    with pytest.raises(ValueError, match="two signals are called 'sine'"):
        register_signal(kind.settings)(kind.make)
