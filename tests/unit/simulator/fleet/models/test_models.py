from __future__ import annotations

import statistics

import pytest
from pydantic import ValidationError

from simulator.fleet.models.clock import Clock
from simulator.fleet.models.firmware import Firmware
from simulator.fleet.models.settings import ClockSettings, FirmwareSettings, RebootSettings
from simulator.fleet.signals.base import Individual

NOW = 1_767_225_600.0
DAY_S = 86_400.0


def test_clocks_differ_drift_and_are_set_again():
    settings = ClockSettings(offset_s=2, drift_ppm=100, set_every_s=DAY_S)
    clock = Clock.of(settings, NOW)
    off = []
    for number in range(300):
        device = Individual(1, str(number))
        ahead = [clock.clock_at(device, NOW + t).at(NOW + t) - NOW - t for t in (0, DAY_S - 1, DAY_S)]
        off.append(ahead[0])
        assert ahead[2] == pytest.approx(ahead[0], abs=1e-5), "it was set again"
        assert ahead[1] != ahead[0]
    assert statistics.stdev(off) == pytest.approx(2, rel=0.15)


def test_firmware_comes_by_weight_and_an_update_fails_by_share():
    firmware = Firmware({"1.0": 1, "1.1": 3}, update_s=30, failure_share=0.25)
    versions = [firmware.factory_version(Individual(1, str(n))) for n in range(1000)]
    assert versions.count("1.1") == pytest.approx(750, abs=50)
    updates = [firmware.update(f"d{n}", "2.0") for n in range(1000)]
    assert sum(update.succeeded for update in updates) == pytest.approx(750, abs=50)
    assert firmware.update("d1", "2.0") == updates[1]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: FirmwareSettings(versions={}), "at least 1"),
        (lambda: RebootSettings(every_s=10, away_s=6), "more than half of every_s"),
    ],
)
def test_what_cannot_be_is_refused(make, said):
    with pytest.raises(ValidationError) as caught:
        make()
    assert said in str(caught.value)
