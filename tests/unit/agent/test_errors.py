from __future__ import annotations

import pytest

from agent.errors import ConfigurationError


@pytest.mark.parametrize(
    ("faults", "source", "line"),
    [
        (["cannot be read: No such file"], "run/devices.csv", "run/devices.csv: cannot be read: No such file"),
        (["cannot be read"], "fleet.yaml", "fleet.yaml: cannot be read"),
        (["run/devices.csv: is empty"], "run/devices.csv", "run/devices.csv: is empty"),
        (["one", "two"], "/etc/agent.yaml", "/etc/agent.yaml: one; two"),
        (["no key is given"], "--api-key", "no key is given"),
    ],
)
def test_a_fault_in_one_line_names_its_file_once(faults, source, line):
    assert ConfigurationError(faults, source).in_one_line == line
