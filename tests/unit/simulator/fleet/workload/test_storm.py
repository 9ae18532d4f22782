from __future__ import annotations

import asyncio
import time
from pathlib import Path

from agent.wire.secret import Secret
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.products import load_product
from simulator.fleet.target.client import Keyring, open_client
from simulator.fleet.target.provisioning import ProvisioningRequest, provision
from simulator.fleet.target.target import KeyPairFile
from simulator.fleet.workload.base import Leftover, WorkloadSummary
from simulator.fleet.workload.storm import StormJob, StormWorkload
from simulator.keys import Keys
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService

KEYS = Keys("mk_fleet", Secret("msk_fleet"))
RING = Keyring((KEYS,))


async def perform(base_url: str, labels: int, secret: Path) -> tuple[WorkloadSummary, Leftover, Recorder, int]:
    async with open_client(base_url, RING) as desk:
        wanted = ProvisioningRequest(load_product(), "storm", "nobody", [])
        product_id = (await provision(desk, wanted, lambda _done, _total: None)).product_id
    recorder = Recorder()
    job = StormJob(
        base_url=base_url,
        keys=(KeyPairFile(KEYS.api_key, secret),),
        product_id=product_id,
        scenario="storm",
        identifiers=tuple(f"label-{number}" for number in range(labels)),
        users=("ann", "ben"),
        rate_per_s=500.0,
        rate_factors=(1.0,),
        races=0.3,
        remove=0.3,
        seed=3,
    )
    play = StormWorkload(job, recorder)
    play.begin(time.monotonic())
    play.enter_phase(0, time.monotonic())
    async with asyncio.timeout(60):
        while play.gauges()["labels"] < labels:  # noqa: ASYNC110 - the play has no event for tests
            await asyncio.sleep(0.01)
    left = await play.drain(time.monotonic(), time.monotonic() + 60)
    return await play.close(), left, recorder, play.devices


def test_a_storm_against_a_real_service_is_decided_once_for_each_label(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(KEYS.secret_key.reveal())
    config = ServiceConfig(port=0, api_key=KEYS.api_key, secret_key=KEYS.secret_key, rate_limit=0)
    with RunningService(config) as service:
        summary, left, recorder, devices = asyncio.run(perform(service.base_url, 150, secret))
    assert (left, devices, summary.failures) == (Leftover(), 150, ())
    assert summary.audit is not None
    audit = summary.audit.registrations
    assert audit is not None
    storm = summary.extras["onboarding"]
    assert (audit.sent, audit.accepted, audit.stored) == (150, 150, 150 - storm["removed"])
    assert (audit.lost, audit.doubled, audit.altered, audit.unknown, audit.ambiguous) == (0, 0, 0, 0, 0)
    assert storm["races"] == storm["races_decided"] > 20
    assert storm["removed"] > 20
    operations = recorder.cut(0).measured().operations
    assert set(operations) == {"http.scan_qr", "http.register", "http.remove"}
    assert operations["http.scan_qr"]["ok"].count == 150
    # The one who came second got the right answer as well.
    assert {outcome for classes in operations.values() for outcome in classes} == {"ok"}
    assert operations["http.register"]["ok"].count == 150 + storm["races"]
    assert summary.held == f"of {storm['races']} labels that two people wanted, each went to exactly one"
