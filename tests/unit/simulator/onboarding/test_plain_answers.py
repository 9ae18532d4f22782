"""The onboarding driver against servers that answer registrations and removals in other ways."""

from __future__ import annotations

import pytest

from agent.wire.auth import KeyPair
from agent.wire.client import ServiceClient
from agent.wire.qr import LabelText, encode_label
from agent.wire.secret import Secret
from simulator.onboarding import Subject, Timing, drive_labels
from simulator.onboarding.cases import Step
from simulator.onboarding.driver import drive_label
from simulator.onboarding.journey import Action
from simulator.onboarding.quota import QuotaGate
from simulator.onboarding.steps import Account, Desk
from tests.onboarding_fakes import Clock, fake_server

ANSWERS = {
    "202 without a body": lambda _right: (202, None),
    "204": lambda _right: (204, None),
    "an empty object": lambda _right: (200, {}),
    "success with the device": lambda right: (201, {"success": True, "device": right[1]}),
    "success with data": lambda right: (201, {"success": True, "data": right[1]}),
}


def subject(serial: int) -> Subject:
    name = f"CN1-{serial:06d}"
    return Subject(encode_label(LabelText("p-1", name)), "p-1", name)


@pytest.fixture(params=ANSWERS)
def client(request):
    def quirk(method, path, _body, right):
        is_registration = method == "POST" and path == "/onboarding/device" and right[0] in {200, 201}
        return ANSWERS[request.param](right) if is_registration else right

    with fake_server(quirk) as server, ServiceClient(server.base_url, KeyPair("mk_a", Secret("msk_a"))) as client:
        server.memory.products.add("p-1")
        yield client


def test_a_label_goes_the_whole_way_and_its_device_is_named(client):
    clock = Clock()
    subjects, timing = [subject(1), subject(2)], Timing(clock, clock.sleep)
    report = drive_labels(subjects, client, user_id="u1", remove=True, timing=timing)
    assert report.passed, [step for journey in report.journeys for step in journey.steps if not step.verdict.is_good]
    assert all(journey.device_id for journey in report.journeys)


def test_a_device_is_removed_although_no_list_was_asked_for_before(client):
    clock = Clock()
    timing = Timing(clock, clock.sleep)
    desk = Desk(Account(client, QuotaGate(timing)), "u1", "u2")
    steps = [Step(Action.SCAN), Step(Action.REGISTER), Step(Action.REMOVE)]
    journey = drive_label(subject(3), desk, steps=steps, timing=timing)
    assert journey.passed, journey.steps
    assert list(client.user_devices("u1")) == []
