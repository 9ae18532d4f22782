from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.errors import ConfigurationError
from simulator.cli import program
from simulator.fleet.scenario.targets import ServiceTarget
from simulator.fleet.target.target import TargetOptions, find_target, permit
from simulator.up import UpSettings, running_up


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("msk_1234567890\n")
    return path


def scenario_target(secret: Path, *names: str, **more: str) -> ServiceTarget:
    keys = [{"api_key": name, "secret_key_file": str(secret)} for name in names]
    return ServiceTarget.model_validate({"base_url": "http://127.0.0.1:1/", "keys": keys, **more})


def test_the_command_line_goes_before_the_scenario(secret):
    gateway = {"gateway_url": "http://127.0.0.1:3", "gateway_config": secret, "broker_url": "mqtts://127.0.0.1:4"}
    way = find_target(
        TargetOptions("http://127.0.0.1:2", "mk_b", secret, **gateway), scenario_target(secret, "mk_a"), secret.parent
    )
    assert (way.base_url, [pair.api_key for pair in way.keys]) == ("http://127.0.0.1:2", ["mk_b"])
    assert way.addresses == {"http://127.0.0.1:2", "http://127.0.0.1:3", "mqtts://127.0.0.1:4"}
    way = find_target(TargetOptions(), scenario_target(Path(secret.name), "mk_a", "mk_c"), secret.parent)
    assert (way.base_url, [pair.api_key for pair in way.keys]) == ("http://127.0.0.1:1", ["mk_a", "mk_c"])
    assert "msk_1234567890" not in repr(way)


def test_everything_that_is_missing_is_told_at_once(tmp_path, secret):
    def faults(options: TargetOptions, *settings: ServiceTarget) -> list[str]:
        with pytest.raises(ConfigurationError) as caught:
            find_target(options, *settings)
        return caught.value.faults

    assert faults(TargetOptions(base_url="127.0.0.1:8080", api_key="mk_a", broker_url="mqtt://")) == [
        "--secret-key-file is missing: a key pair has both parts",
        "--broker 'mqtt://': write it as mqtt://host:port, or with TLS mqtts://host:port",
        "base_url '127.0.0.1:8080': write it as http://host:port",
    ]
    nothing = faults(TargetOptions())  # of a command that has no scenario
    assert ["--secret-key-file" in nothing[0], "--base-url" in nothing[1]] == [True, True]
    (no_keys,) = faults(TargetOptions(), scenario_target(secret))
    assert all(word in no_keys for word in ("target.keys", "--local"))
    (no_authority,) = faults(TargetOptions(), scenario_target(secret, "a", base_url="https://x", ca_file="no.pem"))
    assert "no.pem: not a PEM file" in no_authority
    assert "leave out" in faults(TargetOptions(base_url="http://127.0.0.1:1", up=tmp_path))[0]
    assert "nothing stands there" in faults(TargetOptions(up=tmp_path))[0]


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:8080", "http://127.8.9.10", "http://[::1]:80/base", "mqtt://127.0.0.1:1883"],
)
def test_this_machine_may_be_loaded(address):
    permit(address, owned=False)


def test_another_machine_needs_its_owners_word():
    with pytest.raises(ConfigurationError, match=r"192\.0\.2\.1 is not this machine.*--i-own-this-target"):
        permit("http://192.0.2.1:8080", owned=False)
    permit("http://192.0.2.1:8080", owned=True)


def test_cleanup_finds_the_way_to_what_up_started_and_refuses_a_foreign_server(tmp_path, secret):
    with running_up(UpSettings(port=0, data_dir=tmp_path / "up", gateway=False)):
        answer = CliRunner().invoke(program, ["cleanup", "--up", str(tmp_path / "up")])
    assert answer.exit_code == 0, answer.output
    assert answer.stdout == "0 devices of 0 products removed\n"
    foreign = ["cleanup", "--base-url", "http://192.0.2.1", "--api-key", "mk_a", "--secret-key-file", str(secret)]
    refused = CliRunner().invoke(program, foreign)
    assert refused.exit_code == 2
    assert "--i-own-this-target" in refused.output
