"""A service that goes away and comes back, a session that ended, a service without devices, the keyboard."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from agent.wire.secret import Secret
from tests.console_pages import ALL_LOOKS, PHONE, REFUSED, faults_of, open_page, running_console
from tests.ports import free_port

pytestmark = pytest.mark.long

AWAY = "The service is away."
ENDED = "This session has ended."


def test_a_service_that_goes_away_and_comes_back_is_said_and_the_page_goes_on_by_itself(browser, tmp_path):
    settings = {"data_dir": tmp_path / "data", "port": free_port(), "api_key": "mk_a", "secret_key": Secret("msk_b")}
    with running_console(**settings) as bench:
        device_id = bench.device()
        with open_page(browser, bench, "/", tmp_path / "failed.png", expected=[REFUSED]) as page:
            row = page.get_by_role("row").filter(has_text="SN-000001")
            expect(row).to_contain_text("none yet")
            bench.service.stop()
            expect(page.get_by_text(AWAY)).to_be_visible()
            expect(row).to_be_visible()
            assert faults_of(page) == []
            with running_console(**settings) as again:
                expect(page.get_by_text(AWAY)).to_have_count(0)
                expect(page.get_by_text("Live", exact=True)).to_be_visible()
                again.post_reading(device_id, sensor_data={"back": 1})
                expect(row).to_contain_text("back 1")


def test_a_service_that_forgot_its_sessions_says_how_to_get_in_again(browser, tmp_path):
    port = free_port()
    picture = tmp_path / "failed.png"
    with (
        running_console(port=port) as bench,
        open_page(browser, bench, "/", picture, expected=[REFUSED]) as page,
    ):
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        bench.service.stop()
        with running_console(port=port) as again:
            expect(page.get_by_text(ENDED)).to_be_visible()
            expect(page.get_by_text("fleet-simulator console")).to_be_visible()
            assert faults_of(page) == []
            page.get_by_role("button", name="I have opened one").click()
            expect(page.get_by_role("heading", name="Open the console with a link")).to_be_visible()
            page.goto(again.link())
            expect(page.get_by_role("heading", name="Devices", level=1)).to_be_visible()


def test_signing_out_elsewhere_ends_the_page_at_its_next_request(open_at, console):
    with open_at("/", expected=[REFUSED]) as page:
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        csrf = page.locator('meta[name="console-csrf"]').get_attribute("content")
        page.request.post("/console/sign-out", headers={"X-Console": csrf or ""})
        page.get_by_label("Search").fill("anything")
        expect(page.get_by_text(ENDED)).to_be_visible()


@pytest.mark.parametrize("look", ALL_LOOKS)
def test_without_devices_the_page_says_how_to_get_some(open_at, look):
    with open_at("/", look=look, viewport=PHONE) as page:
        expect(page.get_by_role("heading", name="No devices yet")).to_be_visible()
        expect(page.get_by_text("fleet-simulator up --devices 10")).to_be_visible()
        assert faults_of(page) == []


@pytest.mark.parametrize("look", ALL_LOOKS)
def test_axe_finds_nothing_on_the_page_without_a_session(browser, console, tmp_path, look):
    with open_page(browser, console, "/", tmp_path / "failed.png", look=look, expected=[REFUSED]) as page:
        page.context.clear_cookies()
        page.goto("/")
        expect(page.get_by_role("heading", name="Open the console with a link")).to_be_visible()
        assert faults_of(page) == []
        page.goto("/?token=used")
        expect(page.get_by_role("heading", name="This link is used up")).to_be_visible()
        assert faults_of(page) == []


def test_the_way_through_the_pages_works_by_keyboard_and_says_which_page_it_is(open_at, console):
    device_id = console.device(console.product(), "SN-keys")
    with open_at("/") as page:
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        page.get_by_role("link", name="SN-keys").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="SN-keys")).to_be_visible()
        expect(page).to_have_url(f"{console.service.base_url}/console/devices/{device_id}")
        expect(page.get_by_role("main")).to_be_focused()
        expect(page).to_have_title("Device · Console")
        page.get_by_role("button", name="Send a command").press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page.get_by_role("button", name="Send a command")).to_be_focused()
        page.go_back()
        expect(page.get_by_role("heading", name="Devices", level=1)).to_be_visible()


def test_the_first_device_appears_by_itself_and_goes_when_it_is_removed(browser, tmp_path):
    with running_console() as bench, open_page(browser, bench, "/", tmp_path / "failed.png") as page:
        expect(page.get_by_role("heading", name="No devices yet")).to_be_visible()
        device_id = bench.device(identifier="SN-first")
        expect(page.get_by_role("link", name="SN-first")).to_be_visible()
        bench.http.delete(f"/onboarding/device/{device_id}")
        expect(page.get_by_role("heading", name="No devices yet")).to_be_visible()
