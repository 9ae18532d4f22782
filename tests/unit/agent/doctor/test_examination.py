"""The examination itself, the program, and its page in the documents."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.cli.program import device_agent
from agent.doctor import Check, examine, failed, ok, warning
from agent.doctor.checks import CHECKS

ROOT = Path(__file__).parents[4]


def broken(_subject):
    raise RuntimeError("two\nlines")


def test_one_check_that_fails_raises_or_hangs_hides_no_other(device):
    release = threading.Event()
    checks = [
        Check("a", lambda _: iter([failed("x", "y", "z")])),
        Check("b", lambda _: iter([ok("fine")]), after=("a",)),
        Check("c", lambda _: iter([ok("fine")]), after=("b",)),
        Check("d", lambda _: iter([ok("fine"), warning("x", "y", "z")])),
        Check("e", lambda _: iter([ok("fine")]), after=("d",)),
        Check("hangs", lambda _: iter([ok("late") if release.wait(30) else ok("never")]), timeout_s=0.05),
        Check("broken", broken),
    ]
    results = list(examine(device.subject(), checks))
    release.set()
    assert [(name, str(finding.verdict)) for name, finding in results] == [
        ("a", "failed"),
        ("b", "skipped"),
        ("c", "skipped"),
        ("d", "ok"),
        ("d", "warning"),
        ("e", "ok"),
        ("hangs", "failed"),
        ("broken", "failed"),
    ]
    assert results[1][1].seen.startswith("a failed")
    assert results[2][1].seen.startswith("b was skipped")
    assert "did not end within" in results[6][1].cause
    assert results[7][1].cause == "two lines"


class TestProgram:
    def run(self, *arguments: str):
        return CliRunner().invoke(device_agent, ["doctor", *arguments])

    @pytest.fixture
    def config(self, device) -> Path:
        path = device.folder / "config.yaml"
        path.write_text(json.dumps(device.values, default=str))
        return path

    def test_it_tells_cause_and_fix_and_ends_with_the_worst_and_shows_no_key(self, device, config):
        device.keys["secret_key"].chmod(0o644)
        found = self.run("--config", str(config), "--offline", "--quiet")
        assert found.exit_code == 2, found.output
        assert re.search(r"^FAILED +key_files", found.output, re.MULTILINE)
        assert re.search(r"^ +cause .*everybody on this machine", found.output, re.MULTILINE)
        assert re.search(r"^ +fix .*chmod 600", found.output, re.MULTILINE)
        assert "configuration " not in found.output
        assert "doctor_0001" not in found.output
        assert "msk_doctor" not in found.output

    def test_json_has_all_of_it_and_offline_asks_nobody(self, config):
        found = self.run("--config", str(config), "--offline", "--json")
        lines = {line["id"]: line for line in json.loads(found.output)}
        assert list(lines) == [check.id for check in CHECKS]
        assert lines["agent"]["cause"] == "it was not started"
        assert {lines[check.id]["verdict"] for check in CHECKS if check.online} == {"skipped"}

    def test_a_wrong_configuration_has_its_own_exit_code(self, config):
        config.write_text("device: {}\n")
        found = self.run("--config", str(config), "--offline")
        assert found.exit_code == 2
        assert "configuration failed" in found.output


def test_every_check_stands_in_the_table_of_the_documents_after_those_that_it_waits_for():
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = page.split("## The doctor")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_]+)` \|[^|]+\|[^|]+\|$", section, re.MULTILINE)
    assert rows == [check.id for check in CHECKS]
    for at, check in enumerate(CHECKS):
        assert set(check.after) <= set(rows[:at])
