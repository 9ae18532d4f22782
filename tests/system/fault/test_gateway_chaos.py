"""SIGKILL of broker, gateway, agent and service in random order, under load: nothing is lost, nothing is done twice."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.conftest import require_program
from tests.support.mosquitto import find_mosquitto
from tests.system.fault.gateway_rig import GatewayRig
from tests.system.fault.judging import judge_commands, judge_readings, stored, wait_until_all_ended
from tests.system.fault.rig import Books, load

pytestmark = pytest.mark.long

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "5"))
VICTIMS = ("broker", "gateway", "agent", "service")


@pytest.mark.timeout(300 + 10 * ROUNDS)
def test_killing_broker_gateway_agent_and_service_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    chance = random.Random(ROUNDS)
    mosquitto = find_mosquitto() or require_program("mosquitto")
    books, committed = Books(), set[int]()
    # Each of them at least once, however few rounds there are.
    order = [*VICTIMS, *(chance.choice(VICTIMS) for _ in range(max(0, ROUNDS - len(VICTIMS))))]
    chance.shuffle(order)
    with GatewayRig(tmp_path, mosquitto) as rig:
        rig.start_gateway()
        rig.start_agent()
        rig.wait_for_gateway()
        with load(rig, books):
            for victim in order:
                time.sleep(chance.uniform(0.5, 1.5))
                if victim == "agent":
                    rig.agent.kill()
                    committed |= rig.committed_sequences()
                    rig.start_agent()
                elif victim == "gateway":
                    rig.gateway.kill()
                    rig.start_gateway()
                elif victim == "broker":
                    rig.broker.kill()
                    rig.broker.start()
                else:
                    rig.service.kill()
                    rig.start_service()
            if not committed:  # by chance nothing waited whenever the agent was killed
                committed |= rig.kill_an_agent_that_holds_readings()
            assert rig.gateway.running, "the gateway ended by itself"
            assert rig.agent.running, "the agent ended by itself"
        commands = wait_until_all_ended(rig, books)
        own = stored(rig, rig.device_id, "witness_sequence", at_least=committed)
        posted = stored(rig, rig.load_device_id, "sequence", at_least=set(books.posted))
        runs = rig.runs()

    judge_commands(books, commands, runs, rounds=ROUNDS)
    judge_readings(books, committed, own, posted, rounds=ROUNDS)
