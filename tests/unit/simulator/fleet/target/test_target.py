from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.errors import ConfigurationError
from simulator.cli import program
from simulator.fleet.target.target import KeyPairFile, TargetOptions, find_target, permit
from simulator.up import UpSettings, running_up


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("msk_1234567890\n")
    return path


def test_the_command_line_goes_before_the_scenario(secret):
    options = TargetOptions("http://127.0.0.1:2", "mk_b", secret)
    way = find_target(options, "http://127.0.0.1:1", [KeyPairFile("mk_a", secret)])
    assert (way.base_url, [pair.api_key for pair in way.keys]) == ("http://127.0.0.1:2", ["mk_b"])
    way = find_target(
        TargetOptions(), "http://127.0.0.1:1/", [KeyPairFile("mk_a", secret), KeyPairFile("mk_c", secret)]
    )
    assert (way.base_url, [pair.api_key for pair in way.keys]) == ("http://127.0.0.1:1", ["mk_a", "mk_c"])
    assert "msk_1234567890" not in repr(way)


def test_everything_that_is_missing_is_told_at_once(tmp_path):
    with pytest.raises(ConfigurationError) as caught:
        find_target(TargetOptions(base_url="127.0.0.1:8080", api_key="mk_a"))
    assert list(caught.value.faults) == [
        "--base-url '127.0.0.1:8080': write it as http://host:port",
        "--secret-key-file is missing: a key pair has both parts",
    ]
    with pytest.raises(ConfigurationError) as caught:
        find_target(TargetOptions())  # of a command that has no scenario and no --local
    assert list(caught.value.faults) == [
        "no target: give --base-url, or --up DIR of 'fleet-simulator up --data DIR'",
        "no keys: give --api-key and --secret-key-file",
    ]
    with pytest.raises(ConfigurationError) as caught:
        find_target(TargetOptions(), keys=())
    assert ["--local" in caught.value.faults[0], "target.keys" in caught.value.faults[1]] == [True, True]
    with pytest.raises(ConfigurationError, match="leave out"):
        find_target(TargetOptions(base_url="http://127.0.0.1:1", up=tmp_path))
    with pytest.raises(ConfigurationError, match="nothing stands there"):
        find_target(TargetOptions(up=tmp_path))


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:8080", "http://127.8.9.10", "http://[::1]:80/base", "mqtt://127.0.0.1:1883", "127.0.0.1"],
)
def test_this_machine_may_be_loaded(address):
    permit(address, owned=False)


def test_another_machine_needs_its_owners_word():
    with pytest.raises(ConfigurationError, match=r"192\.0\.2\.1 is not this machine.*--i-own-this-target"):
        permit("http://192.0.2.1:8080", owned=False)
    permit("http://192.0.2.1:8080", owned=True)
    with pytest.raises(ConfigurationError, match="names no host"):
        permit("http://", owned=True)


def test_cleanup_finds_the_way_to_what_up_started_and_refuses_a_foreign_server(tmp_path, secret):
    with running_up(UpSettings(port=0, data_dir=tmp_path / "up", gateway=False)):
        answer = CliRunner().invoke(program, ["cleanup", "--up", str(tmp_path / "up"), "--json"])
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout) == {"products": 0, "devices": 0}
    foreign = ["cleanup", "--base-url", "http://192.0.2.1", "--api-key", "mk_a", "--secret-key-file", str(secret)]
    refused = CliRunner().invoke(program, foreign)
    assert refused.exit_code == 2
    assert "--i-own-this-target" in refused.output
