"""What a run says of registering its devices, and when."""

from __future__ import annotations

from simulator.fleet.run.reporter import Registering


class View:
    """Keeps what is shown, in its order."""

    def __init__(self):
        self.shown = []

    def note(self, text):
        self.shown.append(text)

    def stage(self, text, done=0, whole=0):
        self.shown.append((done, whole))


def shown(*told, step_s=2.0):
    """What is shown when the service has so many of 10,000 devices, a step apart."""
    view, times = View(), iter(step_s * number for number in range(100))
    registering = Registering(view, lambda: next(times))
    for done in told:
        registering(done, 10_000)
    return view.shown


def test_how_long_registering_takes_is_said_before_its_first_device_and_again_by_what_is_measured():
    said = shown(2_000, 2_100, 2_200, 2_300, 2_400, 10_000)
    assert said[:2] == ["registering 8,000 devices: about 0:20 at 400/s", (2_000, 10_000)]
    assert said[2:] == [
        (2_100, 10_000),
        (2_200, 10_000),
        "the service registers 50 devices/s: about 2:34 to go",
        (2_300, 10_000),
        (2_400, 10_000),
        (10_000, 10_000),
    ]


def test_nothing_is_said_of_registering_where_all_devices_are_there():
    assert shown(10_000, 10_000) == [(10_000, 10_000)] * 2
