"""The examination itself, the program, and its page in the documents."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.cli.program import device_agent
from agent.doctor import CHECKS
from agent.doctor.findings import Check, CheckStatus, examine, failed, ok, warning
from tests.ports import free_port

ROOT = Path(__file__).parents[4]


def verdicts(results) -> dict[str, CheckStatus]:
    return {result.check.id: result.verdict for result in results}


class TestExamination:
    def test_what_depends_on_a_failed_check_is_skipped_and_what_depends_on_a_warning_is_not(self, device):
        checks = [
            Check("a", "", lambda _: iter([failed("x", "y", "z")])),
            Check("b", "", lambda _: iter([ok("fine")]), after=("a",)),
            Check("c", "", lambda _: iter([ok("fine")]), after=("b",)),
            Check("d", "", lambda _: iter([ok("fine"), warning("x", "y", "z")])),
            Check("e", "", lambda _: iter([ok("fine")]), after=("d",)),
        ]
        results = list(examine(device.subject(), checks))
        assert list(verdicts(results).values()) == ["failed", "skipped", "skipped", "warning", "ok"]
        assert results[1].findings[0].seen.startswith("a failed")
        assert results[2].findings[0].seen.startswith("b was skipped")

    def test_a_check_that_hangs_is_given_up_and_the_others_go_on(self, device):
        release = threading.Event()
        checks = [
            Check("hangs", "", lambda _: iter([ok("late") if release.wait(30) else ok("never")]), timeout_s=0.05),
            Check("goes", "", lambda _: iter([ok("fine")])),
        ]
        results = list(examine(device.subject(), checks))
        release.set()
        assert list(verdicts(results).values()) == ["failed", "ok"]
        assert "did not end within" in results[0].findings[0].cause

    def test_a_check_that_raises_is_a_fault_of_its_own(self, device):
        def broken(_subject):
            raise RuntimeError("two\nlines")

        (result,) = examine(device.subject(), [Check("broken", "", broken)])
        assert result.verdict is CheckStatus.FAILED
        assert result.findings[0].cause == "two lines"

    def test_offline_asks_nobody(self, device):
        found = verdicts(examine(device.subject(), CHECKS, offline=True))
        online = [check.id for check in CHECKS if check.online]
        assert online
        assert {found[each] for each in online} == {CheckStatus.SKIPPED}

    def test_ids_are_unique_and_what_a_check_waits_for_comes_before_it(self):
        seen: set[str] = set()
        for check in CHECKS:
            assert check.id not in seen
            assert set(check.after) <= seen, check.id
            assert 0 < check.timeout_s <= 60
            assert check.looks_at
            seen.add(check.id)


class TestProgram:
    def run(self, *arguments: str, **environ: str):
        return CliRunner().invoke(device_agent, ["doctor", *arguments], env=environ)

    @pytest.fixture
    def config(self, device) -> Path:
        path = device.folder / "config.yaml"
        path.write_text(json.dumps(device.values, default=str))
        return path

    def test_it_tells_cause_and_fix_and_ends_with_the_worst(self, device, config):
        device.keys["secret_key"].chmod(0o644)
        found = self.run("--config", str(config), "--offline")
        assert found.exit_code == 2, found.output
        assert re.search(r"^FAILED +key_files", found.output, re.MULTILINE)
        assert re.search(r"^ +cause .*everybody on this machine", found.output, re.MULTILINE)
        assert re.search(r"^ +fix .*chmod 600", found.output, re.MULTILINE)
        assert "msk_doctor" not in found.output

    def test_json_has_all_of_it(self, config):
        found = self.run("--config", str(config), "--offline", "--json")
        lines = {line["id"]: line for line in json.loads(found.output)}
        assert set(lines) == {check.id for check in CHECKS}
        assert lines["configuration"]["verdict"] == "ok"
        assert set(lines["agent"]) == {"id", "verdict", "seen", "cause", "fix", "is_unreachable"}
        assert lines["agent"]["cause"] == "it was not started"
        assert lines["dns"]["verdict"] == "skipped"

    def test_quiet_shows_only_what_is_not_well(self, config):
        found = self.run("--config", str(config), "--offline", "--quiet")
        assert "agent " in found.output
        assert "configuration " not in found.output
        assert "findings:" in found.output.splitlines()[-1]

    def test_a_wrong_configuration_has_its_own_exit_code(self, config):
        config.write_text("device: {}\n")
        found = self.run("--config", str(config), "--offline")
        assert found.exit_code == 2
        assert "configuration failed" in found.output

    def test_a_service_that_cannot_be_reached_has_its_own_exit_code(self, device, config):
        device.values["service"] = {"base_url": f"http://127.0.0.1:{free_port()}"}
        config.write_text(json.dumps(device.values, default=str))
        found = self.run("--config", str(config))
        assert found.exit_code == 5, found.output


def test_every_check_stands_in_the_table_of_the_documents():
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = page.split("## The doctor")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_]+)` \|[^|]+\|[^|]+\|$", section, re.MULTILINE)
    assert rows == [check.id for check in CHECKS]
