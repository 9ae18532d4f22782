from __future__ import annotations

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.target.safety import Permission, permit, read_targets


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:8080", "http://127.8.9.10", "http://[::1]:80/base", "mqtt://127.0.0.1:1883", "127.0.0.1"],
)
def test_this_machine_may_be_loaded(address):
    assert permit(address, (), owned=False) == Permission("loopback")


def test_another_machine_needs_its_owners_word_and_has_caps_then():
    with pytest.raises(ConfigurationError, match=r"192\.0\.2\.1 is not this machine"):
        permit("http://192.0.2.1:8080", (), owned=False)
    permission = permit("http://192.0.2.1:8080", (), owned=True)
    permission.check(devices=10_000, requests_per_s=2_000)
    with pytest.raises(ConfigurationError, match=r"10,001 devices are more than the 10,000") as caught:
        permission.check(devices=10_001, requests_per_s=2_500)
    assert len(caught.value.faults) == 2


def test_a_listed_target_has_the_caps_that_its_owner_set(tmp_path):
    path = tmp_path / "targets.yaml"
    path.write_text("targets:\n  - {host: staging.example.com, max_devices: 50, max_requests_per_s: 10}\n")
    permission = permit("https://Staging.example.com", read_targets(path), owned=False)
    assert permission == Permission("listed", 50, 10)
    with pytest.raises(ConfigurationError, match="51 devices"):
        permission.check(devices=51, requests_per_s=1)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("targets: [{hots: x}]", "host"),
        ("targets: [{host: x, max_devices: 0}]", "max_devices"),
        (": [", "is not YAML"),
        ("- a", "must be an object"),
    ],
)
def test_a_bad_file_of_targets_is_refused_with_the_fault(tmp_path, text, fault):
    path = tmp_path / "targets.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=fault):
        read_targets(path)


def test_a_missing_file_of_targets_and_an_address_without_a_host_are_told(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_targets(tmp_path / "none.yaml")
    with pytest.raises(ConfigurationError, match="names no host"):
        permit("http://", (), owned=True)
