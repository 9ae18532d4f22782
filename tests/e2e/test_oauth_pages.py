"""The pages of partner access in a real Chromium: with a keyboard, on a phone, in the dark, and without JavaScript."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from simulator.service.sessions import FORM_MS
from tests.chromium import chromium, find_chromium, tab
from tests.partner import PartnerApp, exchange_code, partner_app, request_query
from tests.service_running import Bench, running

EMAIL, PASSWORD = "ada@example.com", "correct horse battery staple"
PHONE = {"width": 360, "height": 740}
# What Chromium writes on its console when a page's own status is 400 or more.
REFUSED = "Failed to load resource: the server responded with a status of"

Open = Callable[..., AbstractContextManager[Page]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium(find_chromium()) as started:
        yield started


@pytest.fixture(scope="module")
def partner() -> Iterator[PartnerApp]:
    with partner_app() as app:
        yield app


@pytest.fixture(scope="module")
def bench(partner) -> Iterator[Bench]:
    with running() as started:
        started.service.add_user(EMAIL, PASSWORD)
        uris = [partner.uri, partner.uri.replace("/callback", "/hop")]
        started.service.add_client("Workshop Planner", uris, public=True, client_id="planner")
        yield started


@pytest.fixture
def open_tab(browser, bench, partner, tmp_path) -> Open:
    partner.came.clear()
    partner.referers.clear()

    def open_one(**settings) -> AbstractContextManager[Page]:
        return tab(browser, tmp_path / "failed.png", base_url=bench.service.base_url, **settings)

    return open_one


@pytest.fixture
def address(partner) -> str:
    return f"/partner-oauth-authorize?{request_query('planner', partner.uri)}"


def sign_in(page: Page, password: str = PASSWORD) -> None:
    page.get_by_label("Email").fill(EMAIL)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in", exact=True).click()


def allow(page: Page) -> None:
    page.get_by_role("button", name="Allow", exact=True).click()


def back_at_the_partner(page: Page) -> None:
    expect(page.get_by_role("heading", name="Back at the partner")).to_be_visible()


# --- the flow ---------------------------------------------------------------------------------------------------


def test_signing_in_and_allowing_brings_code_and_state_to_the_partner(open_tab, bench, partner, address):
    with open_tab() as page:
        page.goto(address)
        sign_in(page)
        expect(page.get_by_role("heading", level=1)).to_have_text("Allow Workshop Planner to use your account?")
        allow(page)
        back_at_the_partner(page)
    [came] = partner.came
    assert came["state"] == "the-state"
    assert came["iss"] == bench.service.base_url
    assert partner.referers == [None]
    assert exchange_code(bench.service.base_url, "planner", partner.uri, came["code"]).status_code == 200


def test_a_wrong_password_is_told_and_the_next_one_can_be_typed_at_once(open_tab, address):
    with open_tab() as page:
        page.goto(address)
        sign_in(page, "wrong")
        expect(page.get_by_role("alert")).to_have_text("The email or the password is wrong.")
        expect(page.get_by_label("Email")).to_have_value(EMAIL)
        expect(page.get_by_label("Password")).to_be_focused()
        page.keyboard.type(PASSWORD)
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Allow", exact=True)).to_be_visible()


def test_not_allowing_brings_access_denied_to_the_partner(open_tab, partner, address):
    with open_tab() as page:
        page.goto(address)
        sign_in(page)
        page.get_by_role("button", name="Do not allow").click()
        back_at_the_partner(page)
    assert [came["error"] for came in partner.came] == ["access_denied"]


def test_the_back_button_shows_that_it_was_answered_and_leads_on(open_tab, partner, address):
    with open_tab() as page:
        page.goto(address)
        sign_in(page)
        allow(page)
        back_at_the_partner(page)
        page.go_back()
        expect(page.get_by_role("heading", level=1)).to_have_text("You have already answered this")
        page.get_by_role("button", name="Answer anew").click()
        allow(page)
        back_at_the_partner(page)
    first, second = (came["code"] for came in partner.came)
    assert first != second, "asked anew, it is another code"


def test_a_double_click_on_allow_makes_one_code(open_tab, bench, partner, address):
    with open_tab() as page:
        page.goto(address)
        sign_in(page)
        page.get_by_role("button", name="Allow", exact=True).dblclick()
        back_at_the_partner(page)
    codes = {came["code"] for came in partner.came}
    assert len(codes) == 1
    assert exchange_code(bench.service.base_url, "planner", partner.uri, codes.pop()).status_code == 200


def test_a_page_that_is_too_old_leads_to_a_new_one(open_tab, bench, partner, address):
    with open_tab(expected=[REFUSED]) as page:
        page.goto(address)
        sign_in(page)
        bench.clock.advance(FORM_MS / 1000)
        allow(page)
        expect(page.get_by_role("heading", level=1)).to_have_text("This page is too old")
        page.get_by_role("link", name="Open the page anew").click()
        sign_in(page)
        allow(page)
        back_at_the_partner(page)
    assert len(partner.came) == 1


def test_no_other_page_shows_these_in_a_frame(open_tab, bench, partner, address):
    frame = partner.uri.replace("/callback", f"/frame?{quote(bench.service.base_url + address)}")
    with open_tab(expected=["frame-ancestors", "X-Frame-Options"]) as page:
        page.goto(frame)
        page.wait_for_load_state("networkidle")
        assert page.frames[1].get_by_label("Password").count() == 0
        assert page.frames[1].url == "chrome-error://chromewebdata/"


def test_the_error_page_says_what_is_wrong_and_sends_nobody_anywhere(open_tab, partner):
    with open_tab(expected=[REFUSED]) as page:
        page.goto(f"/partner-oauth-authorize?{request_query('planner', partner.uri + '/x')}")
        expect(page.get_by_role("alert")).to_contain_text("an address that it has not registered")
        expect(page.get_by_text("Reference", exact=True)).to_be_visible()
    assert partner.came == []


# --- how it looks and feels -------------------------------------------------------------------------------------


def each_page(page: Page, address: str) -> Iterator[str]:
    """Every page once, by name, with its style sheet."""
    page.goto(address)
    yield "sign-in"
    sign_in(page, "wrong")
    expect(page.get_by_role("alert")).to_be_visible()
    page.wait_for_load_state()
    yield "wrong password"
    sign_in(page)
    expect(page.get_by_text("Who is asking, exactly")).to_be_visible()
    page.wait_for_load_state()
    yield "consent"
    page.get_by_text("Who is asking, exactly").click()
    yield "consent with details"
    allow(page)
    back_at_the_partner(page)
    page.goto(address)
    yield "answered"
    page.goto("/partner-oauth-authorize?client_id=nobody")
    yield "error"


def test_the_keyboard_alone_is_enough_and_shows_where_it_is(open_tab, partner, address):
    ring = "getComputedStyle(document.activeElement).outlineStyle"
    with open_tab() as page:
        page.goto(address)
        expect(page.get_by_label("Email")).to_be_focused()
        page.keyboard.type(EMAIL)
        page.keyboard.press("Tab")
        page.keyboard.type(PASSWORD)
        page.keyboard.press("Tab")
        assert page.evaluate(ring) == "solid"
        page.keyboard.press("Enter")
        button = page.get_by_role("button", name="Allow", exact=True)
        expect(button).to_be_visible()
        page.wait_for_load_state()  # its style sheet is there too
        for _ in range(10):
            page.keyboard.press("Tab")
            assert page.evaluate(ring) == "solid"
            if button.evaluate("e => e === document.activeElement"):
                break
        page.keyboard.press("Enter")
        back_at_the_partner(page)
    assert len(partner.came) == 1


def press(page: Page, step: str, status: str) -> str:
    """Send a step's request; its answer's text."""
    section = page.locator(f"#{step}")
    section.get_by_role("button").click()
    expect(section.locator("[data-status]")).to_contain_text(status)
    return section.locator("[data-answer]").inner_text()
