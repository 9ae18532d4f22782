from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.target.local import LocalService, read_local, remove_local, write_local
from simulator.up import UpSettings, running_up


def test_what_stands_is_found_and_gone_afterwards(tmp_path):
    standing = LocalService("http://127.0.0.1:1", Path("/keys"), "http://127.0.0.1:2", Path("/gateway"), 3, "amqtt")
    write_local(tmp_path, standing)
    assert read_local(tmp_path) == standing
    remove_local(tmp_path)
    with pytest.raises(ConfigurationError, match="fleet-simulator up --data"):
        read_local(tmp_path)


def test_a_broken_file_says_so(tmp_path):
    (tmp_path / "standing.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_local(tmp_path)


def test_up_tells_where_it_stands_as_long_as_it_does_and_names_no_secret(tmp_path):
    with running_up(UpSettings(port=0, data_dir=tmp_path, gateway=False)):
        found = read_local(tmp_path)
        secret = (tmp_path / "keys" / "secret_key").read_text().strip()
        assert secret not in (tmp_path / "standing.json").read_text()
    assert found.key_folder == tmp_path / "keys"
    assert found.base_url.startswith("http://127.0.0.1:")
    with pytest.raises(ConfigurationError):
        read_local(tmp_path)
