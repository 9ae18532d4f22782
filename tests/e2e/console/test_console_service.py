"""The page of the service: clock, snapshots, accounts, in a real Chromium."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import expect

from tests.console_pages import REFUSED, ConsoleBench

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


def test_a_state_is_saved_loaded_and_deleted(open_at, console, device):
    with open_at("/console/service", expected=[REFUSED]) as page:
        page.locator("#snapshot").fill("before")
        page.get_by_role("button", name="Save the state").click()
        row = page.get_by_role("listitem").filter(has_text="before")
        expect(row.get_by_role("button", name="Load")).to_be_visible()
        page.locator("#snapshot").fill("before")
        page.get_by_role("button", name="Save the state").click()
        expect(page.get_by_role("region", name="Messages")).to_contain_text("before")  # the name is taken
        assert console.http.delete(f"/onboarding/device/{device}").status_code == 204
        row.get_by_role("button", name="Load").click()
        page.get_by_role("dialog").get_by_role("button", name="Load", exact=True).click()
        expect(page.get_by_text("The state is that of before again.")).to_be_visible()
        assert console.http.get(f"/devices/{device}/commands").status_code == 200
        row.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
        expect(page.get_by_text("None yet.")).to_be_visible()


def test_an_account_is_made_its_secret_shown_on_demand_and_it_is_deleted(open_at, console):
    with open_at("/console/service") as page:
        expect(page.get_by_role("button", name="Show the secret of")).to_have_count(1)
        assert console.service.secret_key.reveal() not in page.content()
        page.get_by_role("button", name="Show the secret of").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(console.service.secret_key.reveal())
        dialog.get_by_role("button", name="Close").click()
        assert console.service.secret_key.reveal() not in page.content()

        page.locator("#account-name").fill("Acme")
        page.get_by_role("button", name="Add an account").click()
        expect(dialog.get_by_role("heading", name="Account Acme")).to_be_visible()
        public, secret = dialog.locator("dd").all_inner_texts()
        keys = {"x-api-key": public, "x-secret-key": secret}
        assert httpx.get(f"{console.service.base_url}/devices", headers=keys).status_code == 200
        dialog.get_by_role("button", name="Close").click()
        acme = page.get_by_role("listitem").filter(has_text="Acme")
        page.get_by_role("button", name="Another key pair of Acme").click()
        expect(dialog.get_by_role("heading", name="Another key pair of Acme")).to_be_visible()
        dialog.get_by_role("button", name="Close").click()
        page.get_by_role("button", name=f"End {public}").click()
        expect(acme.first).to_contain_text("1 key pair")
        assert httpx.get(f"{console.service.base_url}/devices", headers=keys).status_code == 401
        page.get_by_role("button", name="Delete Acme").click()
        dialog.get_by_role("button", name="Delete", exact=True).click()
        expect(acme).to_have_count(0)
