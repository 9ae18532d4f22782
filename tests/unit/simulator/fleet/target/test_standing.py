from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from simulator.app import run_up
from simulator.config import UpSettings
from simulator.fleet.target.standing import StandingService, find_standing, forget_standing, tell_standing


def test_what_stands_is_found_and_gone_afterwards(tmp_path):
    standing = StandingService("http://127.0.0.1:1", Path("/keys"), "http://127.0.0.1:2", Path("/gateway"), 3, "amqtt")
    tell_standing(tmp_path, standing)
    assert find_standing(tmp_path) == standing
    forget_standing(tmp_path)
    with pytest.raises(ConfigurationError, match="fleet-simulator up --data"):
        find_standing(tmp_path)


def test_a_broken_file_says_so(tmp_path):
    (tmp_path / "standing.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        find_standing(tmp_path)


def test_up_tells_where_it_stands_as_long_as_it_does_and_names_no_secret(tmp_path):
    found: list[StandingService] = []

    def look() -> None:
        found.append(find_standing(tmp_path))
        secret = (tmp_path / "keys" / "secret_key").read_text().strip()
        assert secret not in (tmp_path / "standing.json").read_text()

    run_up(UpSettings(port=0, data_dir=tmp_path, gateway=False), lambda _standing: None, look)
    assert found[0].key_folder == tmp_path / "keys"
    assert found[0].base_url.startswith("http://127.0.0.1:")
    with pytest.raises(ConfigurationError):
        find_standing(tmp_path)
