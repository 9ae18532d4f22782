"""Tokens for a fleet, by the gateway's own program."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import yaml

from agent.errors import ConfigurationError
from gateway.tokens import digest_of
from simulator.fleet.target.gateway_tokens import CONFIG_NAME, issue_gateway_tokens

URL = "http://127.0.0.1:1"


@pytest.fixture
def gateway(tmp_path: Path) -> Path:
    keys = {"api_key": "mk_x", "secret_key": "msk_x"}
    for name, value in keys.items():
        (tmp_path / name).write_text(value)
        (tmp_path / name).chmod(0o600)
    (tmp_path / "state").mkdir(mode=0o700)
    configuration = {
        "service": {"base_url": URL},
        "auth": {f"{name}_file": str(tmp_path / name) for name in keys},
        "state_dir": str(tmp_path / "state"),
        "http": {"port": 0},
    }
    (tmp_path / CONFIG_NAME).write_text(yaml.safe_dump(configuration))
    return tmp_path


def valid_digests(gateway: Path) -> dict[str, bytes]:
    with sqlite3.connect(gateway / "state" / "tokens.db") as connection:
        rows = connection.execute("SELECT device_id, digest FROM token WHERE ends_at IS NULL").fetchall()
    connection.close()
    return dict(rows)


def test_every_device_gets_a_token_that_the_gateway_knows_also_the_second_time(gateway):
    ids = [f"sim-{number}" for number in range(50)] + ['has "quotes", commas']
    first = issue_gateway_tokens(gateway, ids[:30], URL)
    second = issue_gateway_tokens(gateway, ids, URL)
    assert set(first) == set(ids[:30])
    assert set(second) == set(ids)
    assert valid_digests(gateway) == {device_id: digest_of(token.reveal()) for device_id, token in second.items()}
    assert all(first[each].reveal() != second[each].reveal() for each in first)


def test_a_folder_that_is_no_gateways_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="fleet-simulator up"):
        issue_gateway_tokens(tmp_path, ["d1"], URL)
