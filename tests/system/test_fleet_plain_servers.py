"""A small run of a fleet against servers of the specification alone, each with another choice, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.wire.secret import Secret
from simulator.cli import program
from tests.support.fleet_runs import at_any_speed
from tests.support.service_running import running
from tests.support.variants import running_as, variant
from tests.system.plain_server import Choices, plain_server

pytestmark = pytest.mark.long

SCENARIO = """\
scenario: plain
workers: 1
target: {transport: http_poll}
fleet:
  devices: 3
  models:
    - {name: node, share: 1, telemetry: {every_s: 500ms}, poll: {every_s: 1s}}
commands:
  - {rate_per_s: 2, payload: {command: ping}}
phases:
  - {name: ramp, kind: ramp, duration_s: 1s, rate_factor: 0.001}
  - {name: contact, kind: hold, duration_s: 1s, rate_factor: 0.001}
  - {name: hold, kind: hold, duration_s: 3s}
  - {name: rest, kind: hold, duration_s: 1s, rate_factor: 0.001}
drain_s: 20s
"""


@pytest.fixture(autouse=True)
def _at_any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    at_any_speed(monkeypatch)


def fleet(
    folder: Path,
    base_url: str,
    *arguments: str,
    api_key: str = "mk_key",
    secret_key: str = "msk_secret",  # noqa: S107 - of a test
) -> tuple[int, str]:
    """Exit code and output."""
    secret = folder / "secret"
    secret.write_text(secret_key)
    secret.chmod(0o600)
    where = ["--base-url", base_url, "--api-key", api_key, "--secret-key-file", str(secret)]
    done = CliRunner().invoke(program, [*arguments, *where], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return int(done.return_value or 0), done.output


@pytest.mark.parametrize(
    ("choices", "code", "word"),
    [
        (Choices(), 0, "nothing was lost"),
        (Choices(text=True, wrapped=True, flat=True), 0, "nothing was lost"),
        (Choices(page=5, command_list="once"), 0, "nothing was lost"),
        (Choices(results=404), 0, "nothing was lost"),
        (Choices(results_kept="none"), 4, "commands: "),
        (Choices(results_kept="altered"), 4, "altered of"),
        (Choices(results_kept="unlisted"), 3, "gives none of them back"),
        (Choices(refuses=True), 1, "was accepted"),
        (Choices(nameless=True), 3, "name no device"),
        (Choices(nameless=True, device_filter="deviceId"), 0, "nothing was lost"),
        (Choices(deaf=True), 1, "never came to their devices"),
    ],
    ids=str,
)
def test_a_run_against_a_plain_server(tmp_path, choices, code, word):
    scenario, out = tmp_path / "s.yaml", tmp_path / "out"
    by_device = f"audit: {{device_filter: {choices.device_filter}}}\n" if choices.device_filter else ""
    scenario.write_text(SCENARIO + by_device)
    with plain_server(choices) as server:
        done = fleet(tmp_path, server.base_url, "run", str(scenario), "--out", str(out))
        assert done[0] == code, done[1]
        verdict = json.loads((out / "run.json").read_text())["verdict"]
        assert any(word in sentence for sentence in verdict["sentences"]), verdict
        again = fleet(tmp_path, server.base_url, "audit", str(out))
        assert again[0] == (3 if choices.deaf else code), again[1]
    allowed = {name for name in server.beyond if name.startswith("POST /products")}
    assert set(server.beyond) == allowed


@pytest.mark.parametrize(
    "choices",
    [{}, {"error_shape": "html"}, {"list_shape": "results", "paging": "next_url", "id_name": "_id"}],
    ids=str,
)
def test_a_run_against_the_local_service_that_answers_otherwise(tmp_path, choices):
    scenario, out = tmp_path / "s.yaml", tmp_path / "out"
    scenario.write_text(SCENARIO.replace("duration_s: 1s, rate_factor: 0.001", "duration_s: 1s"))
    with running_as(variant("plain", **choices)) as bench:
        keys = {"api_key": bench.service.api_key, "secret_key": bench.service.secret_key.reveal()}
        code, said = fleet(tmp_path, bench.service.base_url, "run", str(scenario), "--out", str(out), **keys)
        assert code == 0, said
        verdict = json.loads((out / "run.json").read_text())["verdict"]
        assert any("nothing was lost" in sentence for sentence in verdict["sentences"])
        gone = bench.http.get("/devices").json()["data"][0]["device_id"]
        assert bench.http.delete(f"/onboarding/device/{gone}").status_code < 300
        code, said = fleet(tmp_path, bench.service.base_url, "audit", str(out), **keys)
    assert (code, " lost" in said) == (4, True), said
    before = (out / "run.json").read_bytes()
    with running(api_key=keys["api_key"], secret_key=Secret(keys["secret_key"])) as other:
        code, said = fleet(tmp_path, other.service.base_url, "audit", str(out), **keys)
    assert (code, "knows none of the run's devices" in said) == (2, True), said
    assert (out / "run.json").read_bytes() == before


@pytest.mark.parametrize("choices", [Choices(), Choices(command_list="once"), Choices(page=5)], ids=str)
def test_commands_of_the_ramp_wait_for_their_devices_first_contact_and_are_carried_out(tmp_path, choices):
    """Such a server lists no states: what is listed at the first contact is history to a device."""
    scenario, out = tmp_path / "s.yaml", tmp_path / "out"
    begin, end = SCENARIO.index("  - {name: ramp"), SCENARIO.index("  - {name: rest")
    ramp = "  - {name: ramp, kind: ramp, duration_s: 3s}\n"
    text = SCENARIO[:begin] + ramp + SCENARIO[end:]
    scenario.write_text(text.replace("every_s: 1s}", "every_s: 4s}").replace("rate_per_s: 2", "rate_per_s: 6"))
    with plain_server(choices) as server:
        code, said = fleet(tmp_path, server.base_url, "run", str(scenario), "--out", str(out))
        assert code == 0, said
        assert server.sent >= 5
    run = json.loads((out / "run.json").read_text())
    assert any("nothing was lost" in sentence for sentence in run["verdict"]["sentences"])


def test_commands_whose_devices_never_had_a_list_are_not_sent_and_said(tmp_path):
    scenario, out = tmp_path / "s.yaml", tmp_path / "out"
    scenario.write_text(SCENARIO.replace("drain_s: 20s", "drain_s: 2s"))
    with plain_server(Choices(mute=True)) as server:
        code, _ = fleet(tmp_path, server.base_url, "run", str(scenario), "--out", str(out))
        assert server.commands == {}
    run = json.loads((out / "run.json").read_text())
    assert code not in {0, 4}
    assert "commands were not sent: their devices never had an answer to a poll" in json.dumps(run)


def test_a_time_to_live_is_refused_where_the_server_has_none(tmp_path):
    with plain_server() as server:
        arguments = ["command", "send", "--device", "d-1", "--payload", '{"command":"ping"}']
        done = fleet(tmp_path, server.base_url, *arguments, "--ttl", "60")
        assert done[0] == 2
        assert "announces no command-ttl" in done[1]
        assert server.commands == {}
        assert fleet(tmp_path, server.base_url, *arguments)[0] == 0
        assert len(server.commands["d-1"]) == 1
    assert server.beyond == []


BACKFILL = """\
scenario: past
kind: backfill
fleet:
  devices: 2
  models:
    - {name: node, share: 1, telemetry: {every_s: 60s}}
backfill: {history_s: 1h}
"""


def test_a_backfill_is_refused_in_one_line_and_nothing_is_sent(tmp_path):
    scenario = tmp_path / "s.yaml"
    scenario.write_text(BACKFILL)
    with plain_server() as server:
        code, said = fleet(tmp_path, server.base_url, "run", str(scenario), "--out", str(tmp_path / "out"))
        assert (code, "announces no recorded-at" in said) == (2, True), said
        assert (server.readings, server.devices) == ([], [])
