"""What a worker counts as asked for, and as sent."""

from __future__ import annotations

from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import Attempt, OutcomeClass
from simulator.fleet.workload.measurement import Measurement


def exchanged(measurement: Measurement, device: int, sent_s: float | None) -> None:
    outcome = OutcomeClass.OK if sent_s is not None else OutcomeClass.TRANSPORT
    times = {"intended_s": 1.0, "ready_s": 1.0, "sent_s": sent_s, "now_s": 2.0}
    measurement.exchanged("http.poll", outcome, device, **times, attempt=Attempt.FIRST)


def test_what_a_device_without_a_link_cannot_send_is_no_fault_of_the_generators():
    recorder = Recorder(0)
    measurement = Measurement(recorder)
    exchanged(measurement, 7, 1.5)
    exchanged(measurement, 7, None)
    assert (recorder.intended, recorder.sent) == (2, 1)
    measurement.is_excused = lambda device: device == 7
    exchanged(measurement, 7, None)
    exchanged(measurement, 7, 1.5)
    exchanged(measurement, 8, None)
    assert (recorder.intended, recorder.sent) == (4, 2)
