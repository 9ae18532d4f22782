from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from dataclasses import replace
from types import SimpleNamespace

from agent.errors import TransportError
from agent.retry import Backoff
from agent.wire.models import PostSensorData
from agent.wire.secret import KeyPair, Secret
from agent.wire.server import BATCH_SENSOR_DATA, IDEMPOTENCY_KEY, LIST_PARAMETERS, RECORDED_AT
from simulator.fleet.audit.ledger import SEQUENCE_NAME, LedgerTarget, first_number_of
from simulator.fleet.audit.run_audit import AuditSettings, audit_run
from simulator.fleet.audit.run_database import AuditedDevice, AuditRules, ledger_path, make_run_database
from simulator.fleet.engine.ports import HttpAnswer
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.plan import Plan
from simulator.fleet.products import load_product
from simulator.fleet.scenario.model import READER
from simulator.fleet.target.client import Keyring, open_client
from simulator.fleet.target.provisioning import ProvisioningRequest, provision
from simulator.fleet.target.target import KeyPairFile
from simulator.fleet.workload import backfill, measured
from simulator.fleet.workload.backfill import BackfillJob, BackfillWorkload, history_name, window_of
from simulator.fleet.workload.base import Leftover, WorkloadSummary
from simulator.keys import Keys
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from simulator.wire.client import ServiceClient

KEYS = Keys("mk_fleet", Secret("msk_fleet"))
PAIR = KeyPair("mk_fleet", Secret("msk_fleet"))
RING = Keyring((KEYS,))
ENDS = "2026-01-01T00:00:00Z"
END_S = 1_767_225_600.0
DAY_S = 86_400.0


def a_scenario(devices=6):
    return READER.validate_json(
        json.dumps(
            {
                "scenario": "past",
                "kind": "backfill",
                "backfill": {"history_s": 7200, "ends_at": ENDS},
                "fleet": {
                    "devices": devices,
                    "models": [
                        {
                            "signals": {"one": {"kind": "random_walk", "start": 20, "step": 0.1}},
                            "telemetry": {"every_s": 30, "batch": 50},
                        }
                    ],
                },
            }
        ),
        strict=True,
    )


async def provisioned(base_url, scenario):
    names = [f"past-{number}" for number in range(scenario.fleet.devices)]
    async with open_client(base_url, RING) as desk:
        return await provision(
            desk, ProvisioningRequest(load_product(), "past", "nobody", names), lambda _done, _whole: None
        )


def a_job(scenario, base_url, found, folder):
    devices = range(scenario.fleet.devices)
    secret = folder / "secret"
    secret.write_text(KEYS.secret_key.reveal(), encoding="ascii")
    secret.chmod(0o600)
    from_s, to_s = window_of(scenario, time.time())
    ids = [device.device_id for device in found.devices]
    offers = (BATCH_SENSOR_DATA, IDEMPOTENCY_KEY, LIST_PARAMETERS, RECORDED_AT)
    first_number = first_number_of(history_name(scenario, from_s, to_s))
    rules = AuditRules(round(time.time() * 1000), offers=offers, first_number=first_number)
    make_run_database(folder, rules, (AuditedDevice(n, ids[n], f"past-{n}") for n in devices))
    return BackfillJob(
        scenario=scenario,
        base_url=base_url,
        keys=(KeyPairFile(KEYS.api_key, secret),),
        devices=devices,
        device_ids=tuple(ids),
        names=tuple(f"past-{n}" for n in devices),
        product_id=found.product_id,
        model_numbers=tuple(int(number) for number in Plan(scenario).models),
        folder=folder,
        from_s=from_s,
        to_s=to_s,
        offers=frozenset(offers),
        ledger=LedgerTarget(
            ledger_path(folder, 0), 0, 0, len(devices), rules.began_ms, first_number=rules.first_number
        ),
    )


async def perform(job, *, stop_after=None) -> tuple[WorkloadSummary, Leftover, Recorder]:
    recorder = Recorder()
    play = BackfillWorkload(job, recorder)
    play.begin(time.monotonic())
    play.enter_phase(0, time.monotonic())
    if stop_after is not None:
        async with asyncio.timeout(60):
            while play.gauges()["readings_accepted"] < stop_after:  # noqa: ASYNC110 - the play has no event for tests
                await asyncio.sleep(0)
        left = Leftover()
    else:
        left = await play.drain(time.monotonic(), time.monotonic() + 60)
        assert play.gauges()["waiting_readings"] == 0
    return await play.close(), left, recorder


async def audited(base_url, folder):
    async with open_client(base_url, RING) as desk:
        return await audit_run(folder, desk.pages, AuditSettings(), lambda _done, _whole: None)


def test_history_that_was_broken_off_is_gone_on_with_and_read_back_whole(tmp_path):
    config = ServiceConfig(port=0, api_key=KEYS.api_key, secret_key=KEYS.secret_key, rate_limit=0)
    scenario = a_scenario()
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with RunningService(config) as service:
        found = asyncio.run(provisioned(service.base_url, scenario))
        job = a_job(scenario, service.base_url, found, first)
        asyncio.run(perform(replace(job, connections=2), stop_after=250))
        job = a_job(scenario, service.base_url, found, second)
        summary, left, recorder = asyncio.run(perform(job))
        assert left == Leftover()
        sums = summary.extras["backfill"]
        assert summary.failures == ()
        assert sums["found"] >= 250
        assert sums["found"] + sums["accepted"] == sums["made"] > 1200
        assert sums["refused"] == sums["resent"] == 0
        assert sums["to"] == "2026-01-01T00:00:00.000Z"
        audit = asyncio.run(audited(service.base_url, second))
    assert audit.complete
    readings = audit.readings
    assert readings is not None
    assert (readings.sent, readings.accepted, readings.stored) == (sums["made"],) * 3
    assert (readings.lost, readings.doubled, readings.altered, readings.unknown, readings.late) == (0, 0, 0, 0, 0)
    operations = recorder.cut(0).measured().operations
    assert operations["http.sensor_data"]["ok"].count == sums["requests"]


class Refusing:
    """A pool whose first answers to readings are these; a fault is raised."""

    base_url = "http://127.0.0.1:9"

    def __init__(self, *answers):
        self._answers = list(answers)

    async def request(self, method, _target, *, body=None, **_):
        if method == "GET":
            return HttpAnswer(200, [], b'{"data":[],"next_cursor":null,"has_more":false}')
        answer = self._answers.pop(0) if self._answers else 201
        if isinstance(answer, Exception):
            raise answer
        text = {"accepted": len(json.loads(body)), "errors": []} if answer == 201 else {"error": "x", "message": "x"}
        return HttpAnswer(answer, [], json.dumps(text).encode())

    async def close(self): ...


def test_history_that_goes_again_is_told_apart_by_what_came_before(tmp_path, monkeypatch):
    monkeypatch.setattr(backfill, "_BACKOFF", Backoff(base_s=0.001, cap_s=0.001))
    pool = Refusing(429, 201, TransportError("cut off"), 429, 201, 503)
    monkeypatch.setattr(measured, "HttpPool", lambda *_given, **_more: pool)
    found = SimpleNamespace(devices=[SimpleNamespace(device_id="d0")], product_id="p")
    summary, left, recorder = asyncio.run(perform(a_job(a_scenario(devices=1), "http://127.0.0.1:9", found, tmp_path)))
    assert (left, summary.failures) == (Leftover(), ())
    posts = recorder.cut(0).measured().operations["http.sensor_data"]
    told = {name: (tally.count - tally.first_attempts, tally.resends_ambiguous) for name, tally in posts.items()}
    assert told == {"ok": (3, 2), "limited": (1, 1), "transport": (0, 0), "server_error": (0, 0)}
    with sqlite3.connect(ledger_path(tmp_path, 0)) as database:
        kinds = dict(database.execute("SELECT kind, count(*) FROM answers GROUP BY kind"))
    assert (kinds["resent"], kinds["resent_after_refusal"], kinds["unanswered"]) == (150, 50, 100)


def test_history_is_sent_whole_beside_what_other_runs_sent_in_that_time(tmp_path):
    """Another run's numbers are larger than any of this history, and so are those of a history that ends elsewhere."""
    config = ServiceConfig(port=0, api_key=KEYS.api_key, secret_key=KEYS.secret_key, rate_limit=0)
    scenario = a_scenario()
    settings = scenario.backfill
    earlier = scenario.model_copy(update={"backfill": settings.model_copy(update={"ends_at": "2025-12-31T23:00:00Z"})})
    with RunningService(config) as service, ServiceClient(service.base_url, PAIR) as client:
        found = asyncio.run(provisioned(service.base_url, scenario))
        live = {"temperature_celsius": 20.0, SEQUENCE_NAME: first_number_of("a live run") + 7}
        for device in found.devices:
            client.post_sensor_data(
                PostSensorData(device_id=device.device_id, sensor_data=live, recorded_at=round((END_S - 4000) * 1000))
            )
        for name, each in (("earlier", earlier), ("later", scenario)):
            folder = tmp_path / name
            folder.mkdir()
            summary, _, _ = asyncio.run(perform(a_job(each, service.base_url, found, folder)))
            sums = summary.extras["backfill"]
            assert (sums["found"], sums["accepted"]) == (0, sums["made"]), name
            readings = asyncio.run(audited(service.base_url, folder)).readings
            assert readings is not None
            assert (readings.lost, readings.altered, readings.unknown, readings.doubled) == (0, 0, 0, 0), name
        again = tmp_path / "again"
        again.mkdir()
        summary, _, _ = asyncio.run(perform(a_job(earlier, service.base_url, found, again)))
        sums = summary.extras["backfill"]
        assert (sums["found"], sums["accepted"]) == (sums["made"], 0), "behind the others' it is found all the same"


def test_history_ends_at_the_last_full_hour_unless_the_scenario_says_when():
    scenario = a_scenario()
    assert window_of(scenario, 1.8e9) == (END_S - 7200, END_S)
    open_end = scenario.model_copy(update={"backfill": scenario.backfill.model_copy(update={"ends_at": None})})
    assert window_of(open_end, END_S + 3599) == (END_S - 7200, END_S)
