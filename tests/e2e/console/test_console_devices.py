"""The page of all devices, in a real Chromium."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.console_pages import ALL_LOOKS, DESKTOP, PHONE, ConsoleBench, faults_of, has_no_overflow, open_page

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def devices(console: ConsoleBench) -> list[str]:
    product_id = console.product(name="Climate sensor")
    made = [console.device(product_id, f"SN-{number:06d}") for number in range(1, 31)]
    assert console.post_reading(made[0], sensor_data={"temperature": 21.5}).status_code == 201
    return made


def test_all_devices_are_listed_and_a_new_reading_appears_by_itself(open_at, console, devices):
    with open_at("/") as page:
        expect(page.get_by_role("main").get_by_text("30 devices")).to_be_visible()
        row = page.get_by_role("row").filter(has_text="SN-000002")
        expect(row).to_contain_text("none yet")
        console.post_reading(devices[1], sensor_data={"temperature": 33.25})
        expect(row).to_contain_text("temperature 33.25")
        expect(row).to_contain_text("online")


def test_the_search_finds_by_identifier_and_stands_in_the_address(open_at, devices):
    with open_at("/") as page:
        page.get_by_label("Search").fill("sn-00001")
        expect(page.get_by_text("10 devices found")).to_be_visible()
        page.reload()
        expect(page.get_by_label("Search")).to_have_value("sn-00001")
        page.get_by_label("Search").fill("nothing like that")
        expect(page.get_by_role("heading", name="No device fits")).to_be_visible()


@pytest.mark.parametrize("look", ALL_LOOKS)
@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_axe_finds_nothing(open_at, devices, look, viewport):
    with open_at("/", look=look, viewport=viewport) as page:
        expect(page.get_by_role("row")).not_to_have_count(1)
        assert faults_of(page) == []
        assert has_no_overflow(page)


def test_names_are_text_and_never_markup(browser, tmp_path):
    from tests.console_pages import running_console

    markup = "<img src=x onerror=alert(1)><b>bold</b>"
    with running_console() as bench:
        body = {"user_id": "u", "product_id": bench.product(), "device_identifier": "SN-1", "device_name": markup}
        assert bench.http.post("/onboarding/device", json=body).status_code == 201
        long = {**body, "device_identifier": "SN-2", "device_name": "long " * 2000}
        assert bench.http.post("/onboarding/device", json=long).status_code == 201
        with open_page(browser, bench, "/", tmp_path / "failed.png", viewport=DESKTOP) as page:
            expect(page.get_by_role("link", name=markup)).to_be_visible()
            expect(page.locator("main img")).to_have_count(0)
            expect(page.get_by_role("link", name="long long")).to_be_visible()
            assert has_no_overflow(page)
