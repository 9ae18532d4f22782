"""The page that scans labels, in a real Chromium: from a photograph to a registered device, and what is no label."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from PIL import Image, ImageFilter
from playwright.sync_api import Page, expect

from simulator.console import links
from simulator.labels.payload import label_text
from tests.chromium import another_chromium
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
from tests.label_pictures import as_bytes, draw_code, photograph

pytestmark = pytest.mark.long

SIGNED = "hmac-sha256:" + "A" * 43
JPEG = "image/jpeg"
GREY = as_bytes(Image.new("L", (640, 480), 130), "JPEG")
FAKE_CAMERA = "--use-fake-device-for-media-stream"


@pytest.fixture(scope="module", autouse=True)
def product(console: ConsoleBench) -> str:
    return console.product(name="Climate sensor", category="sensor")


@pytest.fixture
def label(product: str, request: pytest.FixtureRequest) -> str:
    """A label that no other test registers."""
    return label_text(product, re.sub(r"\W+", "-", request.node.name)[:60])


def drop(page: Page, picture: bytes, name: str = "label.jpg", kind: str = JPEG) -> None:
    page.get_by_label("Choose a file").set_input_files({"name": name, "mimeType": kind, "buffer": picture})


def test_a_photograph_becomes_a_registered_device_and_is_removed_again(open_at, console, label, product):
    identifier = json.loads(label)["device_identifier"]
    with open_at("/console/scan") as page:
        drop(page, as_bytes(photograph([label]), "JPEG"))
        expect(page.get_by_text("Valid label")).to_be_visible()
        expect(page.get_by_text("The device is not registered yet")).to_be_visible()
        expect(page.get_by_role("heading", name="Climate sensor")).to_be_visible()

        page.get_by_label("User", exact=True).fill("anna")
        page.get_by_label("Name of the device").fill("Kitchen")
        page.get_by_role("button", name="Register", exact=True).click()
        expect(page.get_by_text("Registered as Kitchen for anna")).to_be_visible()
        (device,) = console.http.get("/onboarding/user/anna/devices").json()["data"]
        assert (device["device_identifier"], device["product_id"]) == (identifier, product)
        expect(page.get_by_text("POST /onboarding/device")).to_be_visible()

        page.get_by_role("button", name="List the user's devices").click()
        expect(page.get_by_role("heading", name="1 device of anna")).to_be_visible()
        page.get_by_role("button", name="Remove").click()
        expect(page.get_by_text("Removed: its open commands are canceled")).to_be_visible()
        assert console.http.get(f"/devices/{device['device_id']}").status_code == 404
        expect(page.get_by_role("heading", name="4 requests")).to_be_visible()
        expect(page.get_by_text("No body.")).to_be_visible()


def test_of_five_labels_each_can_be_chosen(open_at, product):
    texts = [label_text(product, f"FIVE-{number}") for number in range(1, 6)]
    with open_at("/console/scan") as page:
        drop(page, as_bytes(photograph(texts), "PNG"), "five.png", "image/png")
        expect(page.get_by_text("5 codes in this picture")).to_be_visible()
        page.get_by_role("button", name="4. FIVE-4").click()
        expect(page.get_by_label("Name of the device")).to_have_value("FIVE-4")
        expect(page.get_by_role("button", name="4. FIVE-4")).to_have_attribute("aria-pressed", "true")


def test_a_dropped_and_a_pasted_picture_are_read(open_at, product):
    script = """([selector, kind, bytes]) => {
        const file = new File([new Uint8Array(bytes)], "label.png", {type: "image/png"});
        const data = new DataTransfer();
        data.items.add(file);
        const event = kind === "drop" ? new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true})
            : new ClipboardEvent("paste", {clipboardData: data, bubbles: true});
        document.querySelector(selector).dispatchEvent(event);
    }"""
    with open_at("/console/scan") as page:
        expect(page.get_by_text("Drop a photograph here, or")).to_be_visible()
        for identifier, selector, kind in (("DROPPED", ".drop", "drop"), ("PASTED", "body", "paste")):
            picture = as_bytes(photograph([label_text(product, identifier)]), "PNG")
            page.evaluate(script, [selector, kind, list(picture)])
            expect(page.get_by_label("Name of the device")).to_have_value(identifier)


def test_the_text_of_a_hand_scanner_is_checked_as_it_is(open_at, label):
    with open_at("/console/scan", expected=[REFUSED]) as page:
        page.get_by_role("tab", name="Text").click()
        page.get_by_label("Text of a label").fill(label)
        page.get_by_role("button", name="Check it").click()
        expect(page.get_by_text("Valid label")).to_be_visible()
        page.get_by_label("Text of a label").fill("https://www.example.com/")
        page.get_by_role("button", name="Check it").click()
        expect(page.get_by_text("This is no device label")).to_be_visible()


@pytest.mark.parametrize(
    ("picture", "title", "words"),
    [
        (
            as_bytes(Image.new("L", (640, 480), 130), "JPEG"),
            "No label was read",
            "hold the label so that it fills half",
        ),
        (b"\xff" * 25_000_001, "This picture could not be read", "has 25 MB, and at most 25 MB are taken"),
        (b"no picture at all", "This picture could not be read", "give a JPEG, PNG, WebP"),
        (b"", "This picture could not be read", "empty; send the picture's bytes"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "This picture could not be read", "save or share it as JPEG"),
    ],
    ids=["no label", "too large", "text", "empty", "heic"],
)
def test_a_picture_that_gives_no_label_says_why_and_what_to_do(open_at, picture, title, words):
    with open_at("/console/scan", expected=[REFUSED]) as page:
        drop(page, picture)
        expect(page.get_by_text(title)).to_be_visible()
        expect(page.get_by_text(words)).to_be_visible()


def test_a_code_that_nobody_reads_is_marked_and_said(open_at, label):
    code = draw_code(label, 8)
    worn = code.filter(ImageFilter.GaussianBlur(5))
    with open_at("/console/scan") as page:
        drop(page, as_bytes(worn, "PNG"))
        expect(page.get_by_text("No label was read")).to_be_visible()


@pytest.mark.parametrize(
    ("text", "title", "next_step"),
    [
        ("{signed}", "The label is not signed", "Make a signed one on the page Labels"),
        ("{nobody}", "No such product in this account", "Choose another account"),
        ("{}", "This is no device label", "made on the page Labels"),
    ],
    ids=["unsigned", "unknown product", "no label"],
)
def test_a_label_that_the_service_refuses_says_why_and_what_to_do(open_at, console, text, title, next_step):
    signed = label_text(console.product(name="Door", label_key=SIGNED), "D-1")
    written = text.replace("{signed}", signed).replace("{nobody}", label_text("nobody", "D-1"))
    with open_at("/console/scan", expected=[REFUSED]) as page:
        drop(page, as_bytes(photograph([written]), "PNG"))
        notice = page.get_by_role("alert").filter(has_text=title)
        expect(notice).to_contain_text(next_step)
        expect(page.get_by_role("heading", name="Onboarding")).to_have_count(0)


def test_a_device_of_somebody_else_is_refused_with_the_next_step(open_at, console, product):
    console.device(product, "TAKEN-1", "bert")
    with open_at("/console/scan", expected=[REFUSED]) as page:
        drop(page, as_bytes(photograph([label_text(product, "TAKEN-1")]), "PNG"))
        expect(page.get_by_text("The device is registered already")).to_be_visible()
        page.get_by_label("User", exact=True).fill("carla")
        page.get_by_role("button", name="Register", exact=True).click()
        expect(page.get_by_text("and remove it there first")).to_be_visible()


def test_a_session_that_ended_is_said_and_nothing_is_lost(open_at, console, label):
    with open_at("/console/scan", expected=[REFUSED]) as page:
        drop(page, as_bytes(photograph([label]), "PNG"))
        expect(page.get_by_text("Valid label")).to_be_visible()
        page.context.clear_cookies()
        page.get_by_label("Name of the device").fill("Typed before")
        page.get_by_role("button", name="Register", exact=True).click()
        expect(page.get_by_role("alert").filter(has_text="Not done")).to_be_visible()
        expect(page.get_by_text("fleet-simulator console").first).to_be_visible()
        expect(page.get_by_label("Name of the device")).to_have_value("Typed before")


def test_what_a_label_says_is_text_and_never_markup(open_at, product):
    markup = "<img src=x onerror=alert(1)>"
    with open_at("/console/scan") as page:
        drop(page, as_bytes(photograph([label_text(product, markup)]), "PNG"))
        expect(page.get_by_text("Valid label")).to_be_visible()
        expect(page.get_by_label("Name of the device")).to_have_value(markup)
        expect(page.locator("main img")).to_have_count(1)


def test_the_live_camera_finds_a_label_by_itself(browser, console, product, tmp_path):
    """Chromium plays a file to the page in place of a camera."""
    frame = Image.new("L", (1280, 720), 150)
    code = draw_code(label_text(product, "CAMERA-1"), 6)
    frame.paste(code, (300, 150))
    film = tmp_path / "label.mjpeg"
    film.write_bytes(as_bytes(frame.convert("RGB"), "JPEG") * 3)
    with another_chromium(browser, FAKE_CAMERA, f"--use-file-for-fake-video-capture={film}") as started:
        picture = tmp_path / "failed.png"
        with open_page(started, console, "/console/scan", picture, permissions=["camera"]) as page:
            page.get_by_role("tab", name="Live camera").click()
            page.get_by_role("button", name="Start the camera").click()
            expect(page.get_by_label("Name of the device")).to_have_value("CAMERA-1")
            expect(page.get_by_role("button", name="Start the camera")).to_be_visible()  # and it is off


def test_a_camera_that_is_not_allowed_says_what_to_do(browser, console, tmp_path):
    with (
        another_chromium(browser, FAKE_CAMERA, "--deny-permission-prompts") as started,
        open_page(started, console, "/console/scan", tmp_path / "failed.png") as page,
    ):
        page.get_by_role("tab", name="Live camera").click()
        page.get_by_role("button", name="Start the camera").click()
        expect(page.get_by_role("alert")).to_contain_text("Allow it for this page")
        expect(page.get_by_role("button", name="Start the camera")).to_be_visible()


def test_a_phone_is_led_to_an_address_of_this_machine_by_a_code(browser, tmp_path, monkeypatch):
    monkeypatch.setattr(links, "network_addresses", lambda: ["192.168.1.20"])
    with running_console(host="0.0.0.0") as bench, open_page(browser, bench, "/console/scan", tmp_path / "f") as page:
        page.get_by_role("button", name="Scan with a phone").click()
        code = page.get_by_alt_text("QR code of the address below")
        expect(code).to_be_visible()
        shown = page.get_by_role("dialog").locator("pre").first.inner_text()
        assert re.fullmatch(r"http://192\.168\.1\.20:[0-9]+/\?token=\S+", shown)
        drawn = tmp_path / "code.png"
        drawn.write_bytes(code.screenshot())
        assert read_by_zbarimg(drawn) == shown


def test_a_service_that_no_phone_reaches_says_how_to_start_it(open_at):
    with open_at("/console/scan") as page:
        page.get_by_role("button", name="Scan with a phone").click()
        expect(page.get_by_text("fleet-simulator up --host 0.0.0.0")).to_be_visible()


def read_by_zbarimg(picture: Path) -> str:
    from tests.conftest import require_program

    done = subprocess.run(
        [require_program("zbarimg", "zbar-tools"), "-q", "--raw", str(picture)], capture_output=True, check=True
    )
    return done.stdout.decode().strip()


@pytest.mark.parametrize("look", ALL_LOOKS)
@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_axe_finds_nothing(open_at, product, look, viewport):
    texts = [label_text(product, "AXE-1"), "no label"]
    with open_at("/console/scan", look=look, viewport=viewport, expected=[REFUSED]) as page:
        expect(page.get_by_text("No label yet")).to_be_visible()
        assert faults_of(page) == []
        drop(page, as_bytes(photograph(texts), "PNG"))
        expect(page.get_by_role("heading", name="1 request")).to_be_visible()
        assert faults_of(page) == []
        page.get_by_role("button", name="2. no label").click()
        expect(page.get_by_text("This is no device label")).to_be_visible()
        assert faults_of(page) == []
        assert has_no_overflow(page)
