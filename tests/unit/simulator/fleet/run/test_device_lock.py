from __future__ import annotations

import os

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.run.preparing import claimed_devices
from simulator.fleet.scenario.model import READER

URL = "http://127.0.0.1:8080"


def scenario(name="first", **more):
    phases = [{"name": "hold", "kind": "hold", "duration_s": 60}]
    return READER.validate_python({"scenario": name, "fleet": {"devices": 10}, "phases": phases, **more})


def test_a_second_run_with_the_same_devices_is_refused_and_told_why(tmp_path):
    with (
        claimed_devices(scenario(), URL, tmp_path),
        pytest.raises(ConfigurationError, match=rf"scenario first, process {os.getpid()}.*fleet\.identities\.prefix"),
        claimed_devices(scenario("second"), URL, tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    ("other", "url"),
    [
        (scenario(fleet={"devices": 10, "identities": {"prefix": "other-"}}), URL),
        (scenario(fleet={"devices": 10, "identities": {"user_id": "other"}}), URL),
        (scenario(kind="onboarding", onboarding={}), URL),
        (scenario(), "http://127.0.0.1:8090"),
    ],
    ids=["prefix", "user", "storm", "target"],
)
def test_runs_with_other_devices_go_side_by_side(tmp_path, other, url):
    with claimed_devices(scenario(), URL, tmp_path), claimed_devices(other, url, tmp_path):
        pass


def test_what_a_killed_run_left_is_no_hindrance(tmp_path):
    with claimed_devices(scenario(), URL, tmp_path):
        (left,) = tmp_path.iterdir()
    left.write_text("scenario killed, process 1")
    with claimed_devices(scenario(), URL, tmp_path):
        assert left.read_text().startswith("scenario first")


def test_a_folder_that_takes_no_lock_is_one_line(tmp_path):
    with pytest.raises(ConfigurationError, match="set TMPDIR"), claimed_devices(scenario(), URL, tmp_path / "none"):
        pass
