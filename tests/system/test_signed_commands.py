"""Signed commands with real processes: keys, a sender, an agent; over HTTP, MQTT and the gateway."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.cli.program import device_agent
from agent.wire.signed import SigningKey, read_signing_key
from gateway.client import SendCommand
from simulator.command import sign_payload
from tests.support.processes import run_module
from tests.system.agent_bench import API_KEY, AgentBench, AgentProcess, wait_until
from tests.system.test_agent_mqtt import Bench as MqttBench
from tests.system.test_agent_mqtt import bench as mqtt_bench  # noqa: F401 - a fixture
from tests.system.test_gateway_journey import AGENT, travelling

pytestmark = pytest.mark.long


def run(program: str, *words: object, code: int = 0, **environ: str) -> str:
    """One of the two programs, as a process."""
    done = run_module(program, *words, code=code, environ=environ)
    return done.stdout + done.stderr


def call(*words: object, code: int = 0) -> str:
    """``device-agent`` within this process."""
    done = CliRunner().invoke(device_agent, list(map(str, words)))
    assert done.exit_code == code, done.output
    return done.output


def signing(folder: Path, mode: str = "require") -> str:
    return f"  signing: {{mode: {mode}, trusted_keys: ['{folder}/ops.pub']}}\n"


def make_keys(folder: Path) -> None:
    call("keys", folder / "ops")


def send_words(base_url: str, bench: AgentBench, payload: str, *more: object) -> list[object]:
    where = ["--base-url", base_url, "--api-key", API_KEY]
    where += ["--secret-key-file", bench.folder / "secret_key", "--device", bench.device_id]
    return ["command", "send", *where, "--payload", payload, *more]


def error_of(bench: AgentBench, command_id: str) -> str:
    record = bench.wait_for(command_id)
    assert record.status == "rejected"
    return (record.error or record.status_reason or "").split(":")[0]


def test_what_an_operator_signs_runs_once_and_nothing_else_does(bench, service, tmp_path):
    make_keys(tmp_path)
    bench.write_config(service.base_url, more=signing(tmp_path))
    agent = bench.start(DEVICE_AGENT_LOGGING__LEVEL="debug")
    signed = ["--sign", tmp_path / "ops.key", "--wait", 100, "--json"]
    sent = json.loads(
        run("simulator.cli", *send_words(service.base_url, bench, '{"command":"ping","echo":"1"}', *signed))
    )
    assert sent["status"] == "succeeded"
    assert sent["result"]["echo"] == "1"
    envelope = sent["command_payload"]

    assert error_of(bench, bench.send(command="ping")) == "signature_required"
    assert error_of(bench, bench.send(**envelope)) == "signature_replayed"
    changed = copy.deepcopy(envelope)
    changed["signed_command"]["body"] = changed["signed_command"]["body"].replace('"1"', '"2"')
    assert error_of(bench, bench.send(**changed)) == "signature_invalid"

    agent.kill()
    again = bench.start()
    assert error_of(bench, bench.send(**envelope)) == "signature_replayed"
    told = run("simulator.cli", *send_words(service.base_url, bench, '{"command":"open_door"}', *signed[:-1]), code=1)
    assert "rejected unknown_command" in told
    key = read_signing_key(tmp_path / "ops.key")
    assert f"signed by key={key.key_id}" in agent.wait_for("state=received")
    assert again.terminate()[0] == 0


def test_an_envelope_for_one_device_does_nothing_on_another_nor_where_signing_is_off(bench, service, tmp_path):
    make_keys(tmp_path)
    bench.write_config(service.base_url, more=signing(tmp_path, "accept"))
    agent = bench.start()
    key = read_signing_key(tmp_path / "ops.key")
    foreign = key.sign(device_id="another", id="a", counter=1, expires_at=4e9, payload={"command": "ping"})
    assert error_of(bench, bench.send(**foreign)) == "signature_other_device"
    assert bench.wait_for(bench.send(command="ping")).status == "succeeded"
    agent.terminate()
    bench.write_config(service.base_url)
    bench.start()
    assert error_of(bench, bench.send(**foreign)) == "signature_not_accepted"


def test_an_agent_without_the_keys_or_the_extra_does_not_start_and_says_why(bench, service, tmp_path):
    bench.write_config(service.base_url, more=signing(tmp_path))
    told = call("run", "--config", bench.config, code=2)
    assert "commands.signing.trusted_keys" in told
    assert "ops.pub" in told
    make_keys(tmp_path)
    missing = tmp_path / "missing" / "cryptography"
    missing.mkdir(parents=True)
    (missing / "__init__.py").write_text("raise ModuleNotFoundError('not here', name='cryptography')\n")
    for words in (["run", "--config", bench.config], ["keys", "x"]):
        told = run("agent.cli", *words, code=2, PYTHONPATH=str(missing.parent))
        assert "pip install '.[device]' in a clone of device-agent" in told, words
        assert "Traceback" not in told


def test_signed_commands_travel_over_mqtt(mqtt_bench: MqttBench, tmp_path):  # noqa: F811 - the fixture
    make_keys(tmp_path)
    mqtt_bench.write()
    text = mqtt_bench.config.read_text().replace("spread_s: 0}", "spread_s: 0}, " + signing(tmp_path).strip())
    mqtt_bench.config.write_text(text)
    mqtt_bench.start()
    payload = {"command": "ping", "echo": "signed"}
    envelope = sign_payload(tmp_path / "ops.key", tmp_path / "counter", 600.0, "d1", payload)
    results = mqtt_bench.gateway.results
    mqtt_bench.gateway.send("d1", "c1", envelope)
    mqtt_bench.wait_for_results("c1")
    assert results["c1", "succeeded"].result["echo"] == "signed"
    mqtt_bench.gateway.send("d1", "c2", envelope)
    mqtt_bench.gateway.send("d1", "c3", {"command": "ping"})
    mqtt_bench.gateway.wait_until(lambda: {("c2", "rejected"), ("c3", "rejected")} <= results.keys())
    assert results["c2", "rejected"].error.startswith("signature_replayed: ")
    assert results["c3", "rejected"].error.startswith("signature_required: ")


@pytest.mark.timeout(180)
def test_signed_commands_travel_through_the_gateway_which_cannot_make_any(tmp_path):
    make_keys(tmp_path)
    with travelling(tmp_path) as journey:
        journey.set_up()
        journey.start()
        device_id = journey.add("SN-1", "--url", f"https://127.0.0.1:{journey.port}")
        folder = journey.folder / "SN-1"
        environ = {
            **AGENT,
            "DEVICE_AGENT_STATE_DIR": str(folder / "state"),
            "DEVICE_AGENT_COMMANDS__SIGNING": f"{{mode: require, trusted_keys: ['{tmp_path}/ops.pub']}}",
        }
        agent = AgentProcess(folder / "config.yaml", **environ)
        try:
            agent.wait_for("agent=ready")
            ping = {"command": "ping"}
            payloads = [sign_payload(tmp_path / "ops.key", tmp_path / "counter", 600.0, device_id, ping), ping]
            ids = [
                journey.client.send_command(SendCommand(device_id=device_id, command_payload=payload)).id
                for payload in payloads
            ]

            def ended() -> list[str | None] | None:
                found = {each.id: each.status for each in journey.client.device_commands(device_id).records}
                statuses = [found[each] for each in ids]
                return statuses if not {"queued", "delivered", "in_progress"} & set(statuses) else None

            assert wait_until(ended, 90.0) == ["succeeded", "rejected"]
        finally:
            agent.close()


def test_make_refuses_to_replace_a_key_that_its_owner_alone_can_read(tmp_path):
    make_keys(tmp_path)
    before = (tmp_path / "ops.key").read_text()
    assert "never replaced" in call("keys", tmp_path / "ops", code=2)
    assert (tmp_path / "ops.key").read_text() == before
    assert (tmp_path / "ops.key").stat().st_mode & 0o777 == 0o600
    assert isinstance(read_signing_key(tmp_path / "ops.key"), SigningKey)
