"""The pages of requests and faults, in a real Chromium."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import expect

from tests.console_pages import ALL_LOOKS, DESKTOP, PHONE, REFUSED, ConsoleBench, faults_of, has_no_overflow

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def device(console: ConsoleBench) -> str:
    made = console.device(console.product(name="Door"), "SN-1")
    console.post_reading(made, sensor_data={"temperature": 1})
    return made


def test_a_request_appears_whole_and_without_its_secret(open_at, console, device):
    with open_at("/console/requests") as page:
        expect(page.get_by_role("heading", name="Requests")).to_be_visible()
        console.post_reading(device, sensor_data={"temperature": 41.5})
        rows = page.get_by_role("row").filter(has_text="POST /sensor-data")
        expect(rows).to_have_count(2)  # the device's first one was there already
        row = rows.first
        expect(row).to_contain_text("201")
        row.get_by_role("button").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_label("Request's body")).to_contain_text("41.5")
        # The secret is nowhere on the page.
        assert console.service.secret_key.reveal() not in page.content()
        dialog.get_by_role("button", name="Close").click()


def test_filters_narrow_the_list_and_a_pause_holds_it(open_at, console, device):
    with open_at("/console/requests") as page:
        console.http.get("/products/unknown/commands")
        page.get_by_label("Status").select_option("4xx")
        expect(page.get_by_role("row").filter(has_text="/products/unknown/commands").first).to_be_visible()
        expect(page.get_by_role("row").filter(has_text="201")).to_have_count(0)
        page.get_by_role("button", name="Pause").click()
        console.http.get("/products/while-paused/commands")
        expect(page.get_by_text("Paused.")).to_be_visible()
        expect(page.get_by_role("row").filter(has_text="while-paused")).to_have_count(0)
        page.get_by_role("button", name="Go on").click()
        expect(page.get_by_role("row").filter(has_text="while-paused").first).to_be_visible()
        page.get_by_label("Text").fill("nothing holds this")
        expect(page.get_by_role("heading", name="No request fits")).to_be_visible()


def test_a_fault_is_switched_on_met_counted_and_switched_off(open_at, console, device):
    with open_at("/console/faults") as page:
        expect(page.get_by_role("heading", name="The service works as it should")).to_be_visible()
        page.get_by_label("Path").fill("/sensor-data")
        page.get_by_label("Method").select_option("POST")
        page.get_by_role("button", name="Switch on: 429, too many requests").click()
        row = page.get_by_role("row").filter(has_text="429, retry after 10 s")
        expect(row).to_contain_text("POST /sensor-data")
        answer = console.http.post("/sensor-data", json={"device_id": device, "sensor_data": {"a": 1}})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "10")
        expect(row.get_by_role("cell").last).to_have_text("1")
        row.get_by_role("switch").click()
        expect(page.get_by_role("heading", name="The service works as it should")).to_be_visible()
    assert console.post_reading(device, sensor_data={"a": 1}).status_code == 201


def test_a_lost_answer_is_really_lost_and_carried_out(open_at, console, device):
    with open_at("/console/faults") as page:
        page.get_by_role("button", name="Switch on: The answer is lost").click()
        expect(page.get_by_role("row").filter(has_text="the answer is lost")).to_be_visible()
        with pytest.raises(httpx.RemoteProtocolError):
            console.http.post("/sensor-data", json={"device_id": device, "sensor_data": {"lost": 7}})
        page.get_by_role("button", name="Remove all").click()
        expect(page.get_by_role("heading", name="The service works as it should")).to_be_visible()
    stored = console.http.get("/sensor-data", params={"device_id": device, "keys": "lost"}).json()["data"]
    assert len(stored) == 1


def test_a_fault_as_json_says_what_is_wrong_with_it(open_at):
    with open_at("/console/faults", expected=[REFUSED]) as page:
        page.get_by_role("button", name="Write one as JSON").click()
        text = page.get_by_label("match, times and effect")
        text.fill("{")
        page.get_by_role("button", name="Add", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("This is no JSON")
        text.fill('{"effect": {"lose": "answer", "latency": 1}}')
        page.get_by_role("button", name="Add", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("a rule has one, so add two rules")
        text.fill('{"match": {"path": "/nowhere"}, "effect": {"lose": "answer"}}')
        page.get_by_role("button", name="Add", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("match.path")
        text.fill('{"match": {"path": "/products"}, "effect": {"truncate": true}}')
        page.get_by_role("button", name="Add", exact=True).click()
        expect(page.get_by_role("row").filter(has_text="the body ends too early")).to_be_visible()
        page.get_by_role("button", name="Remove all").click()
        expect(page.get_by_role("heading", name="The service works as it should")).to_be_visible()


@pytest.mark.parametrize("look", ALL_LOOKS)
@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("name", ["requests", "faults", "service"])
def test_axe_finds_nothing(open_at, device, name, look, viewport):
    with open_at(f"/console/{name}", look=look, viewport=viewport) as page:
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_text("Loading…")).to_have_count(0)
        assert faults_of(page) == []
        assert has_no_overflow(page)
