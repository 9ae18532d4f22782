"""The package's front door: everything that it names is there, and nothing is imported before it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from simulator import labels


def test_every_name_of_the_package_is_there_and_no_other():
    assert sorted(labels._HOMES) == sorted(labels.__all__)
    for name in labels.__all__:
        assert getattr(labels, name).__name__ == name
    assert set(labels.__all__) <= set(dir(labels))
    with pytest.raises(AttributeError, match="no attribute 'make_lables'"):
        _ = labels.make_lables


def test_who_needs_a_part_does_not_wait_for_printing():
    code = "import sys, simulator.labels.errors; sys.exit('reportlab' in sys.modules or 'PIL' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
