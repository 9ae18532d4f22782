"""The page of the service: clock, snapshots, accounts, in a real Chromium."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.console_pages import ConsoleBench

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def device(console: ConsoleBench) -> str:
    return console.device(console.product(name="Door"), "SN-1")


def test_the_clock_stands_still_goes_forward_and_comes_back(open_at, console):
    def clock() -> dict[str, str]:
        return console.http.get("/_emulator/clock").json()

    with open_at("/console/service") as page:
        page.get_by_role("button", name="Freeze").click()
        expect(page.get_by_text("It stands still.")).to_be_visible()
        before = clock()["time"]
        page.get_by_role("button", name="+ 1 day").click()
        expect(page.get_by_text("ahead of this machine")).to_be_visible()
        assert clock()["time"] > before
        page.get_by_role("button", name="Let it run on").click()
        expect(page.get_by_text("It runs, set to another time.")).to_be_visible()
        page.get_by_role("button", name="Back to real time").click()
        expect(page.get_by_text("It runs as this machine's clock.")).to_be_visible()
        assert clock()["mode"] == "real"


def test_snapshots_and_accounts_are_listed_and_an_account_is_chosen(open_at, console):
    assert console.http.post("/_emulator/snapshots", json={"name": "before"}).status_code == 201
    assert console.http.post("/_emulator/accounts", json={"name": "Acme"}).status_code == 201
    with open_at("/console/service") as page:
        expect(page.get_by_role("listitem").filter(has_text="before")).to_be_visible()
        page.get_by_role("button", name="Show the devices of Acme").click()
        acme = page.get_by_role("listitem").filter(has_text="Acme")
        expect(acme).to_contain_text("shown in this console")
