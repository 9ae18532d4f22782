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


def test_power_off_on_any_link_says_nothing_to_anybody():
    rig = Rig(later("link_profile", profile="satellite"))
    come_up(rig)
    until(rig, lambda: rig.engine.waiting, 15)
    told = len(rig.observed.exchanges)
    rig.driver.switch_off(0)
    rig.pass_s(300)
    assert len(rig.observed.exchanges) == told
