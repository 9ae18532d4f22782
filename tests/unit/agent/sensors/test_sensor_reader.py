from __future__ import annotations

import logging
import math
import threading

import pytest

from agent.sensors.base import Sensor, SensorFailed, SensorSettings
from agent.sensors.reader import NAMES_MAX, SensorReader


class Given(Sensor):
    """Gives what it is told, or raises it."""

    type = "given"

    def __init__(self, values) -> None:
        super().__init__(SensorSettings())
        self.values = values
        self.reads = 0
        self.closed = False

    def read(self):
        self.reads += 1
        if isinstance(self.values, BaseException):
            raise self.values
        return self.values

    def close(self) -> None:
        self.closed = True


class Hanging(Given):
    """Hangs until it is let go."""

    def __init__(self, values) -> None:
        super().__init__(values)
        self.let_go = threading.Event()

    def read(self):
        self.let_go.wait(30)
        return super().read()


def reader_of(**sensors: Sensor) -> SensorReader:
    for name, sensor in sensors.items():
        sensor.name = name
        if isinstance(sensor, Hanging):
            sensor.timeout_s = 0.05
    return SensorReader(sensors.values())


@pytest.fixture
def hanging():
    sensor = Hanging({"late": 1.0})
    yield sensor
    sensor.let_go.set()


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (SensorFailed("the cable is loose"), "the cable is loose"),
        (ZeroDivisionError("division by zero"), "the sensor raised ZeroDivisionError: division by zero"),
        (SystemExit(3), "the sensor raised SystemExit: 3"),
        (KeyboardInterrupt(), "the sensor raised KeyboardInterrupt"),
        (None, "the sensor returned NoneType, not named numbers"),
        ({"a": SensorFailed("it is loose")}, "a: it is loose"),
        ({"a": math.nan}, "reading 'a' is nan, not a finite number"),
        ({"a": -math.inf}, "reading 'a' is -inf, not a finite number"),
        ({"a": "5"}, "reading 'a' is str, not a number"),
        ({"a": True}, "reading 'a' is bool, not a number"),
        ({"a": 2**70}, "reading 'a' does not fit into 64 bits"),
        ({"": 1.0}, "a reading's name must be 1 to 128 printable characters, not ''"),
        ({5: 1.0}, "a reading's name must be 1 to 128 printable characters, not '5'"),
        ({"a\0": 1.0}, "a reading's name must be 1 to 128 printable characters, not 'a\\x00'"),
    ],
)
def test_a_failing_sensor_has_a_reason_and_never_hides_the_others(fault, sentence):
    outcomes = reader_of(bad=Given(fault), good=Given({"x": 1.0})).read()
    assert outcomes["bad"].error == sentence
    assert not outcomes["bad"].values
    assert dict(outcomes["good"].values) == {"x": 1.0}


def test_a_hung_sensor_times_out_and_keeps_one_thread_however_often_it_is_asked_for(hanging):
    reader = reader_of(stuck=hanging, good=Given({"x": 1.0}))
    late = reader.begin("stuck")
    for _ in range(5):
        outcomes = reader.read()
        assert "no answer for " in (outcomes["stuck"].error or "")
        assert dict(outcomes["good"].values) == {"x": 1.0}
    assert [thread.name for thread in threading.enumerate()].count("sensor:stuck") == 1
    hanging.let_go.set()
    assert dict(late.result.result(60).values) == {"late": 1.0}
    hanging.values = {"late": 2.0}
    while not (values := reader.read()["stuck"].values):
        pass  # a busy machine may need longer than its timeout
    assert dict(values) == {"late": 2.0}


def test_two_callers_at_the_same_time_share_one_read(hanging):
    reader = reader_of(one=hanging)
    first = reader.begin("one")
    assert reader.begin("one") is first
    hanging.let_go.set()
    assert dict(first.result.result(60).values) == {"late": 1.0}
    assert hanging.reads == 1


def test_the_second_sensor_with_a_reading_of_the_same_name_is_prefixed_and_it_is_said_once(caplog):
    reader = reader_of(boiler=Given({"temperature_c": 60.0}), cellar=Given({"temperature_c": 12.0}))
    with caplog.at_level(logging.WARNING):
        reader.read(["boiler"])
        for _ in range(2):
            outcomes = reader.read()
    assert dict(outcomes["boiler"].values) == {"temperature_c": 60.0}
    assert dict(outcomes["cellar"].values) == {"cellar_temperature_c": 12.0}
    assert len(caplog.records) == 1
    assert "sensors boiler and cellar both have a reading temperature_c" in caplog.text


def test_a_sensor_that_makes_up_a_new_name_with_each_read_is_refused_beyond_the_bound():
    maker = Given({})
    reader = reader_of(maker=maker, cellar=Given({"humidity": 40.0}))
    reader.read(["cellar"])
    for number in range(NAMES_MAX + 10):
        maker.values = {f"beacon_{number}": 1.0}
        outcome = reader.read(["maker"])["maker"]
    assert not outcome.values
    assert f"given {NAMES_MAX} names" in (outcome.error or "")
    maker.values = {"beacon_0": 2.0}
    assert dict(reader.read(["maker"])["maker"].values) == {"beacon_0": 2.0}
    assert dict(reader.read(["cellar"])["cellar"].values) == {"humidity": 40.0}


def test_closing_interrupts_a_read_and_releases_every_sensor_even_when_one_objects(hanging, caplog):
    class Objecting(Given):
        def close(self) -> None:
            raise SystemExit("busy")

    hanging.interrupt = hanging.let_go.set
    reader = reader_of(bad=Objecting({}), one=hanging)
    reader.read()
    reader.close(timeout_s=10)
    assert hanging.closed
    assert "sensor bad could not be closed: SystemExit: busy" in caplog.text
