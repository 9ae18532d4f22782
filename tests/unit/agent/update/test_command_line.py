"""``device-agent update`` and the program behind it, by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from agent.cli import plugins as command


@pytest.fixture
def release(tmp_path) -> Path:
    path = tmp_path / "x.release"
    path.write_bytes(b"nonsense")
    return path


def test_an_agent_of_pip_is_told_how_it_is_updated(release, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "Places", lambda: SimpleNamespace(installer=tmp_path / "nothing"))
    found = CliRunner().invoke(command.update, ["--file", str(release)])
    assert found.exit_code == 1
    assert "update it by pip" in found.output


def test_only_root_installs(release, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "Places", lambda: SimpleNamespace(installer=release))
    monkeypatch.setattr(command, "is_root", lambda: False)
    found = CliRunner().invoke(command.update, ["--file", str(release)])
    assert found.exit_code == 1
    assert "sudo" in found.output


def test_it_becomes_the_packages_own_installer(release, monkeypatch):
    calls: list[list[str]] = []
    monkeypatch.setattr(command, "Places", lambda: SimpleNamespace(installer=release))
    monkeypatch.setattr(command, "is_root", lambda: True)
    monkeypatch.setattr(command.os, "execv", lambda program, words: calls.append(words))
    CliRunner().invoke(command.update, ["--file", str(release)])
    assert calls == [[str(release), "install", "--", str(release)]]
