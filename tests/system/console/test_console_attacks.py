"""What devices, servers, folders of runs and foreign pages may try on somebody who looks at the console."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.chromium import tab
from tests.support.node_packages import node_with
from tests.support.service_running import Bench
from tests.system.console.conftest import REFUSED, OpenTab

pytestmark = pytest.mark.long

HOSTILE = "</script><img src=x onerror=hacked()><svg onload=hacked()>{{7*7}}${hacked()}"
FOLDER = Path(__file__).parents[3] / "simulator"
VENDORED = {
    "console/static/vendor/htm-preact.module.js": "htm/preact/standalone.module.js",
    "console/static/vendor/htm.LICENSE.txt": "htm/LICENSE",
    "report_parts/static/uPlot.iife.min.js": "uplot/dist/uPlot.iife.min.js",
    "report_parts/static/uPlot.min.css": "uplot/dist/uPlot.min.css",
    "report_parts/static/uPlot.LICENSE.txt": "uplot/LICENSE",
}


@pytest.fixture
def device_id(console: Bench) -> str:
    """A device whose every text is hostile, and a request and a command that are."""
    product = console.product(name=HOSTILE, description=HOSTILE, commands=[{"name": HOSTILE, "title": HOSTILE}])
    body = {"user_id": HOSTILE, "product_id": product, "device_name": HOSTILE, "device_identifier": HOSTILE}
    device = str(console.http.post("/onboarding/device", json=body).json()["device_id"])
    console.http.put(f"/devices/{device}", json={"firmware_version": HOSTILE})
    console.post_reading(device, sensor_data={HOSTILE: 1.5})
    command = console.send(device, HOSTILE)
    console.poll(device)
    console.report(device, command, "failed", error={"code": HOSTILE, "message": HOSTILE})
    console.http.get("/devices", params={"device_identifier": HOSTILE}, headers={"x-note": HOSTILE})
    return device


@pytest.mark.parametrize(
    "page_of", ["/", "/devices/{}", "/labels", "/requests", "/faults", "/service", "/devices/<b>x"]
)
def test_hostile_text_stays_text(open_tab: OpenTab, device_id: str, page_of: str) -> None:
    with open_tab(expected=[REFUSED]) as page:
        page.evaluate("() => { window.hacked = () => { document.title = 'hacked' } }")
        page.goto(f"/console/#{page_of.format(device_id)}")
        page.get_by_role("heading", level=1).wait_for()
        if page_of == "/requests":
            page.get_by_role("button", name="GET /devices?").first.click()
            expect(page.get_by_role("dialog")).to_contain_text("onerror=hacked()")
        if page_of.startswith("/devices/{"):
            page.get_by_role("button", name="Send a command").click()
            expect(page.get_by_role("heading", level=1)).to_contain_text("onerror=hacked()")
        page.wait_for_timeout(500)
        assert page.title() != "hacked"
        assert page.locator("main img[src=x], main svg[onload], main script").count() == 0


def test_a_report_of_a_run_reaches_nothing(open_tab: OpenTab, console: Bench, places: Path) -> None:
    run = places / "runs" / "hostile"
    run.mkdir(parents=True)
    record = {
        "name": HOSTILE,
        "target": HOSTILE,
        "began_at": "2026-01-01T00:00:00Z",
        "ended_at": "2026-01-01T00:00:01Z",
    }
    verdict = {"word": "passed", "exit_code": 0, "sentences": [HOSTILE]}
    (run / "run.json").write_text(json.dumps({**record, "verdict": verdict}))
    (run / "report.html").write_text(
        """<!doctype html><p id=said>shown</p><script>
        const said = [];
        const attempt = async (name, action) => { try { await action(); said.push(name) } catch {} };
        (async () => {
          await attempt("storage", () => sessionStorage.getItem("console-token"));
          await attempt("parent", () => parent.document.title);
          await attempt("fetch", () => fetch("BASE/_emulator/health", {mode: "no-cors"}));
          await attempt("top", () => { top.location = "about:blank" });
          said.push("end");
          document.getElementById("said").textContent = said.join(" ");
        })();</script>""".replace("BASE", console.service.base_url)
    )
    with open_tab(
        expected=["Content Security Policy", "violates", "sandboxed", "Failed", "navigate", "blocked"]
    ) as page:
        page.goto("/console/#/runs/hostile")
        expect(page.frame_locator("iframe").locator("#said")).to_have_text("end")
        assert page.url.endswith("#/runs/hostile")


def test_a_foreign_page_gets_nothing_even_where_the_console_is_open(
    browser: Browser, console: Bench, tmp_path: Path
) -> None:
    base_url = console.service.base_url
    hostile = "http://localhost:9/"  # another origin of the same machine
    with tab(browser, tmp_path / "failed.png", expected=[""]) as page:
        page.route(hostile, lambda route: route.fulfill(body="<!doctype html>", content_type="text/html"))
        page.goto(hostile)
        for path in ("/_emulator/accounts", "/_emulator/runs", "/devices", "/console/"):
            outcome = page.evaluate(
                "url => fetch(url, {headers: {'X-Emulator-Token': 'x'}}).then(() => 'read', () => 'refused')",
                base_url + path,
            )
            assert outcome == "refused", path
        page.evaluate(
            "url => document.body.append(Object.assign(document.createElement('iframe'), {src: url}))",
            f"{base_url}/console/",
        )
        page.wait_for_timeout(1000)
        assert "Console" not in page.frames[-1].content()


def test_vendored_files_are_those_of_their_packages() -> None:
    node_with(Path(__file__).parent)
    packages = Path(__file__).parent / "node_modules"
    for ours, theirs in VENDORED.items():
        assert (FOLDER / ours).read_bytes() == (packages / theirs).read_bytes(), ours
