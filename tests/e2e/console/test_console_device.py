"""A device's page: its readings, its commands as they go on, and what was sent from the page itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, expect

from tests.console_pages import (
    ALL_LOOKS,
    DESKTOP,
    PHONE,
    REFUSED,
    ConsoleBench,
    faults_of,
    has_no_overflow,
    open_page,
    running_console,
)

pytestmark = pytest.mark.long

VOCABULARY = [
    {"name": "ping", "title": "Ping", "description": "Answers at once."},
    {
        "name": "set_interval",
        "title": "Set the interval",
        "payload_schema": {
            "type": "object",
            "properties": {
                "command": {"const": "set_interval"},
                "interval_s": {"type": "number", "minimum": 1, "maximum": 600},
                "mode": {"enum": ["calm", "busy"]},
                "urgent": {"type": "boolean"},
                "retries": {"type": ["integer", "null"]},
                "names": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                "extra": {"type": "object"},
            },
            "required": ["command", "interval_s", "mode"],
            "additionalProperties": False,
        },
    },
]


@pytest.fixture(scope="module")
def product_id(console: ConsoleBench) -> str:
    return console.product(name="Climate sensor", commands=VOCABULARY)


@pytest.fixture
def device(console: ConsoleBench, product_id: str, request: pytest.FixtureRequest) -> str:
    return console.device(product_id, f"SN-{abs(hash(request.node.name)):x}")


def page_of(device_id: str) -> str:
    return f"/console/devices/{device_id}"


def open_form(page: Page) -> None:
    page.get_by_role("button", name="Send a command").click()
    page.get_by_label("Command", exact=True).select_option("set_interval")


def send(page: Page) -> None:
    page.get_by_role("button", name=re.compile("^Send to")).click()


def deliver(console: ConsoleBench, device_id: str) -> list[dict]:
    """The device polls."""
    return console.poll(device_id).json()["data"]


# --- readings ---------------------------------------------------------------------------------------------------


def test_the_latest_values_stand_with_their_units_and_follow_the_device(open_at, console, device):
    console.post_reading(device, sensor_data={"temperature_celsius": 20.5, "level": 3})
    with open_at(page_of(device)) as page:
        latest = page.get_by_label("Latest values")
        expect(latest).to_contain_text("20.5 °C")
        expect(page.get_by_role("img", name=re.compile("temperature: lowest 20.5, highest 20.5"))).to_be_visible()
        console.post_reading(device, sensor_data={"temperature_celsius": 25.25, "level": 4})
        expect(latest).to_contain_text("25.25 °C")
        expect(page.get_by_role("img", name=re.compile("temperature: lowest 20.5, highest 25.25"))).to_be_visible()


def test_a_range_without_readings_says_when_the_last_one_was_and_leads_there(open_at, console, device):
    console.post_reading(device, recorded_at="2020-05-04T03:02:01Z", sensor_data={"t": 7})
    with open_at(page_of(device)) as page:
        expect(page.get_by_text("Nothing was read in this range")).to_be_visible()
        page.get_by_role("button", name="Show that hour").click()
        expect(page.get_by_role("img", name="t: lowest 7, highest 7")).to_be_visible()
        page.get_by_role("button", name="Back to live").click()
        expect(page.get_by_text("Nothing was read in this range")).to_be_visible()


def test_dragging_over_a_plot_zooms_in_and_buttons_do_it_by_keyboard(open_at, console, device):
    for value in range(5):
        console.post_reading(device, sensor_data={"t": value})
    with open_at(page_of(device), viewport=DESKTOP) as page:
        plot = page.get_by_role("img", name=re.compile("^t: "))
        expect(plot.locator("canvas")).to_be_visible()
        box = plot.bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 55, steps=5)
        page.mouse.up()
        expect(page.get_by_role("button", name="Back to live")).to_be_visible()
        page.get_by_role("button", name="Zoom out").press("Enter")
        page.get_by_role("button", name="Back to live").press("Enter")
        expect(page.get_by_role("button", name="Back to live")).to_have_count(0)


def test_many_readings_are_drawn_as_means_and_say_so(open_at, console, device):
    batch = [{"device_id": device, "sensor_data": {"t": number % 7}} for number in range(500)]
    for _ in range(3):
        assert console.http.post("/sensor-data", json=batch).json()["accepted"] == 500
    with open_at(page_of(device)) as page:
        expect(page.get_by_text("Each point is the mean of")).to_be_visible()


# --- commands ---------------------------------------------------------------------------------------------------


def test_a_command_goes_through_its_states_before_the_readers_eyes(open_at, console, device):
    command_id = console.send(device, "ping")
    with open_at(page_of(device)) as page:
        command = page.get_by_role("listitem").filter(has_text="ping").first
        expect(command).to_contain_text("queued")
        expect(command).to_contain_text("Waiting for the device")
        deliver(console, device)
        expect(command).to_contain_text("delivered")
        console.report(device, command_id, "succeeded", result={"pong": "<b>loud</b>"})
        expect(command).to_contain_text("succeeded")
        expect(command).to_contain_text(re.compile("after [0-9.]+ m?s"))
        command.get_by_text("Payload and result").click()
        expect(command.get_by_label("Result")).to_contain_text("<b>loud</b>")


def test_a_filled_form_is_sent_and_its_answer_appears(open_at, console, device):
    with open_at(page_of(device)) as page:
        open_form(page)
        page.get_by_label("interval_s").fill("2.5")
        page.get_by_label("mode").select_option('"busy"')
        page.get_by_label("urgent").select_option("true")
        page.get_by_label("names").fill("one\ntwo")
        page.get_by_label("extra").fill('{"a": 1}')
        send(page)
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("Waiting for the device")
        [command] = deliver(console, device)
        assert command["command_payload"] == {
            "command": "set_interval",
            "interval_s": 2.5,
            "mode": "busy",
            "urgent": True,
            "names": ["one", "two"],
            "extra": {"a": 1},
        }
        console.report(device, command["id"], "failed", error="no sensor of that name")
        expect(dialog).to_contain_text("failed")


def test_every_field_that_does_not_fit_says_why_and_nothing_is_sent(open_at, console, device):
    with open_at(page_of(device)) as page:
        open_form(page)
        page.get_by_label("interval_s").fill("601")
        page.get_by_label("extra").fill("{")
        page.get_by_label("Ends after").fill("0")
        send(page)
        dialog = page.get_by_role("dialog")
        for text in ("This must be at most 600.", "This is no JSON", "1 to 172800"):
            expect(dialog).to_contain_text(text)
        expect(page.get_by_label("interval_s")).to_be_focused()
        assert faults_of(page) == []
        assert console.http.get(f"/devices/{device}/commands").json()["data"] == []


def test_a_cancel_is_sent_for_the_command_beside_it(open_at, console, device):
    command_id = console.send(device, "ping")
    with open_at(page_of(device)) as page:
        page.get_by_role("button", name="Cancel").click()
        expect(page.get_by_role("button", name="Cancel sent")).to_be_disabled()
        expect(page.get_by_role("listitem").filter(has_text="cancel").first).to_be_visible()
    sent = [one["command_payload"] for one in deliver(console, device)]
    assert {"command": "cancel", "command_id": command_id} in sent


def test_a_product_without_a_vocabulary_takes_json(open_at, console):
    device_id = console.device(console.product(name="Plain"), "SN-plain")
    with open_at(page_of(device_id)) as page:
        page.get_by_role("button", name="Send a command").click()
        expect(page.get_by_text("This product has no vocabulary")).to_be_visible()
        payload = page.get_by_label("Payload")
        payload.fill("[1]")
        send(page)
        expect(page.get_by_role("dialog")).to_contain_text("This must be a JSON object")
        payload.fill('{"command": "anything", "n": 1}')
        send(page)
        expect(page.get_by_role("dialog")).to_contain_text("Waiting for the device")
    assert deliver(console, device_id)[0]["command_payload"] == {"command": "anything", "n": 1}


def test_a_payload_of_256_kb_is_refused_with_the_limit_before_it_is_sent(open_at, console, device):
    with open_at(page_of(device)) as page:
        page.get_by_role("button", name="Send a command").click()
        page.get_by_role("tab", name="JSON").click()
        page.get_by_label("Payload").fill(json.dumps({"command": "x", "data": "y" * 256 * 1024}))
        send(page)
        expect(page.get_by_role("dialog")).to_contain_text("the service takes 66 kB")


def test_a_result_of_200_kb_is_shown_in_part_and_whole_on_demand(open_at, console, device):
    command_id = console.send(device, "ping")
    deliver(console, device)
    assert console.report(device, command_id, "succeeded", result={"data": "z" * 200_000}).status_code == 200
    with open_at(page_of(device)) as page:
        page.get_by_text("Payload and result").click()
        page.get_by_role("button", name=re.compile("Show all 200 kB")).click()
        expect(page.get_by_label("Result")).to_contain_text("z" * 1000)


def test_what_the_service_refuses_stands_beside_the_form(open_at, console, device):
    for number in range(100):
        console.send(device, f"c{number}")
    with open_at(page_of(device), expected=[REFUSED]) as page:
        page.get_by_role("button", name="Send a command").click()
        send(page)
        expect(page.get_by_role("alert")).to_contain_text("100")


def test_two_people_at_one_device_see_the_same(open_at, console, device):
    with open_at(page_of(device)) as one, open_page_again(console, one, device) as other:
        one.get_by_role("button", name="Send a command").click()
        send(one)
        expect(other.get_by_role("listitem").filter(has_text="ping").first).to_be_visible()


@contextmanager
def open_page_again(console: ConsoleBench, page: Page, device: str) -> Iterator[Page]:
    """A second tab of another person, with a session of its own."""
    browser = page.context.browser
    assert browser is not None
    context = browser.new_context(base_url=console.service.base_url)
    try:
        second = context.new_page()
        second.goto(console.link())
        second.goto(page_of(device))
        second.get_by_role("heading", name="Commands").wait_for()
        yield second
    finally:
        context.close()


def test_a_device_that_somebody_removed_meanwhile_says_so(open_at, console, device):
    with open_at(page_of(device), expected=[REFUSED]) as page:
        expect(page.get_by_role("heading", name="About")).to_be_visible()
        console.http.delete(f"/onboarding/device/{device}")
        page.reload()
        expect(page.get_by_role("heading", name="This device is not there")).to_be_visible()
        page.get_by_role("link", name="All devices").click()
        expect(page.get_by_role("heading", name="Devices", level=1)).to_be_visible()


# --- label ------------------------------------------------------------------------------------------------------


def test_the_label_of_a_device_is_drawn_and_says_its_own_identifier(browser, tmp_path):
    with running_console() as own:  # its processes end with it
        device_id = own.device(identifier="SN-label")
        with open_page(browser, own, page_of(device_id), tmp_path / "failed.png") as page:
            page.get_by_role("button", name="Show its label").click()
            expect(page.get_by_label("The label's text")).to_contain_text("SN-label")
            page.wait_for_function("document.querySelector('.device-label img').naturalWidth > 0")
            scanned = page.get_by_role("img", name=re.compile("^QR code with the text")).screenshot()
            assert faults_of(page) == []
        answer = own.http.post("/_emulator/labels/decode", content=scanned, headers={"content-type": "image/png"})
        assert answer.status_code == 200, answer.text
        [code] = answer.json()["codes"]
        assert code["label"]["device_identifier"] == "SN-label"


# --- as other programs send it ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["curl", "Python"])
def test_the_lines_to_paste_send_the_same_command(open_at, console, device, kind):
    with open_at(page_of(device)) as page:
        page.get_by_role("button", name="Send a command").click()
        page.get_by_role("tab", name="JSON").click()
        page.get_by_label("Payload").fill(
            '{"command": "say", "text": "it\'s \\"quoted\\" $HOME `x` ü", "yes": true, "no": null}'
        )
        page.get_by_role("tab", name="JSON").press("ArrowRight")
        if kind == "Python":
            page.get_by_role("tab", name="As curl").press("ArrowRight")
        text = page.locator(f'pre[aria-label="As {kind}"]').text_content()

    program = ["bash", "-c", text] if kind == "curl" else [sys.executable, "-c", text]
    environment = {"SECRET_KEY": console.service.secret_key.reveal(), "PATH": "/usr/bin:/bin", "NO_PROXY": "*"}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    [command] = deliver(console, device)
    assert command["command_payload"] == {
        "command": "say",
        "text": 'it\'s "quoted" $HOME `x` ü',
        "yes": True,
        "no": None,
    }


# --- several devices --------------------------------------------------------------------------------------------


def test_a_selection_and_a_whole_product_get_a_command_each(open_at, console):
    product_id = console.product(name="Many", commands=VOCABULARY)
    devices = [console.device(product_id, f"MANY-{number}") for number in range(4)]
    with open_at(f"/?product_id={product_id}", viewport=DESKTOP) as page:
        page.get_by_label("Choose MANY-1").check()
        page.get_by_label("Choose MANY-2").check()
        page.get_by_role("button", name="Send a command to 2 devices").click()
        send(page)
        expect(page.get_by_role("dialog")).to_contain_text("sent to 2 of 2 devices")
        page.get_by_role("button", name="Close").click()
        page.get_by_role("button", name="Clear the choice").click()
        page.get_by_role("button", name="Send a command to all 4 of it").click()
        send(page)
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("sent to 4 of 4 devices")
        [command] = deliver(console, devices[0])
        console.report(devices[0], command["id"], "succeeded")
        expect(dialog).to_contain_text("1 succeeded")
    assert [len(deliver(console, one)) for one in devices] == [0, 2, 2, 1]


# --- people -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("look", ALL_LOOKS)
@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_axe_finds_nothing(open_at, console, device, look, viewport):
    console.post_reading(device, sensor_data={"temperature_celsius": 20.5})
    console.report(device, console.send(device, "ping"), "succeeded", result={"pong": True})
    console.send(device, "x" * 500)
    with open_at(page_of(device), look=look, viewport=viewport) as page:
        expect(page.get_by_role("img", name=re.compile("temperature")).locator("canvas")).to_be_visible()
        assert faults_of(page) == []
        assert has_no_overflow(page)
        open_form(page)
        assert faults_of(page) == []
        assert has_no_overflow(page)


def test_a_name_of_ten_thousand_characters_and_markup_breaks_nothing(open_at, console, product_id):
    name = "<script>alert(1)</script>" + "long-" * 2000
    body = {"user_id": "u", "product_id": product_id, "device_identifier": "SN-long", "device_name": name}
    device_id = console.http.post("/onboarding/device", json=body).json()["device_id"]
    with open_at(page_of(device_id), viewport=PHONE) as page:
        expect(page.get_by_role("heading", level=1)).to_contain_text("<script>alert(1)</script>long-")
        assert has_no_overflow(page)
        page.get_by_text("10025 characters").click()
        assert has_no_overflow(page)
