"""Before a run: what does not fit on this machine is refused, and so is a second run with the same devices."""

from __future__ import annotations

import os

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.engine.preflight import Host
from simulator.fleet.run.capacity import check_share, pool_too_small
from simulator.fleet.run.preparing import claimed_devices
from simulator.fleet.scenario.model import READER, Scenario

URL = "http://127.0.0.1:8080"
HOST = Host(descriptors=20_000, ports=28_232, memory_bytes=8 << 30, cores=4)


def made(**more: object) -> Scenario:
    phases = [{"name": "hold", "kind": "hold", "duration_s": 60}]
    return READER.validate_python({"scenario": "first", "fleet": {"devices": 10}, "phases": phases, **more})


def scenario(devices: int = 10_000, **target: object) -> Scenario:
    return made(fleet={"devices": devices}, target=target)


def test_a_run_that_does_not_fit_is_refused_with_every_number():
    wanted = scenario(100_000, transport="http_poll")
    _, faults = check_share(wanted, [URL], devices=100_000, workers=2, target_is_here=True, host=HOST)
    assert [fault.split(":")[0] for fault in faults] == ["descriptors of each worker", "ports"]
    _, faults = check_share(wanted, [URL], devices=20_000, workers=2, host=HOST)
    assert faults == [], "one of several machines has a share of it"


def test_held_polls_do_not_share_connections():
    (fault,) = pool_too_small(scenario(transport="http_long_poll", connections=256))
    assert fault.endswith("or write transport: http_poll, or connections: 10500")
    assert list(pool_too_small(scenario(200, transport="http_long_poll", connections=256))) == []


def test_a_second_run_with_the_same_devices_is_refused_and_told_why(tmp_path):
    with (
        claimed_devices(made(), URL, tmp_path),
        pytest.raises(ConfigurationError, match=rf"scenario first, process {os.getpid()}.*fleet\.prefix"),
        claimed_devices(made(scenario="second"), URL, tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    ("other", "url"),
    [
        (made(fleet={"devices": 10, "prefix": "other-"}), URL),
        (made(kind="onboarding", onboarding={}), URL),
        (made(), "http://127.0.0.1:8090"),
    ],
    ids=["prefix", "storm", "target"],
)
def test_runs_with_other_devices_go_side_by_side(tmp_path, other, url):
    with claimed_devices(made(), URL, tmp_path), claimed_devices(other, url, tmp_path):
        pass


def test_what_a_killed_run_left_is_no_hindrance(tmp_path):
    with claimed_devices(made(), URL, tmp_path):
        (left,) = tmp_path.iterdir()
    left.write_text("scenario killed, process 1")
    with claimed_devices(made(), URL, tmp_path):
        assert left.read_text().startswith("scenario first")
