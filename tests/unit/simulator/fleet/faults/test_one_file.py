"""A kind of fault is one module: put into the package, it is read, planned, played and recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.fleet.faults import registry
from simulator.fleet.faults.base import REGISTERED, DeviceFault, register_fault

FAULT = '''\
"""Readings that are all the same number."""

from __future__ import annotations

from typing import Literal

from simulator.fleet.faults.base import DeviceFault, LastingBasis, register_fault
from simulator.fleet.models.fault_hooks import Read, Values
from simulator.fleet.settings import key
from simulator.fleet.signals.base import Individual


class StuckNumberSettings(LastingBasis):
    """Every sensor shows one number."""

    kind: Literal["stuck_number"]
    number: float = key("that it shows", default=4.5)


@register_fault(StuckNumberSettings)
class StuckNumber(DeviceFault[StuckNumberSettings]):
    """Replaces each value."""

    def values(self, device: Individual, time_s: float, values: Values, read: Read) -> Values:
        """Every value is the number."""
        del read
        return dict.fromkeys(values, self.settings.number) if self.acts(device, time_s) else values
'''
PLAY = """\
import json, sys
from pathlib import Path
from simulator.fleet.faults import kinds
kinds.__path__.append(sys.argv[1])
from tests.virtual_fleet.scenarios import CONTEXTS, Looker, merged
fault = {"kind": "stuck_number", "at_s": 3, "duration_s": 6, "number": -7}
run = Looker(Path(sys.argv[2]))(merged(CONTEXTS["core-poll"], {"faults": [fault]})).run
values = sorted((at_s, value) for at_s, _, each in run.readings for value in each["sensor_data"].values())
told = [[span.name, span.begin_s, span.end_s, span.truth["number"]] for span in run.record.faults]
print(json.dumps([values, told]))
"""


def test_a_fault_from_outside_is_one_file(tmp_path):
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "stuck_number.py").write_text(FAULT, encoding="utf-8")
    root = Path(__file__).parents[5]
    done = subprocess.run(
        [sys.executable, "-c", PLAY, str(folder), str(tmp_path)], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    values, told = json.loads(done.stdout)
    assert told == [["stuck_number", 3, 9, -7]]
    stuck = [at_s for at_s, value in values if value == -7]
    assert stuck
    assert all(3 <= at_s < 12 for at_s in stuck)
    assert len(stuck) < len(values)


def test_two_faults_cannot_have_one_word():
    assert "blackout" in registry.KINDS
    settings = REGISTERED["blackout"].settings
    with pytest.raises(ValueError, match="two faults are called 'blackout'"):
        register_fault(settings)(DeviceFault)
