from __future__ import annotations

from collections import deque

import pytest

from agent.errors import (
    Conflict,
    Forbidden,
    InvalidMessage,
    NotFound,
    RateLimited,
    Refused,
    ServerFault,
    TransportError,
    Unauthorized,
    UnexpectedAnswer,
)
from agent.wire.devices import Device
from simulator.labels.payload import label_text
from simulator.onboarding import Subject, Timing, drive_label, drive_labels
from simulator.onboarding.cases import ROUND_TRIP
from simulator.onboarding.journey import Action, State, StepVerdict
from simulator.onboarding.quota import RETRY_AFTER_DEFAULT_S, QuotaGate
from simulator.onboarding.report import as_json, faults
from simulator.onboarding.steps import Account, RunContext
from simulator.wire.messages import ScanAnswer
from simulator.wire.qr import parse_label


class Service:
    """The onboarding group in memory, as docs/protocol.md says, and as a plain server when ``plain``."""

    def __init__(self, *, plain=False):
        self.plain = plain
        self.devices: dict[str, Device] = {}
        self.errors: deque[tuple[str, Exception]] = deque()
        self.requests: list[tuple[str, object]] = []

    def fail_next(self, request, *errors):
        self.errors.extend((request, error) for error in errors)

    def _take(self, request, argument):
        self.requests.append((request, argument))
        if self.errors and self.errors[0][0] == request:
            raise self.errors.popleft()[1]

    def scan_qr(self, text):
        self._take("scan", text)
        label = parse_label(text)
        if self.plain:
            return ScanAnswer.receive({"name": "Thermo"})
        known = any(device.device_identifier == label.device_identifier for device in self.devices.values())
        return ScanAnswer.receive(
            {
                "product": {"product_id": label.product_id, "name": "Thermo"},
                "device_identifier": label.device_identifier,
                "qr_info": {"v": 1, "seen": True},
                "already_registered": known,
            }
        )

    def register_device(self, registration):
        self._take("register", registration)
        for device in self.devices.values():
            if device.device_identifier == registration.device_identifier:
                if device.user_id != registration.user_id:
                    raise Conflict(409, "device_already_registered")
                return device
        device_id = f"d-{len(self.requests)}"
        device = Device.receive({"device_id": device_id, **registration.to_wire()})
        self.devices[device_id] = device
        return Device() if self.plain else device

    def user_devices(self, user_id):
        self._take("list", user_id)
        yield from [device for device in self.devices.values() if device.user_id == user_id]

    def remove_device(self, device_id):
        self._take("remove", device_id)
        if self.devices.pop(device_id, None) is None:
            raise NotFound(404, "device_not_found")


class Time:
    """A clock that only sleeping moves, and each look at it by a millisecond."""

    def __init__(self):
        self.now = 0.0
        self.slept: list[float] = []

    def clock(self):
        self.now += 0.001
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds

    def timing(self, max_wait_s=120.0):
        return Timing(self.clock, self.sleep, max_wait_s)


def _subject(number=1):
    identifier = f"SIM-{number:06d}"
    return Subject(label_text("p-1", identifier), "p-1", identifier, f"{identifier}.png")


def _drive(service, *, count=1, remove=True, time=None, user_id="u-1", **timing):
    time = time or Time()
    subjects = [_subject(number) for number in range(1, count + 1)]
    return drive_labels(subjects, service, user_id=user_id, remove=remove, timing=time.timing(**timing))


def _context(service):
    timing = Time().timing()
    return RunContext(Account(service, QuotaGate(timing)), "u-1"), timing


def _verdicts(journey):
    return [step.verdict for step in journey.steps]


@pytest.mark.parametrize("plain", [False, True])
def test_a_round_trip_passes_every_step_and_leaves_nothing_behind(plain):
    service = Service(plain=plain)
    report = _drive(service, count=3)
    assert report.passed
    assert [journey.state for journey in report.journeys] == [State.REMOVED] * 3
    assert [step.action for step in report.journeys[0].steps] == [step.action for step in ROUND_TRIP]
    assert service.devices == {}
    assert report.still_registered == ()


def test_keeping_leaves_each_device_registered_to_the_user():
    service = Service()
    report = _drive(service, count=2, remove=False)
    assert report.passed
    assert {device.user_id for device in service.devices.values()} == {"u-1"}
    assert [journey.device_id for journey in report.still_registered] == list(service.devices)


def test_the_scan_sends_the_text_as_read_and_the_registration_what_the_scan_answered():
    service = Service()
    _drive(service)
    requests = dict(service.requests)
    assert requests["scan"] == '{"v":1,"product_id":"p-1","device_identifier":"SIM-000001"}'
    registration = requests["register"]
    assert registration.to_wire() == {
        "user_id": "u-1",
        "product_id": "p-1",
        "device_name": "SIM-000001",
        "device_identifier": "SIM-000001",
        "qr_info": {"v": 1, "seen": True},
    }


def test_running_the_same_labels_again_passes_and_registers_nothing_twice():
    service = Service()
    first = _drive(service, remove=False)
    second = _drive(service, remove=False)
    assert second.passed
    assert second.journeys[0].device_id == first.journeys[0].device_id
    assert len(service.devices) == 1


def test_a_device_of_another_user_is_a_failed_registration_and_is_not_removed():
    service = Service()
    _drive(service, remove=False, user_id="somebody")
    report = _drive(service)
    (journey,) = report.journeys
    assert not report.passed
    register = journey.steps[1]
    assert (register.verdict, register.answered) == (StepVerdict.FAILED, "conflict")
    assert "device_already_registered" in register.detail
    assert len(service.devices) == 1


def test_a_list_that_fails_does_not_keep_the_device_from_being_removed():
    service = Service()
    service.fail_next("list", ServerFault(500, "oops"))
    report = _drive(service)
    (journey,) = report.journeys
    assert _verdicts(journey) == [
        StepVerdict.PASSED,
        StepVerdict.PASSED,
        StepVerdict.FAILED,
        StepVerdict.PASSED,
        StepVerdict.PASSED,
    ]
    assert service.devices == {}
    assert faults(report) == ["SIM-000001: list: answered server error (500 oops); expected device listed"]


@pytest.mark.parametrize(
    ("error", "answered"),
    [
        (NotFound(404, "product_not_found"), "not found"),
        (Refused(400, "invalid_qr"), "refused"),
        (ServerFault(503), "server error"),
    ],
)
def test_a_scan_that_fails_skips_what_depends_on_it_and_the_next_label_goes_on(error, answered):
    service = Service()
    service.fail_next("scan", error)
    report = _drive(service, count=2)
    assert _verdicts(report.journeys[0]) == [StepVerdict.FAILED] + [StepVerdict.SKIPPED] * 4
    assert report.journeys[0].steps[0].answered == answered
    assert report.journeys[1].passed
    assert report.stopped_by is None


@pytest.mark.parametrize("changed", [{"product": {"product_id": "p-2"}}, {"device_identifier": "SIM-9"}])
def test_a_scan_that_shows_another_label_fails(changed):
    service = Service()
    service.scan_qr = lambda text: ScanAnswer.receive(changed)
    report = _drive(service)
    assert report.journeys[0].steps[0].answered == "another label shown"
    assert not report.passed


@pytest.mark.parametrize("error", [TransportError("refused"), Unauthorized(401), Forbidden(403)])
def test_a_service_that_is_not_there_or_refuses_the_keys_stops_the_run_at_once(error):
    service = Service()
    service.fail_next("scan", error)
    report = _drive(service, count=5)
    assert report.stopped_by is error
    assert len(report.journeys) == 1
    assert [subject.device_identifier for subject in report.not_begun] == [f"SIM-{n:06d}" for n in (2, 3, 4, 5)]
    assert not report.passed
    assert len(service.requests) == 1


def test_a_captive_portal_at_the_first_request_stops_the_run():
    service = Service()
    service.fail_next("scan", UnexpectedAnswer("200 with HTML", 200))
    assert isinstance(_drive(service, count=2).stopped_by, UnexpectedAnswer)


def test_one_garbled_answer_later_fails_its_step_and_not_the_run():
    service = Service()
    service.fail_next("list", UnexpectedAnswer("truncated JSON", 200))
    report = _drive(service, count=2)
    assert report.stopped_by is None
    assert [journey.passed for journey in report.journeys] == [False, True]


def test_an_answer_of_the_wrong_shape_is_a_failed_step_and_no_crash():
    service = Service()
    service.fail_next("register", InvalidMessage("device_id: must be text"))
    step = _drive(service).journeys[0].steps[1]
    assert (step.verdict, step.detail) == (StepVerdict.FAILED, "device_id: must be text")


def test_a_connection_lost_twice_after_registration_says_what_is_still_registered_and_costs_one_label():
    service = Service()
    service.fail_next("list", TransportError("reset"))
    service.fail_next("remove", TransportError("reset"))
    report = _drive(service, count=2)
    assert [journey.device_id for journey in report.still_registered] == list(service.devices)
    assert len(as_json(report)["still_registered"]) == 1
    assert as_json(report)["not_begun"] == []
    assert [journey.passed for journey in report.journeys] == [False, True]


def test_a_lost_answer_costs_one_step_and_the_device_is_still_removed():
    service = Service()
    service.fail_next("list", TransportError("reset"))
    report = _drive(service, count=1)
    assert _verdicts(report.journeys[0]) == [*[StepVerdict.PASSED] * 2, StepVerdict.FAILED, *[StepVerdict.PASSED] * 2]
    assert service.devices == {}


def test_a_service_that_is_gone_ends_the_run_after_three_labels_in_a_row():
    service = Service()
    _drive(service, count=1)
    service.fail_next("scan", *[TransportError("reset")] * 9)
    journeys = _drive(service, count=1).journeys
    assert len(journeys) == 1
    service.errors.clear()
    service.fail_next("list", TransportError("reset"))
    service.fail_next("remove", TransportError("reset"))
    service.fail_next("scan", *[TransportError("reset")] * 9)
    report = _drive(service, count=6)
    assert (len(report.journeys), len(report.not_begun)) == (3, 3)
    assert isinstance(report.stopped_by, TransportError)


def test_a_quota_is_waited_out_as_long_as_the_service_asks():
    service, time = Service(), Time()
    service.fail_next("register", RateLimited(429, retry_after_s=17.0), RateLimited(429))
    report = _drive(service, time=time)
    assert report.passed
    assert time.slept == pytest.approx([17.0, RETRY_AFTER_DEFAULT_S], abs=0.01)
    register = report.journeys[0].steps[1]
    assert register.waited_s == pytest.approx(17.0 + RETRY_AFTER_DEFAULT_S, abs=0.01)
    assert register.duration_s == pytest.approx(0.001)


def test_a_quota_that_asks_for_no_wait_at_all_does_not_spin():
    service, time = Service(), Time()
    service.fail_next("scan", *[RateLimited(429, retry_after_s=0.0)] * 50)
    report = _drive(service, time=time, max_wait_s=2.0)
    assert report.journeys[0].steps[0].answered == "rate limited"
    assert len(time.slept) <= 20


def test_a_wait_beyond_the_bound_is_not_begun_and_the_option_is_named():
    service, time = Service(), Time()
    service.fail_next("scan", RateLimited(429, "rate_limited", retry_after_s=3600.0))
    step = _drive(service, time=time, max_wait_s=60).journeys[0].steps[0]
    assert time.slept == []
    assert step.verdict is StepVerdict.FAILED
    assert "--max-wait-s 60" in step.detail


def test_a_plain_server_that_never_names_the_device_cannot_be_asked_to_remove_it():
    service = Service(plain=True)
    service.user_devices = lambda user_id: [Device(device_identifier="SIM-000001")]
    journey = _drive(service).journeys[0]
    remove = journey.steps[3]
    assert (remove.action, remove.verdict) == (Action.REMOVE, StepVerdict.FAILED)
    assert "device_id" in remove.detail


def test_a_device_of_another_product_with_the_same_identifier_is_not_ours():
    service = Service(plain=True)
    service.devices["x"] = Device(device_id="x", user_id="u-1", device_identifier="SIM-000001", product_id="p-2")
    service.register_device = lambda registration: Device(device_id="ours")
    context, timing = _context(service)
    listed = drive_label(_subject(), context, steps=ROUND_TRIP, timing=timing).steps[2]
    assert (listed.action, listed.answered) == (Action.LIST, "device not listed")


def test_progress_is_told_label_by_label():
    told = []
    drive_labels(
        [_subject(1), _subject(2)],
        Service(),
        user_id="u",
        remove=True,
        timing=Time().timing(),
        on_journey=lambda journey, done, total: told.append((journey.subject.device_identifier, done, total)),
    )
    assert told == [("SIM-000001", 1, 2), ("SIM-000002", 2, 2)]


def test_the_json_report_has_each_step_with_what_was_expected_and_answered():
    document = as_json(_drive(Service()))
    assert document["passed"] is True
    assert (document["labels"], document["labels_passed"]) == (1, 1)
    first = document["journeys"][0]["steps"][0]
    assert first == {
        "action": "scan",
        "label": 0,
        "expected": "product shown or registered product shown or product alone shown",
        "answered": "product shown",
        "detail": "Thermo",
        "duration_s": 0.001,
        "waited_s": 0.0,
        "verdict": "passed",
    }
