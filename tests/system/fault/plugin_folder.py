"""A folder that Python takes for an installed package of handlers and sensors."""

from __future__ import annotations

import shutil
from pathlib import Path

_ENTRY_POINTS = """
[agent.handlers]
repeatable = fault_effects:Repeatable
only_once = fault_effects:OnlyOnce
power_cycle = fault_effects:PowerCycle

[agent.sensors]
sequence = fault_effects:Sequence
"""


def make_plugin_folder(folder: Path) -> Path:
    """Put the package there; with the folder on ``PYTHONPATH`` the agent finds it as it finds any other."""
    described = folder / "fault_effects-1.0.dist-info"
    described.mkdir(parents=True)
    shutil.copyfile(Path(__file__).with_name("fault_effects.py"), folder / "fault_effects.py")
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: fault-effects\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(_ENTRY_POINTS.lstrip())
    return folder
