"""The page that makes labels, in a real Chromium; what it downloads is read by zbarimg and by poppler."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.conftest import require_program
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

PUBLIC_KEY = "ed25519:" + "A" * 43


@pytest.fixture(scope="module", autouse=True)
def product(console: ConsoleBench) -> str:
    return console.product(name="Climate sensor")


def zbarimg(picture: Path) -> str:
    done = subprocess.run(
        [require_program("zbarimg", "zbar-tools"), "-q", "--raw", str(picture)], capture_output=True, check=True
    )
    return done.stdout.decode()


def download(page: Page, button: str, into: Path) -> Path:
    with page.expect_download() as begun:
        page.get_by_role("button", name=button).click()
    begun.value.save_as(into)
    return into


def test_labels_are_previewed_and_downloaded_and_a_foreign_decoder_reads_them(open_at, product, tmp_path):
    with open_at(f"/console/labels?product_id={product}") as page:
        page.get_by_label("How many").fill("3")
        page.get_by_label("Identifiers").fill("DOOR-{serial:03d}")
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_role("heading", name="3 labels")).to_be_visible()
        expect(page.get_by_alt_text("QR label of DOOR-003")).to_be_visible()

        archive = download(page, "Download as zip", tmp_path / "labels.zip")
        with zipfile.ZipFile(archive) as files:
            files.extractall(tmp_path / "labels")
        for number in (1, 2, 3):
            said = json.loads(zbarimg(tmp_path / "labels" / f"DOOR-{number:03d}.png"))
            assert said == {"v": 1, "product_id": product, "device_identifier": f"DOOR-{number:03d}"}

        sheet = download(page, "Download the sheet", tmp_path / "labels.pdf")
        subprocess.run(
            [require_program("pdftoppm", "poppler-utils"), "-r", "200", "-png", sheet, tmp_path / "page"], check=True
        )
        assert zbarimg(next(tmp_path.glob("page*.png"))).count("DOOR-") == 3


def test_a_product_gets_a_key_and_its_labels_are_signed_from_then_on(open_at, console, tmp_path):
    product_id = console.product(name="Signs soon")
    with open_at(f"/console/labels?product_id={product_id}") as page:
        expect(page.get_by_text("its labels are not signed, so anybody can make one")).to_be_visible()
        page.get_by_role("button", name="Give it a key").click()
        expect(page.get_by_text("also those that are printed already")).to_be_visible()
        page.get_by_role("button", name="Make the key").click()
        expect(page.get_by_text("signed by the product's key hmac-sha256:id=")).to_be_visible()
        archive = download(page, "Download as zip", tmp_path / "labels.zip")

        with zipfile.ZipFile(archive) as files:
            (tmp_path / "one.png").write_bytes(files.read("SIM-000001.png"))
        scanned = console.http.post("/onboarding/scan-qr", json={"qr_data": zbarimg(tmp_path / "one.png").strip()})
        assert scanned.status_code == 200, scanned.text
        page.get_by_label("Signed by the product's key").uncheck()
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_text("not signed", exact=True)).to_be_visible()


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("How many", "0", "is 0; give 1 to 1,000"),
        ("How many", "1000000", "for more run 'fleet-simulator labels make --product-id"),
        ("How many", "many", "must be a valid integer"),
        ("First serial", "-1", "give 0 or more"),
        ("Edge of a code", "3", "size_mm 8.3 or dpi"),
        ("Printer", "7", "give 50 to 4800"),
        ("Identifiers", "{oops}", "only {serial} with a format"),
    ],
)
def test_what_cannot_be_made_says_what_to_write_instead(open_at, product, field, value, words):
    with open_at(f"/console/labels?product_id={product}", expected=[REFUSED]) as page:
        expect(page.get_by_role("heading", name="12 labels")).to_be_visible()
        page.get_by_label(field).fill(value)
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_role("alert")).to_contain_text(words)


def test_a_product_whose_private_key_is_elsewhere_says_where_its_labels_are_made(open_at, console):
    product_id = console.product(name="Ed25519", label_key=PUBLIC_KEY)
    with open_at(f"/console/labels?product_id={product_id}", expected=[REFUSED]) as page:
        expect(page.get_by_role("alert")).to_contain_text("make its labels where the private key is")


def test_without_a_product_the_page_makes_one(browser, tmp_path):
    with running_console() as bench, open_page(browser, bench, "/console/labels", tmp_path / "failed.png") as page:
        expect(page.get_by_role("heading", name="No product yet")).to_be_visible()
        assert faults_of(page) == []
        page.get_by_label("Name of the product").fill("First one")
        page.get_by_role("button", name="Make the product").click()
        expect(page.get_by_role("heading", name="12 labels")).to_be_visible()
        assert [one["name"] for one in bench.http.get("/products").json()["data"]] == ["First one"]


def test_a_session_that_ended_is_said_and_what_was_typed_stays(open_at, product):
    with open_at(f"/console/labels?product_id={product}", expected=[REFUSED]) as page:
        expect(page.get_by_role("heading", name="12 labels")).to_be_visible()
        page.get_by_label("Identifiers").fill("TYPED-{serial}")
        page.context.clear_cookies()
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_role("alert").filter(has_text="No labels were made")).to_be_visible()
        expect(page.get_by_text("fleet-simulator console").first).to_be_visible()
        expect(page.get_by_label("Identifiers")).to_have_value("TYPED-{serial}")


@pytest.mark.parametrize("look", ALL_LOOKS)
@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_axe_finds_nothing(open_at, product, look, viewport):
    with open_at(f"/console/labels?product_id={product}", look=look, viewport=viewport) as page:
        expect(page.get_by_role("heading", name="12 labels")).to_be_visible()
        assert faults_of(page) == []
        assert has_no_overflow(page)
