"""A walk through the console for who develops firmware: devices, commands, requests, faults, labels."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, FilePayload, expect

from tests.support.chromium import tab
from tests.support.service_running import Bench
from tests.system.console.conftest import REFUSED, OpenTab, check_looks, faults_of

pytestmark = pytest.mark.long

VOCABULARY = [
    {"name": "ping", "title": "Ping"},
    {
        "name": "set_interval",
        "title": "Set interval",
        "payload_schema": {
            "type": "object",
            "properties": {
                "command": {"const": "set_interval"},
                "seconds": {"type": "number", "minimum": 1},
                "mode": {"enum": ["fast", "slow"]},
                "now": {"type": "boolean"},
                "names": {"type": "array"},
            },
            "required": ["command", "seconds"],
        },
    },
]


@pytest.fixture
def device_id(console: Bench) -> str:
    product = console.product(name="Climate node", commands=VOCABULARY)
    devices = [console.device(product, f"SN-{number:03d}") for number in range(55)]
    for value in (20.5, 21.25):
        console.post_reading(devices[0], sensor_data={"temperature_celsius": value, "humidity_percent": 40})
    return devices[0]


def test_a_tab_without_the_link_says_where_it_is_and_takes_it(browser: Browser, console: Bench, tmp_path: Path) -> None:
    with tab(browser, tmp_path / "failed.png", base_url=console.service.base_url, expected=[REFUSED]) as page:
        page.goto("/console/")
        page.get_by_role("heading", name="Open the console by its link").wait_for()
        assert faults_of(page) == []
        page.get_by_label("Link").fill("http://127.0.0.1/console/")
        page.get_by_role("button", name="Open").click()
        expect(page.get_by_role("alert")).to_contain_text("no #token")
        page.get_by_label("Link").fill("http://127.0.0.1/console/#token=of-an-earlier-start")
        page.get_by_role("button", name="Open").click()
        page.get_by_role("heading", name="This link has ended").wait_for()
        page.get_by_label("Link").fill(console.service.console_url or "")
        page.get_by_role("button", name="Open").click()
        page.get_by_role("heading", name="Devices", level=1).wait_for()
        assert "token" not in page.url
        page.reload()  # the tab has the token still
        page.get_by_role("heading", name="Devices", level=1).wait_for()


def test_devices_are_listed_live_and_filtered(open_tab: OpenTab, console: Bench, device_id: str) -> None:
    with open_tab() as page:
        row = page.get_by_role("row", name=re.compile("SN-000"))
        expect(row).to_contain_text("temperature 21.25 °C")
        expect(page.get_by_text("55 in all")).to_be_visible()
        console.post_reading(device_id, sensor_data={"temperature_celsius": 22})
        expect(row).to_contain_text("temperature 22 °C")
        check_looks(page)
        page.get_by_role("button", name="Next 50").click()
        expect(page.get_by_role("row", name=re.compile("SN-054"))).to_be_visible()
        page.get_by_label("Identifier").fill("SN-007")
        expect(page.get_by_role("row")).to_have_count(2)
        page.get_by_label("Status").select_option("online")
        expect(page.get_by_role("heading", name="No device fits")).to_be_visible()


def test_a_device_shows_plots_and_takes_a_command(open_tab: OpenTab, console: Bench, device_id: str) -> None:
    with open_tab() as page:
        page.get_by_role("row", name=re.compile("SN-000")).get_by_role("link").click()
        expect(page.get_by_role("img", name=re.compile("^temperature: 20.5 to 21.25 °C"))).to_be_visible()
        expect(page.get_by_text("None yet.")).to_be_visible()
        check_looks(page)
        page.get_by_role("button", name="Send a command").click()
        page.get_by_label("Command", exact=True).select_option("set_interval")
        page.get_by_role("button", name=re.compile("^Send to")).click()
        expect(page.get_by_role("alert")).to_contain_text("must be filled in")
        page.get_by_label("seconds").first.fill("2.5")
        page.get_by_label("mode").select_option('"slow"')
        page.get_by_label("names").fill('["a"]')
        assert faults_of(page) == []
        page.get_by_role("button", name=re.compile("^Send to")).click()
        command = page.get_by_role("listitem").filter(has_text="set_interval")
        expect(command).to_contain_text("queued")
        sent = console.http.get(f"/devices/{device_id}/commands").json()["data"][0]
        assert sent["command_payload"] == {"command": "set_interval", "seconds": 2.5, "mode": "slow", "names": ["a"]}
        console.poll(device_id)
        console.report(device_id, sent["id"], "succeeded", result={"done": True})
        expect(command).to_contain_text("succeeded")
        command.get_by_role("button", name="Send again").click()
        page.get_by_role("textbox", name="Payload").fill("[1]")
        page.get_by_role("button", name=re.compile("^Send to")).click()
        expect(page.get_by_role("alert")).to_contain_text("JSON object")


def test_requests_are_seen_and_those_of_the_console_are_not(open_tab: OpenTab, console: Bench, device_id: str) -> None:
    with open_tab() as page:
        page.goto("/console/#/requests")
        console.http.get(f"/devices/{device_id}", headers={"x-note": "<b>bold</b>"})
        page.get_by_role("button", name=f"GET /devices/{device_id}", exact=True).first.click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("x-note: <b>bold</b>")
        expect(dialog).not_to_contain_text(console.service.secret_key.reveal())
        assert faults_of(page) == []
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        check_looks(page)
        page.get_by_role("button", name="Forget all").click()
        expect(page.get_by_role("heading", name="Nothing came yet")).to_be_visible()


def test_a_fault_is_met_by_devices_and_not_by_the_console(open_tab: OpenTab, console: Bench) -> None:
    with open_tab() as page:
        page.goto("/console/#/faults")
        page.get_by_label("Effect", exact=True).select_option("failed")
        page.get_by_role("button", name="Switch it on").click()
        expect(page.get_by_role("row", name=re.compile("answers 503"))).to_be_visible()
        assert console.http.get("/devices").status_code == 503
        expect(page.get_by_role("row", name=re.compile("answers 503"))).to_contain_text("1")
        check_looks(page)
        page.get_by_role("button", name="Remove: answers 503").click()
        expect(page.get_by_role("heading", name="The service works as it should")).to_be_visible()
        assert console.http.get("/devices").status_code == 200
        page.get_by_text("Write one as JSON").click()
        page.get_by_label("match, times and effect").fill("{")
        page.get_by_role("button", name="Add it").click()
        expect(page.get_by_role("alert")).to_contain_text("This is no JSON")


@pytest.mark.usefixtures("device_id")
def test_a_label_is_made_photographed_scanned_and_registered(open_tab: OpenTab) -> None:
    with open_tab(expected=[REFUSED]) as page:
        page.goto("/console/#/labels")
        page.get_by_label("Device identifiers").fill("NEW-1\nNEW-2")
        page.get_by_role("button", name="Make them").click()
        expect(page.get_by_role("img", name="QR code of NEW-2")).to_be_visible()
        check_looks(page)
        photograph = page.get_by_role("img", name="QR code of NEW-2").screenshot()
        file: FilePayload = {"name": "label.png", "mimeType": "image/png", "buffer": photograph}
        page.get_by_label("Photograph").set_input_files(file)
        expect(page.get_by_text("The device is not registered yet.")).to_be_visible()
        page.get_by_role("button", name="Register the device").click()
        expect(page.get_by_text("The device is registered already.")).to_be_visible()
        page.get_by_label("Text of the code").fill("nonsense")
        expect(page.get_by_role("alert")).to_contain_text("refuses this label")
