"""The onboarding driver against servers that answer registrations and removals in other ways."""

from __future__ import annotations

import pytest

from agent.wire.auth import KeyPair
from agent.wire.secret import Secret
from simulator.onboarding import Subject, Timing, drive_labels
from simulator.onboarding.cases import CASES, Step
from simulator.onboarding.connecting import ServiceAccess, connected
from simulator.onboarding.driver import drive_case, drive_label
from simulator.onboarding.journey import Action
from simulator.onboarding.quota import QuotaGate
from simulator.onboarding.steps import Account, RunContext
from simulator.wire.client import ServiceClient
from simulator.wire.qr import LabelText, encode_label
from tests.onboarding_fakes import Clock, Page, fake_server

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
    context = RunContext(Account(client, QuotaGate(timing)), "u1", "u2")
    steps = [Step(Action.SCAN), Step(Action.REGISTER), Step(Action.REMOVE)]
    journey = drive_label(subject(3), context, steps=steps, timing=timing)
    assert journey.passed, journey.steps
    assert list(client.user_devices("u1")) == []


EMPTY, DONE = Page(b""), Page(b"<!DOCTYPE html><p>Done.</p>")
WRITES = {
    "204, text/html, no body": (204, EMPTY),
    "200, text/html, no body": (200, EMPTY),
    "200 with a page": (200, DONE),
}
PLAYED = ("round_trip", "remove_twice", "return", "second_owner", "race_same_user", "race_remove")


@pytest.fixture(params=WRITES)
def html_server(request):
    """Registrations and removals that are carried out are answered as HTML, and so are errors, as Express does."""

    def quirk(method, path, _body, right):
        if (method, path) == ("GET", "/devices"):
            return 200, []
        if right[0] >= 400:
            return right[0], Page(f"<!DOCTYPE html><pre>Cannot {method} {path}</pre>".encode())
        is_write = method == "DELETE" or (method, path) == ("POST", "/onboarding/device")
        return WRITES[request.param] if is_write else right

    with fake_server(quirk) as server:
        server.memory.products.add("p-1")
        yield server


@pytest.mark.parametrize("name", PLAYED)
def test_cases_against_a_server_that_answers_writes_as_html_through_the_real_client(html_server, tmp_path, name):
    secret = tmp_path / "secret"
    secret.write_text("msk_a")
    case = next(case for case in CASES if case.name == name)
    with connected(ServiceAccess(html_server.base_url, "mk_a", secret)) as home:
        context = RunContext(home.account, "u1", "u2")
        subjects = [subject(1) for _ in case.labels]
        journey = drive_case(case, subjects, context, home.timing)
        assert journey.passed, [step for step in journey.steps if not step.verdict.is_good]
        asked = [one.exchange.path for step in journey.steps for one in step.asked if one.exchange is not None]
    assert asked
    assert all("/onboarding/" in path for path in asked), "what the client asks by itself is not the action's request"


def test_a_removal_that_is_answered_as_html_is_a_removal(html_server, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("msk_a")
    with connected(ServiceAccess(html_server.base_url, "mk_a", secret)) as home:
        report = drive_labels([subject(4)], home.client, user_id="u1", remove=True, timing=home.timing)
    assert report.passed, report.journeys
    assert html_server.memory.devices == {}
