"""What faults of the network do to a device's session, on virtual time: the device, its link, and a broker in hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent.errors import LockedOut
from agent.wire import topics
from simulator.fleet.device.mqtt_driver import SPREAD_S
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.signals.base import Individual
from simulator.fleet.workload.link_state import LinkFaults
from tests.unit.simulator.fleet.device.mqtt_rig import ID, Rig

OK, REFUSED = OutcomeClass.OK, OutcomeClass.REFUSED
TIMEOUT, TRANSPORT, UNEXPECTED = OutcomeClass.TIMEOUT, OutcomeClass.TRANSPORT, OutcomeClass.UNEXPECTED


def later(kind: str, **more: Any) -> dict[str, Any]:
    """A fault that begins when the device has been up for a while."""
    return {"kind": kind, "at_s": 30, "duration_s": 200, **more}


def come_up(rig: Rig) -> None:
    """Up, with everything handed over, and the fault about to begin."""
    rig.up()
    rig.clock.run_until(1029.0)
    while rig.engine.waiting:
        keys = rig.readings()
        rig.engine.puback()
        rig.confirm(*keys)


def until(rig: Rig, is_so: Callable[[], Any], within_s: float) -> None:
    """Let time pass until something is so."""
    for _ in range(round(within_s * 4)):
        if is_so():
            return
        rig.pass_s(0.25)
    raise AssertionError(f"not within {within_s:g} s: {rig.observed.exchanges[-5:]}, {rig.ledger.faults[-3:]}")


@pytest.mark.parametrize(
    ("fault", "outcome", "said"),
    [
        (later("tls_failure"), TRANSPORT, "TLS: certificate has expired"),
        (later("link_profile", profile="captive_portal"), UNEXPECTED, "somebody else answers in the broker's place"),
    ],
)
def test_the_next_word_ends_the_session_and_no_other_can_be_had_until_it_is_over(fault, outcome, said):
    rig = Rig(fault)
    come_up(rig)
    until(rig, lambda: not rig.driver.connections, 15)
    assert rig.observed.of("mqtt.sensor_data")[-1] is TRANSPORT
    assert rig.ledger.sent > rig.ledger.accepted
    rig.pass_s(60)
    assert len(rig.engine.openings) == 1  # nothing went out
    attempts = rig.observed.of("mqtt.connect")[1:]
    assert len(attempts) > 3
    assert set(attempts) == {outcome}
    assert any(said in fault for fault in rig.ledger.faults)
    rig.clock.run_until(1230.0)
    until(rig, lambda: len(rig.engine.openings) == 2, 10)
    rig.engine.stand()
    rig.engine.puback()
    keys = rig.readings()
    rig.engine.puback()
    rig.confirm(*keys)
    assert rig.ledger.accepted > 0


def test_a_token_that_was_revoked_goes_out_and_a_broker_that_takes_everybody_is_spoken_for():
    rig = Rig(later("revoked_keys"))
    come_up(rig)
    until(rig, lambda: not rig.driver.connections, 15)
    until(rig, lambda: len(rig.engine.openings) == 2, 130)
    password = rig.engine.openings[-1].password
    assert password is not None
    assert password.reveal() == "dat_not_the_one"
    rig.engine.stand()
    assert rig.driver.connections == 0
    assert rig.engine.cuts == 2
    assert rig.observed.of("mqtt.connect") == [OK, REFUSED]
    for _ in range(10):
        opened = len(rig.engine.openings)
        until(rig, lambda before=opened: len(rig.engine.openings) > before, 1000)
        if rig.clock.time() > 1230:
            break
        rig.engine.lose(LockedOut("unauthorized", "Not authorized"))
    password = rig.engine.openings[-1].password
    assert password is not None
    assert password.reveal() == "dat_1"
    rig.engine.stand()
    assert rig.driver.connections == 1


def test_a_broker_that_refuses_the_wrong_token_itself_is_heard():
    rig = Rig(later("rotated_keys"))
    come_up(rig)
    until(rig, lambda: not rig.driver.connections, 15)
    until(rig, lambda: len(rig.engine.openings) == 2, 130)
    rig.engine.lose()
    assert rig.observed.of("mqtt.connect") == [OK, TRANSPORT]  # the class that the engine gave


@pytest.mark.parametrize(("arrives", "published"), [(0.0, 0), (1.0, 1)])
def test_on_a_half_open_connection_the_device_waits_and_the_end_of_the_fault_resets_it(arrives, published):
    rig = Rig(later("half_open", arrives=arrives, duration_s=60))
    come_up(rig)
    before = len(rig.engine.published)
    until(rig, lambda: rig.engine.deaf, 15)
    assert len(rig.engine.published) - before == published
    if published:
        rig.engine.puback()  # it arrived, and nobody hears so
    rig.engine.deliver(topics.command(ID, "c1"), b'{"id":"c1","command_payload":{"command":"ping"}}')
    assert rig.ledger.effects == {}
    assert rig.driver.connections == 1
    rig.pass_s(10.5)
    assert rig.driver.connections == 1
    expected = [] if published else [TIMEOUT]  # with one that arrives it is the engine that gives up
    assert rig.observed.of("mqtt.sensor_data")[-1:] == (expected or [OK])
    assert rig.links.has_link_fault(0)
    rig.clock.run_until(1090.5)
    assert rig.driver.connections == 0
    until(rig, lambda: len(rig.engine.openings) == 2, 10)
    assert rig.links.has_link_fault(0), "it is not back yet"
    rig.engine.stand()
    assert not rig.links.has_link_fault(0)
    rig.engine.puback()
    assert rig.readings()


def test_who_connects_over_a_half_open_link_waits_in_vain():
    rig = Rig({"kind": "half_open", "at_s": 0, "duration_s": 60})
    rig.driver.switch_on(0)
    rig.pass_s(SPREAD_S + 10)
    assert rig.engine.openings == []
    assert rig.observed.of("mqtt.connect") == [TIMEOUT]


def test_a_slow_link_delays_both_ways_and_nothing_overtakes():
    rig = Rig({"kind": "link_profile", "profile": "satellite", "at_s": 0, "duration_s": 1000})
    rig.driver.switch_on(0)
    until(rig, lambda: rig.engine.openings, 10)
    opened_s = rig.clock.time()
    rig.engine.stand()
    assert rig.driver.connections == 0
    until(rig, lambda: rig.driver.connections, 2)
    assert rig.clock.time() - opened_s >= 0.25
    until(rig, lambda: rig.engine.waiting, 2)  # the greeting
    rig.engine.puback()
    keys = rig.readings()
    rig.driver.sample(on=False)
    rig.confirm(*keys)
    rig.engine.puback()
    assert not rig.driver.has_settled()
    until(rig, rig.driver.has_settled, 2)
    ways = {name: waited_s for name, _, waited_s, _ in rig.observed.exchanges}
    assert ways["mqtt.connect"] >= 3 * 2 * 0.27
    assert ways["mqtt.sensor_data"] >= 2 * 0.27
    assert rig.observed.of("mqtt.receipt") == [OK]


def test_a_connection_that_dies_of_a_bad_link_is_found_out_by_the_keep_alive():
    rig = Rig(later("link_profile", profile="bad_wifi", more_loss=0.0, duration_s=100_000))
    come_up(rig)
    for _ in range(4000):  # one message in a hundred
        if rig.engine.deaf:
            break
        if rig.engine.waiting:
            _, _, publisher, sent_s = rig.engine.waiting.pop(0)
            publisher.acknowledged(0x97, sent_s, rig.clock.time())
        rig.pass_s(5)
    assert rig.engine.deaf
    assert rig.driver.connections == 1
    rig.engine.lose()  # what the engine does once a ping has no answer
    until(rig, lambda: rig.driver.connections == 0, 1)


def test_the_end_of_all_faults_tells_who_does_not_know_yet():
    rig = Rig(later("half_open", duration_s=5000))
    come_up(rig)
    until(rig, lambda: rig.engine.deaf, 15)
    rig.links.apply_link_faults(LinkFaults((), lambda device: Individual.at(1, device), float))
    assert rig.driver.connections == 0


def test_power_off_on_any_link_says_nothing_to_anybody():
    rig = Rig(later("half_open", duration_s=100))
    come_up(rig)
    until(rig, lambda: rig.engine.deaf, 15)
    told = len(rig.observed.exchanges)
    rig.driver.switch_off(0)
    rig.pass_s(300)
    assert len(rig.observed.exchanges) == told
