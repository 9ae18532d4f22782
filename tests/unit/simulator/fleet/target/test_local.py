from __future__ import annotations

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.target.local import read_local
from simulator.up import UpSettings, running_up


def test_up_tells_where_it_stands_as_long_as_it_does_and_names_no_secret(tmp_path):
    with running_up(UpSettings(port=0, data_dir=tmp_path, gateway=False)):
        found = read_local(tmp_path)
        secret = (tmp_path / "keys" / "secret_key").read_text().strip()
        assert secret not in (tmp_path / "standing.json").read_text()
    assert found.key_folder == tmp_path / "keys"
    assert found.base_url.startswith("http://127.0.0.1:")
    with pytest.raises(ConfigurationError):
        read_local(tmp_path)
