"""A walk through the console for who tests a service: runs, their reports, the service itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.support.chromium import tab
from tests.support.service_running import Bench
from tests.system.console.conftest import REFUSED, OpenTab, check_looks, faults_of

pytestmark = pytest.mark.long

SCENARIO = """\
scenario: short
fleet:
  product: climate-node
  devices: 4
  models:
    - name: climate
      signals: {temperature_celsius: {kind: constant, value: 21}}
      telemetry: {every_s: 1s}
phases:
  - {name: hold, kind: hold, duration_s: 600s}
thresholds:
  - audit.lost == 0
"""


def test_a_run_is_started_followed_stopped_and_read(open_tab: OpenTab, places: Path) -> None:
    (places / "scenarios" / "short.yaml").write_text(SCENARIO)
    (places / "scenarios" / "broken.yaml").write_text("scenario: broken\nfleet: {devices: many}\n")
    (places / "scenarios" / "away.yaml").write_text(f"{SCENARIO}target: {{base_url: 'https://example.com'}}\n")
    # axe asks the report's frame, which has an origin of its own
    with open_tab(expected=[REFUSED, "does not match the recipient window's origin"]) as page:
        page.goto("/console/#/runs")
        expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
        page.get_by_role("button", name="Start a run").click()
        page.get_by_label("Scenario").select_option("away.yaml")
        page.get_by_role("button", name="Start it").click()
        expect(page.get_by_role("alert")).to_contain_text("target.base_url is 'https://example.com'")
        page.get_by_label("Scenario").select_option("broken.yaml")
        page.get_by_role("button", name="Start it").click()
        expect(page.get_by_role("alert")).to_contain_text("line 2")
        assert faults_of(page) == []
        page.get_by_label("Scenario").select_option("short.yaml")
        page.get_by_role("button", name="Start it").click()
        expect(page.get_by_text("running", exact=True)).to_be_visible()
        expect(page.get_by_text(re.compile("Second [1-9]"))).to_be_visible()
        check_looks(page)
        page.get_by_role("button", name="Stop it").click()
        expect(page.get_by_text("interrupted", exact=True)).to_be_visible()
        report = page.frame_locator("iframe")
        expect(report.get_by_role("heading", name="The run was cut short.")).to_be_visible()
        check_looks(page)
        with page.expect_download() as download:
            page.get_by_role("button", name="summary.json").click()
        assert '"' in Path(download.value.path()).read_text()
        page.get_by_role("link", name="Runs").last.click()
        expect(page.get_by_role("row", name=re.compile("^short-"))).to_contain_text("interrupted")
        check_looks(page)


def test_the_service_is_steered(open_tab: OpenTab, console: Bench) -> None:
    with open_tab() as page:
        page.goto("/console/#/service")
        page.get_by_role("button", name="Freeze").click()
        expect(page.get_by_text("stands still")).to_be_visible()
        before = console.http.get("/_emulator/clock").json()["time"]
        page.get_by_label("Advance by, s").fill("3600")
        page.get_by_role("button", name="Advance").click()
        expect(page.get_by_role("button", name="Advance")).to_be_enabled()
        assert console.http.get("/_emulator/clock").json()["time"] > before
        check_looks(page)
        page.get_by_role("button", name="Back to the machine's time").click()
        expect(page.get_by_text("the machine's time", exact=True)).to_be_visible()
        console.product(name="Kept")
        page.get_by_label("Name").fill("first")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("first", exact=True)).to_be_visible()
        page.on("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Reset the service").click()
        expect(page.get_by_text("The service is as new.")).to_be_visible()
        assert console.http.get("/products").json()["data"] == []
        page.get_by_role("button", name="Load first").click()
        expect(page.get_by_text("Everything is as it was in first.")).to_be_visible()
        assert "Kept" in [one["name"] for one in console.http.get("/products").json()["data"]]
        page.get_by_role("button", name="Delete first").click()
        expect(page.get_by_text("None yet.")).to_be_visible()


def test_a_service_that_ends_is_said_and_found_again(browser: Browser, tmp_path: Path) -> None:
    with RunningService(ServiceConfig(console=True)) as service:
        link = service.console_url or ""
        with tab(browser, tmp_path / "failed.png", expected=[REFUSED]) as page:
            page.goto(link)
            expect(page.get_by_role("heading", name="No devices yet")).to_be_visible()
            assert faults_of(page) == []
            service.stop()
            expect(page.get_by_role("alert").first).to_contain_text("The service does not answer.")
            assert faults_of(page) == []
