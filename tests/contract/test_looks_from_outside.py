"""``check``, ``doctor`` and ``status`` beside a server that hands out each command once: they take none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent.adapters.store_service import StoreService
from agent.cli.status import status
from agent.config import AgentConfig, LoadedConfig
from agent.core.outbox import Bounds
from agent.doctor.examination import all_checks, examine
from agent.doctor.exchange import knows_device
from agent.doctor.findings import CheckStatus
from agent.doctor.findings import CheckStatus as Seen
from agent.doctor.quick_check import check_all
from agent.doctor.subject import Subject
from agent.errors import NotFound
from agent.wire.server_findings import SETTING, ServerFindings
from tests.contract.test_command_source_port import Answer, ScriptedServer, serve  # noqa: F401 - a fixture
from tests.fakes import FakeClock


class Once:
    """Each command is on one list and never again.

    Args:
        extensions: None for a server without discovery.
        devices: what ``GET /devices`` answers.
    """

    def __init__(self, extensions: list[str] | None = None, devices: Answer | None = None) -> None:
        self.extensions = extensions
        self.devices = Answer(body=[{"device_id": "d1"}]) if devices is None else devices
        self.commands = [{"id": "c1", "command_payload": {"command": "ping"}}]

    def __call__(self, method: str, target: str, headers: dict[str, str]) -> Answer:
        del method, headers
        if "well-known" in target:
            return Answer(404) if self.extensions is None else Answer(body={"extensions": self.extensions})
        if target.startswith("/devices/d1/commands"):
            if "status=in_progress" in target:
                return Answer(body=[])
            taken, self.commands = self.commands, []
            return Answer(body=taken)
        return self.devices


@pytest.fixture
def make_config(tmp_path) -> Callable[..., AgentConfig]:
    def make(server: ScriptedServer, **dialect: Any) -> AgentConfig:
        for name in ("api", "secret"):
            (tmp_path / name).write_text("mk_look_0001" if name == "api" else "msk_look_0001")
            (tmp_path / name).chmod(0o600)
        return AgentConfig.model_validate(
            {
                "service": {"base_url": server.base_url, "dialect": dialect},
                "device": {"device_id": "d1"},
                "auth": {
                    "allow_secret_key_on_device": True,
                    "api_key_file": tmp_path / "api",
                    "secret_key_file": tmp_path / "secret",
                },
                "state_dir": tmp_path / "state",
            }
        )

    return make


def service_line(config: AgentConfig) -> tuple[CheckStatus, str]:
    findings = check_all(lambda: LoadedConfig(config, None, ()), {}, online=True)
    [line] = [finding for name, finding in findings if name == "service"]
    return line.verdict, line.seen


class TestCheck:
    def test_a_plain_server_is_asked_for_its_devices_and_keeps_its_commands(self, serve, make_config):  # noqa: F811
        once = Once()
        server, _ = serve(once)
        verdict, text = service_line(make_config(server))
        assert (verdict, "and knows this device" in text) == (CheckStatus.OK, True)
        assert len(once.commands) == 1

    def test_a_device_that_is_not_listed_is_a_failure(self, serve, make_config):  # noqa: F811
        server, _ = serve(Once(devices=Answer(body=[{"device_id": "d2"}])))
        verdict, text = service_line(make_config(server))
        assert (verdict, "does not know device d1" in text) == (CheckStatus.FAILED, True)

    @pytest.mark.parametrize("status", [403, 405])
    def test_a_server_that_does_not_list_devices_leaves_it_open(self, serve, make_config, status):  # noqa: F811
        once = Once(devices=Answer(status, {"error": "no"}))
        server, _ = serve(once)
        verdict, text = service_line(make_config(server))
        assert (verdict, "does not say whether" in text) == (CheckStatus.OK, True)
        assert len(once.commands) == 1

    @pytest.mark.parametrize("configured", [True, False])
    def test_with_command_status_the_running_commands_are_asked_for(self, serve, make_config, configured):  # noqa: F811
        server, _ = serve(Once(None if configured else ["command-status"]))
        dialect = {"extensions": ["command-status"]} if configured else {}
        assert service_line(make_config(server, **dialect))[0] is CheckStatus.OK
        asked = [target for _, target, _ in server.asked]
        assert asked[-1] == "/devices/d1/commands?status=in_progress"
        assert any("well-known" in target for target in asked) is not configured


class TestDoctor:
    def look(self, config: AgentConfig) -> dict[str, Any]:
        wanted = {"service_answers", "credentials_accepted", "device_known", "server_dialect", "quota"}
        checks = [check for check in all_checks() if check.id in wanted]
        subject = Subject(lambda: LoadedConfig(config, None, ()), {})
        return {result.check.id: result.finding for result in examine(subject, checks=checks)}

    def test_it_takes_no_command_and_names_the_dialect(self, serve, make_config):  # noqa: F811
        once = Once()
        server, _ = serve(once)
        found = self.look(make_config(server, recorded_at_reading="t"))
        assert len(once.commands) == 1
        assert {finding.verdict for finding in found.values()} == {Seen.OK}
        assert found["server_dialect"].seen == (
            "this server: offers no extensions (a plain server), is sent results as records of table command_results, "
            "takes no recorded_at, so the time is sent as the reading t"
        )

    def test_what_the_agent_found_out_is_a_warning_with_a_fix(self, serve, make_config):  # noqa: F811
        server, _ = serve(Once())
        config = make_config(server)
        keep(config.state_dir, ServerFindings(server.base_url, announced=(), no_place="404 not_found"))
        finding = self.look(config)["server_dialect"]
        assert finding.verdict is Seen.WARNING
        assert "has no place for results (404 not_found)" in finding.seen
        assert "create the table command_results" in finding.fix


class TestStatus:
    def test_the_words_are_shown_as_text_and_json(self, serve, make_config, tmp_path):  # noqa: F811
        server, _ = serve(Once())
        config = make_config(server)
        keep(config.state_dir, ServerFindings(server.base_url, announced=(), no_place="404 not_found"))
        path = tmp_path / "config.yaml"
        path.write_text(json.dumps(config.model_dump(mode="json", exclude_defaults=True)))
        words = ["offers no extensions (a plain server)", "has no place for results (404 not_found)"]
        words.append("takes no recorded_at")
        text = CliRunner().invoke(status, ["--config", str(path)]).output
        assert f"server     {', '.join(words)}\n" in text
        shown = json.loads(CliRunner().invoke(status, ["--config", str(path), "--json"]).output)
        assert shown["server"]["words"] == words
        assert shown["server"]["findings"]["no_place"] == "404 not_found"

    def test_what_was_found_at_another_address_is_not_shown(self, serve, make_config, tmp_path):  # noqa: F811
        server, _ = serve(Once())
        config = make_config(server)
        keep(config.state_dir, ServerFindings("http://elsewhere", announced=()))
        path = tmp_path / "config.yaml"
        path.write_text(json.dumps(config.model_dump(mode="json", exclude_defaults=True)))
        assert json.loads(CliRunner().invoke(status, ["--config", str(path), "--json"]).output)["server"] is None


def keep(state_dir: Path, findings: ServerFindings) -> None:
    """A journal in which the agent has kept these."""
    state_dir.mkdir(mode=0o700, exist_ok=True)
    store = StoreService(state_dir / "agent.db", clock=FakeClock(), bounds=Bounds())
    store.start()
    store.journal.put_setting(SETTING, findings.to_json())
    assert store.stop(60.0)


def test_a_list_too_long_to_be_read_leaves_it_open(serve):  # noqa: F811
    devices = [{"device_id": f"x{number}"} for number in range(1000)]
    _, client = serve(Once(devices=Answer(body=devices)))
    assert not knows_device(client, "d1", ())
    _, client = serve(Once(devices=Answer(body=devices[:999])))
    with pytest.raises(NotFound):
        knows_device(client, "d1", ())
