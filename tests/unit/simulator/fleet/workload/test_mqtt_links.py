"""What faults of the network do to a device's session, on virtual time: the device, its link, and a broker in hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulator.fleet.outcomes import OutcomeClass
from tests.unit.simulator.fleet.device.mqtt_rig import Rig

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


def test_the_next_word_ends_the_session_and_no_other_can_be_had_until_it_is_over():
    rig = Rig(later("link_profile", profile="captive_portal"))
    come_up(rig)
    until(rig, lambda: not rig.driver.connections, 15)
    assert rig.observed.of("mqtt.sensor_data")[-1] is TRANSPORT
    assert rig.ledger.sent > rig.ledger.accepted
    rig.pass_s(60)
    assert len(rig.engine.openings) == 1  # nothing went out
    attempts = rig.observed.of("mqtt.connect")[1:]
    assert len(attempts) > 3
    assert set(attempts) == {UNEXPECTED}
    assert any("somebody else answers in the broker's place" in fault for fault in rig.ledger.faults)
    rig.clock.run_until(1230.0)
    until(rig, lambda: len(rig.engine.openings) == 2, 10)
    rig.engine.stand()
    rig.engine.puback()
    keys = rig.readings()
    rig.engine.puback()
    rig.confirm(*keys)
    assert rig.ledger.accepted > 0


def test_a_token_that_was_revoked_ends_the_session_and_is_refused_in_the_brokers_place_until_the_end():
    rig = Rig(later("revoked_keys"))
    come_up(rig)
    until(rig, lambda: not rig.driver.connections, 15)
    until(rig, lambda: rig.observed.of("mqtt.connect")[1:] == [REFUSED], 130)
    assert any("does not accept this device's token" in fault for fault in rig.ledger.faults)
    rig.clock.run_until(1230.0)
    until(rig, lambda: len(rig.engine.openings) == 2, 1000)
    rig.engine.stand()
    assert rig.driver.connections == 1


def test_a_slow_link_delays_connections_and_messages():
    rig = Rig({"kind": "link_profile", "profile": "satellite", "at_s": 0, "duration_s": 1000})
    rig.driver.switch_on(0)
    until(rig, lambda: rig.engine.openings, 10)
    rig.engine.stand()
    until(rig, lambda: rig.engine.waiting, 2)  # the greeting
    rig.engine.puback()
    keys = rig.readings()
    rig.driver.sample(on=False)
    rig.confirm(*keys)
    rig.engine.puback()
    until(rig, rig.driver.has_settled, 2)
    ways = {name: waited_s for name, _, waited_s, _ in rig.observed.exchanges}
    assert ways["mqtt.connect"] >= 3 * 2 * 0.27
    assert ways["mqtt.sensor_data"] >= 2 * 0.27
    assert rig.observed.of("mqtt.receipt") == [OK]


def test_a_connection_that_dies_of_a_bad_link_ends_and_another_one_is_made():
    rig = Rig(later("link_profile", profile="bad_wifi", more_loss=0.0, duration_s=100_000))
    come_up(rig)
    for _ in range(4000):  # one message in a hundred
        if not rig.driver.connections:
            break
        if rig.engine.waiting:
            _, _, publisher, sent_s = rig.engine.waiting.pop(0)
            publisher.acknowledged(0x97, sent_s, rig.clock.time())
        rig.pass_s(5)
    assert not rig.driver.connections
    assert rig.links.has_link_fault(0), "it is not back yet"
    until(rig, lambda: len(rig.engine.openings) == 2, 20)


def test_power_off_on_any_link_says_nothing_to_anybody():
    rig = Rig(later("link_profile", profile="satellite"))
    come_up(rig)
    until(rig, lambda: rig.engine.waiting, 15)
    told = len(rig.observed.exchanges)
    rig.driver.switch_off(0)
    rig.pass_s(300)
    assert len(rig.observed.exchanges) == told
