"""A service that takes nothing: the demo says so, however well nothing was lost."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from agent.core.backoff import Backoff
from agent.core.poll_interval import PollIntervals
from simulator.demo.cli import _print_verdict
from simulator.demo.folder import DemoFolder
from simulator.demo.proofs import exit_code, prove_readings
from simulator.demo.screen import Screen
from simulator.exit_codes import ExitCode
from simulator.fleet.device.model import DeviceModel
from simulator.fleet.runner import DeviceIdentity, FleetTarget, FleetThread
from simulator.pytest_plugin.service import running_service

NAMES = ("one", "two")
MODEL = DeviceModel(interval_s=0.05, polling=PollIntervals(1.0, 1.0, 1.0), wait_s=0.0, backoff=Backoff(0.1, 0.1))


@pytest.fixture(name="account")
def _account():
    with running_service() as service, service.account() as account:
        yield account


@pytest.mark.parametrize(
    ("status", "says"),
    [(422, "the service refused"), (503, "were sent and got no good answer"), (404, "the service accepted no reading")],
)
def test_a_service_that_refuses_what_was_sent_is_no_proof_of_anything(status, says, account, tmp_path: Path):
    identities = [DeviceIdentity(account.device(name), account.product_id, name) for name in NAMES]
    refused = account.fault("POST", "/sensor-data", answer={"status": status})
    target = FleetTarget(account.base_url, account.headers, frozenset())
    with FleetThread(target, identities, MODEL, seed=1) as fleet:
        fleet.switch_on()
        until_s = time.monotonic() + 60
        while refused.hits < len(NAMES):
            assert time.monotonic() < until_s
            time.sleep(0.02)
        fleet.sample(on=False)
        fleet.settle(5.0 if status != 503 else 0.5)
        fleet.switch_off()
        devices = [ledger.readings(()) for ledger in fleet.ledgers.values()]
    proof = prove_readings("Each reading that a virtual device sent is stored exactly once", devices)
    out = io.StringIO()
    code = exit_code([proof])
    _print_verdict([proof], DemoFolder(tmp_path), Screen(Console(file=out, width=200)), code)
    assert code is ExitCode.CHECK_FAILED
    assert says in out.getvalue()
    assert "Everything held" not in out.getvalue()
    assert not [reading for one in identities for reading in account.readings(one.device_id)]
