"""Open arrivals that fell due and never ended: under way when the run was over, or never sent."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agent.wire.extensions import COMMAND_STATUS
from simulator.fleet.metrics.merging import Totals
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.metrics.saturation import Saturation
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import Second
from simulator.fleet.scenario.model import READER
from simulator.fleet.target.target import KeyPairFile
from simulator.fleet.workload.base import Leftover
from simulator.fleet.workload.devices import Address
from simulator.fleet.workload.fleet import FleetJob, FleetWorkload

RATE = 40
ARRIVALS = {"operation": "sensor_data", "rate_per_s": RATE}
End = Callable[[FleetWorkload, Recorder, float], Awaitable[Leftover | None]]


def a_job(folder: Path, base_url: str, **more: object) -> FleetJob:
    scenario = READER.validate_json(
        json.dumps(
            {
                "scenario": "mute",
                "kind": "requests",
                "fleet": {"devices": 3},
                **({} if more.get("kind") == "devices" else {"arrivals": [ARRIVALS]}),
                "phases": [{"kind": "hold", "name": "hold", "duration_s": 1}],
                **more,
            }
        ),
        strict=True,
    )
    secret = folder / "secret"
    secret.write_text("msk_secret", encoding="ascii")
    secret.chmod(0o600)
    keys = (KeyPairFile("mk_key", secret),)
    return FleetJob(
        scenario=scenario,
        address=Address(base_url, keys, None, "127.0.0.1", int(base_url.rpartition(":")[2])),
        keys=keys,
        operator_url=base_url,
        worker=0,
        devices=range(3),
        device_ids=("d0", "d1", "d2"),
        names=("n0", "n1", "n2"),
        product_id="p",
        folder=folder,
        origin_s=time.time(),
        model_numbers=(0, 0, 0),
        offers=frozenset({COMMAND_STATUS}),  # else commands would wait for the first answer to a poll
        device_offers=frozenset(),
        run="run",
        ledger=None,
        connections=8,
    )


def failures_of(second: Second, *, is_open: bool) -> tuple[str, ...]:
    saturation, totals = Saturation(), Totals()
    saturation.add(second)
    totals.add(second)
    return saturation.assess(totals, is_open=is_open).failures


async def played(job: FleetJob, end: End) -> tuple[Second, object]:
    """A second of arrivals that is over when it begins, so that the test need not wait for it."""
    recorder = Recorder()
    play = FleetWorkload(job, recorder)
    began_s = time.monotonic() - 1.0
    play.begin(began_s)
    play.enter_phase(0, began_s)
    recorder.drain(began_s + 1.0)
    left = await end(play, recorder, began_s)
    await play.close()
    return recorder.cut(0).measured(), left


def perform(folder: Path, end: End, **more: object):
    async def run() -> tuple[Second, object]:
        # It takes everything and says nothing.
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            return await played(a_job(folder, f"http://127.0.0.1:{port}", **more), end)
        finally:
            server.close()
            await server.wait_closed()

    return asyncio.run(run())


async def drained(play: FleetWorkload, _recorder: Recorder, began_s: float) -> Leftover:
    return await play.drain(began_s + 1.0, time.monotonic() + 0.3)


@pytest.mark.parametrize("faults", [[], [{"kind": "link_profile", "profile": "2g", "at_s": 0, "duration_s": 60}]])
def test_what_is_under_way_when_the_run_is_over_counts_as_intended_and_as_undelivered(tmp_path, faults):
    told, left = perform(tmp_path, drained, faults=faults)
    health = told.health
    assert (health.intended, health.undelivered) == (RATE, RATE)
    assert left.count == 3  # every device has requests without an answer
    outcomes = told.operations["http.sensor_data"]
    assert set(outcomes) == {OutcomeClass.TIMEOUT}
    assert outcomes[OutcomeClass.TIMEOUT].count == RATE
    assert told.late["http.sensor_data"][OutcomeClass.TIMEOUT].count == RATE  # the phases' own
    failure = failures_of(told, is_open=True)[-1]
    assert failure.startswith(f"{RATE} of {RATE} intended requests never ended")


async def until_every_arrival_has_failed(play: FleetWorkload, _recorder: Recorder, _began_s: float) -> None:
    async with asyncio.timeout(60):
        while sum(play._measurement.sentences.values()) < RATE:  # noqa: ASYNC110 - the play has no event for tests
            await asyncio.sleep(0)


def test_faults_of_the_network_are_made_at_level_wire_too(tmp_path):
    faults = [{"kind": "blackout", "at_s": 0, "duration_s": 60}]
    phases = [{"kind": "hold", "name": "hold", "duration_s": 60}]
    told, _ = perform(tmp_path, until_every_arrival_has_failed, faults=faults, phases=phases)
    assert set(told.operations["http.sensor_data"]) == {OutcomeClass.TRANSPORT}
    # What a fault keeps from going out is no fault of the generator's: it was not to be sent. Arrivals go on until the
    # play is closed, and what falls due in that instant has not been refused yet.
    assert (told.health.intended, told.health.sent) == (told.health.undelivered, 0)


async def gone(_play: FleetWorkload, _recorder: Recorder, _began_s: float) -> None:
    """The target went away: nothing is drained, and the loop has had no turn to send anything."""


@pytest.mark.parametrize("commands", [[], [{"payload": {"command": "ping"}, "rate_per_s": 10}]])
def test_what_fell_due_and_was_never_sent_counts_as_intended_and_as_undelivered(tmp_path, commands):
    load = {"kind": "devices", "commands": commands} if commands else {}
    told, _ = perform(tmp_path, gone, **load)
    due = 10 if commands else RATE
    assert (told.health.intended, told.health.sent, told.health.undelivered) == (due, 0, due)
    assert failures_of(told, is_open=not commands)


def test_orders_under_way_when_the_run_is_over_are_undelivered_too(tmp_path):
    commands = [{"payload": {"command": "ping"}, "rate_per_s": 10}]
    told, _ = perform(tmp_path, drained, kind="devices", commands=commands)
    outcomes = told.operations["http.send_command"]
    assert {outcome: tally.count for outcome, tally in outcomes.items()} == {OutcomeClass.TIMEOUT: 10}
    assert told.health.undelivered == 10


async def ended_at_once(play: FleetWorkload, _recorder: Recorder, began_s: float) -> Leftover:
    """By hand, half a second into the phase: what would have come later is not owed."""
    return await play.drain(began_s + 0.5, time.monotonic() + 0.1)


def test_what_was_not_due_yet_when_somebody_ended_the_run_is_not_missing(tmp_path):
    told, _ = perform(tmp_path, ended_at_once)
    assert told.health.intended == told.health.undelivered == RATE // 2


async def a_broken_plan(play: FleetWorkload, _recorder: Recorder, _began_s: float) -> None:
    def fail(_horizon_s: float) -> None:
        raise ArithmeticError("no such event")

    play._file = fail  # as a fault in the plan would
    await asyncio.wait([play._tasks[0]])


def test_a_plan_that_fails_on_the_way_is_no_quiet_end_of_the_load(tmp_path):
    with pytest.raises(ArithmeticError, match="no such event"):
        perform(tmp_path, a_broken_plan)
