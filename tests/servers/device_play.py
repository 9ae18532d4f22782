"""Two virtual devices of the simulator's fleet as a consumer, with a power cut in the middle for some cases."""

from __future__ import annotations

import itertools
import time
from collections import Counter

from agent.core.backoff import Backoff
from agent.core.poll_interval import PollIntervals
from agent.wire.extensions import LONG_POLL
from simulator.fleet.device.memory_ledger import DeviceLedger
from simulator.fleet.device.model import DeviceModel
from simulator.fleet.runner import DeviceIdentity, FleetTarget, FleetThread
from simulator.wire.client import ServiceClient
from tests.e2e.agent_bench import wait_until
from tests.servers.accounts import Account, key_pair
from tests.servers.expectations import Expectations, check_elsewhere, check_requests
from tests.servers.fronts import Fronts

# Readings so seldom that one request for each of them keeps up, also while other tests run.
MODEL = DeviceModel(interval_s=0.4, polling=PollIntervals(0.1, 0.2, 0.3), backoff=Backoff(0.1, 0.4))
HISTORY, BEFORE, AFTER = 2, 2, 2
_POLLS = 6
# Each command differs from the others, also where a server lists no ids.
_SECONDS = (number / 10_000 for number in itertools.count(1))
_QUIET_S = 0.6
_WORK_S = 60.0
_LOST_S = 3.0


def play_devices(account: Account, fronts: Fronts, wanted: Expectations, *, killed: bool) -> list[str]:
    """History, first contact, commands, perhaps a power cut, commands; what was wrong, empty when nothing was."""
    began_s = time.monotonic()
    ids = [account.device() for _ in range(2)]
    identities = [DeviceIdentity(device_id, account.product_id, device_id) for device_id in ids]
    _send(account, ids, HISTORY)
    headers = {"x-api-key": account.api_key, "x-secret-key": account.secret_key}
    with ServiceClient(account.front.url, key_pair(account)) as client:
        target = FleetTarget(account.front.url, headers, client.discover())
    with FleetThread(target, identities, MODEL, seed=1) as fleet:
        fleet.switch_on()
        for device_id in ids:
            _wait_for_first_contact(account, device_id, wanted)
        history = HISTORY if wanted.runs_open_history else 0
        _send(account, ids, BEFORE)
        _wait_for_runs(fleet, ids, history + BEFORE, wanted)
        if killed:
            fleet.switch_off()
        _send(account, ids, AFTER)
        if killed:
            fleet.switch_on()
        # What is handed out once may have been handed to a device without power.
        may_lose = AFTER if killed and wanted.hands_out_once else 0
        _wait_for_runs(fleet, ids, history + BEFORE + AFTER, wanted, _LOST_S if may_lose else _WORK_S)
        fleet.sample(on=False)
        unsettled = fleet.settle(_WORK_S)
        fleet.switch_off()
        ledgers = fleet.ledgers
    problems = [f"{name} did not hand over everything" for name in unsettled]
    for device_id in ids:
        problems += _runs(ledgers[device_id], history + BEFORE + AFTER, wanted, may_lose)
        problems += _readings(ledgers[device_id], len(account.stored(device_id)), wanted, killed=killed)
    problems += check_requests(account.front, time.monotonic() - began_s)
    return problems + check_elsewhere(fronts, account.secret_key)


def _send(account: Account, ids: list[str], count: int) -> None:
    for device_id in ids:
        for _ in range(count):
            account.send(device_id, {"command": "open_valve", "seconds": next(_SECONDS)})


def _wait_for_first_contact(account: Account, device_id: str, wanted: Expectations) -> None:
    """Until a list has been answered for certain: many were asked for, or one is held or has found nothing to do."""
    path = f"/devices/{device_id}/commands"

    def has_met() -> bool:
        polls = [seen for seen in account.front.seen if seen.path == path]
        if not polls:
            return False
        held = LONG_POLL in wanted.offers and time.monotonic() - polls[-1].at_s > _QUIET_S
        return len(polls) >= _POLLS or held

    wait_until(has_met, _WORK_S)


def _wait_for_runs(
    fleet: FleetThread, ids: list[str], count: int, wanted: Expectations, within_s: float = _WORK_S
) -> None:
    if wanted.reads_whole_lists:
        deadline_s = time.monotonic() + within_s
        while any(fleet.ledgers[device_id].effects.total() < count for device_id in ids):
            if time.monotonic() > deadline_s:
                return
            time.sleep(0.02)


def _runs(ledger: DeviceLedger, expected: int, wanted: Expectations, may_lose: int) -> list[str]:
    runs: Counter[str] = ledger.effects
    problems = [f"a command ran {count} times" for count in runs.values() if count > 1]
    if len(runs) > expected or (wanted.reads_whole_lists and len(runs) < expected - may_lose):
        problems.append(f"{len(runs)} commands ran instead of {expected}: {ledger.faults}")
    return problems


def _readings(ledger: DeviceLedger, stored: int, wanted: Expectations, *, killed: bool) -> list[str]:
    problems = []
    if not ledger.sent or ledger.accepted < ledger.sent:
        problems.append(f"{ledger.accepted} of {ledger.sent} readings were accepted: {ledger.faults}")
    if stored < ledger.accepted:
        problems.append(f"{ledger.accepted - stored} of {ledger.accepted} accepted readings are not there")
    if stored > ledger.sent and (wanted.knows_repeats or not killed):
        problems.append(f"{stored} readings are there of {ledger.sent} that were sent")
    return problems
