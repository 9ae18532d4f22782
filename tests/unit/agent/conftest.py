"""What tests of plug-ins share: packages that are installed, without installing any."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

_numbers = itertools.count()


@pytest.fixture
def entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], EntryPoint]:
    """Makes an entry point out of its name, an attribute, and the text of the module that has it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(name: str, attribute: str, text: str) -> EntryPoint:
        module = f"plugin_of_a_test_{next(_numbers)}"
        Path(tmp_path, f"{module}.py").write_text(text)
        return EntryPoint(name, f"{module}:{attribute}", "agent.plugins")

    return make
