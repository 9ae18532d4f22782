"""The pages of partner access in a real Chromium: without JavaScript on a phone, with a keyboard, and in a frame."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.chromium import chromium, find_chromium, tab
from tests.support.partner import PartnerApp, exchange_code, partner_app, request_query
from tests.support.service_running import Bench, running

EMAIL, PASSWORD = "ada@example.com", "correct horse battery staple"
PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium(find_chromium()) as started:
        yield started


@pytest.fixture
def partner() -> Iterator[PartnerApp]:
    with partner_app() as app:
        yield app


@pytest.fixture
def bench(partner) -> Iterator[Bench]:
    with running() as started:
        started.add_user(EMAIL, PASSWORD)
        uris = [partner.uri, partner.uri.replace("/callback", "/hop")]
        started.add_client("Workshop Planner", uris, public=True, client_id="planner")
        yield started


def sign_in(page: Page, password: str = PASSWORD) -> None:
    page.get_by_label("Email").fill(EMAIL)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in", exact=True).click()


def back_at_the_partner(page: Page) -> None:
    expect(page.get_by_role("heading", name="Back at the partner")).to_be_visible()


def test_a_person_signs_in_and_allows_on_a_phone_without_javascript(browser, bench, partner, tmp_path):
    hop = partner.uri.replace("/callback", "/hop")  # the partner sends the browser on to another host
    address = f"/partner-oauth-authorize?{request_query('planner', hop)}"
    settings = {"base_url": bench.service.base_url, "java_script_enabled": False, "viewport": PHONE}
    with tab(browser, tmp_path / "failed.png", **settings) as page:
        page.goto(address)
        sign_in(page, "wrong")
        expect(page.get_by_role("alert")).to_have_text("The email or the password is wrong.")
        expect(page.get_by_label("Email")).to_have_value(EMAIL)
        sign_in(page)
        expect(page.get_by_role("heading", level=1)).to_have_text("Allow Workshop Planner to use your account?")
        page.get_by_role("button", name="Not you?").click()
        sign_in(page)
        page.get_by_text("Who is asking, exactly").click()
        expect(page.get_by_text("manufacturer:products")).to_be_visible()
        page.get_by_role("button", name="Allow", exact=True).click()
        back_at_the_partner(page)
        page.go_back()  # asked anew, it may be answered anew
        page.get_by_role("button", name="Do not allow").click()
        back_at_the_partner(page)
    allowed, denied = partner.came
    assert (allowed["state"], allowed["iss"]) == ("the-state", bench.service.base_url)
    assert denied["error"] == "access_denied"
    assert not any(bench.service.base_url in (referer or "") for referer in partner.referers)
    assert exchange_code(bench.service.base_url, "planner", hop, allowed["code"]).status_code == 200


def test_the_keyboard_alone_is_enough_and_shows_where_it_is(browser, bench, partner, tmp_path):
    ring = "getComputedStyle(document.activeElement).outlineStyle"
    with tab(browser, tmp_path / "failed.png", base_url=bench.service.base_url) as page:
        page.goto(f"/partner-oauth-authorize?{request_query('planner', partner.uri)}")
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


def test_no_other_page_shows_these_in_a_frame(browser, bench, partner, tmp_path):
    address = f"{bench.service.base_url}/partner-oauth-authorize?{request_query('planner', partner.uri)}"
    refused = ["frame-ancestors", "X-Frame-Options"]
    with tab(browser, tmp_path / "failed.png", base_url=bench.service.base_url, expected=refused) as page:
        page.goto(partner.uri.replace("/callback", f"/frame?{quote(address)}"))
        page.wait_for_load_state("networkidle")
        assert page.frames[1].get_by_label("Password").count() == 0
        assert page.frames[1].url == "chrome-error://chromewebdata/"
