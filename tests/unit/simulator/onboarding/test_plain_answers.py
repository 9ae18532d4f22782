"""The onboarding driver against servers that answer registrations and removals in other ways."""

from __future__ import annotations

import pytest

from simulator.onboarding import Subject, Timing, drive_labels
from simulator.onboarding.cases import CASES, Step
from simulator.onboarding.connecting import ServiceAccess, connected
from simulator.onboarding.driver import drive_case, drive_label
from simulator.onboarding.journey import Action
from simulator.onboarding.quota import QuotaGate
from simulator.onboarding.steps import Account, RunContext
from simulator.wire.qr import LabelText, encode_label
from tests.onboarding_fakes import Clock, Page, Raw, fake_server

ANSWERS = {
    "202 without a body": lambda _right: (202, Raw(b"")),
    "204": lambda _right: (204, None),
    "an empty object": lambda _right: (200, {}),
    "success with the device": lambda right: (200, {"success": True, "device": right}),
    "success with data": lambda right: (200, {"success": True, "data": right}),
}
"""What registrations and removals that are carried out are answered with, by the right body."""


def subject(serial: int, product_id: str = "p-1") -> Subject:
    name = f"CN1-{serial:06d}"
    return Subject(encode_label(LabelText(product_id, name)), product_id, name)


@pytest.fixture(params=ANSWERS)
def plain(request, tmp_path):
    """A client of a server that answers like this, and its product."""

    def quirk(method, path, _body, right):
        is_write = method == "DELETE" or (method, path) == ("POST", "/onboarding/device")
        return ANSWERS[request.param](right[1]) if is_write and right[0] < 400 else right

    secret = tmp_path / "secret"
    secret.write_text("msk_a")
    with fake_server(quirk) as server:
        server.memory.products.add("p-1")
        with connected(ServiceAccess(server.base_url, "mk_a", secret)) as home:
            yield home.client, "p-1"


def test_a_label_goes_the_whole_way_and_its_device_is_named(plain):
    client, product_id = plain
    clock = Clock()
    subjects, timing = [subject(1, product_id), subject(2, product_id)], Timing(clock, clock.sleep)
    report = drive_labels(subjects, client, user_id="u1", remove=True, timing=timing)
    assert report.passed, [step for journey in report.journeys for step in journey.steps if not step.verdict.is_good]
    assert all(journey.device_id for journey in report.journeys)


def test_a_device_is_removed_although_no_list_was_asked_for_before(plain):
    client, product_id = plain
    clock = Clock()
    timing = Timing(clock, clock.sleep)
    context = RunContext(Account(client, QuotaGate(timing)), "u1", "u2")
    steps = [Step(Action.SCAN), Step(Action.REGISTER), Step(Action.REMOVE)]
    journey = drive_label(subject(3, product_id), context, steps=steps, timing=timing)
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
