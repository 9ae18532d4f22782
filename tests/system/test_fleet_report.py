"""The report of a fleet's run in a real browser: plots are drawn, keys work, nothing is loaded, it fits a phone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simulator.fleet.report.making import make_reports
from tests.support.chromium import chromium, find_chromium, tab
from tests.support.fleet_runs import Shape, a_run, kept

# How many pixels of a canvas are not the colour of the first one.
DRAWN = """canvas => {
  const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let other = 0;
  for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 0) other += 1;
  return other / (data.length / 4);
}"""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory) -> Path:
    record, seconds = a_run(Shape(duration_s=60, rate_per_s=40))
    folder = kept(tmp_path_factory.mktemp("report") / "run", record, seconds)
    make_reports(folder)
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser():
    with chromium(find_chromium()) as started:
        yield started


def test_the_page_draws_every_plot_and_loads_nothing(browser, page_file, tmp_path):
    asked: list[str] = []
    with tab(browser, tmp_path / "page.png") as page:
        page.on("request", lambda request: asked.append(request.url))
        page.goto(page_file.as_uri())
        assert page.locator("h1").inner_text() == "Data was lost or changed."
        canvases = page.locator(".plot canvas").element_handles()
        assert len(canvases) == page.locator(".plot").count() >= 8
        assert [canvas.evaluate(DRAWN) > 0.005 for canvas in canvases] == [True] * len(canvases)
        assert page.locator(".strip-row.fault i").all_inner_texts() == ["disconnect storm", "link"]
        assert page.locator(".strip-row.gap i").count() == 1
        before = page.locator('[data-plot="band"] canvas').evaluate("canvas => canvas.toDataURL()")
        page.get_by_role("radio", name="service").check()
        assert page.locator('[data-plot="band"] canvas').evaluate("canvas => canvas.toDataURL()") != before
        page.get_by_role("combobox", name="Operation").select_option("http.sensor_data")
        assert "limited (429)" in page.locator('[data-plot="rate"] + .readout').inner_text()
        page.get_by_role("combobox", name="Operation").select_option("http.report")
        assert "limited (429)" not in page.locator('[data-plot="rate"] + .readout').inner_text()
    assert asked == [page_file.as_uri()]


def test_keys_move_the_cursor_zoom_and_sort(browser, page_file, tmp_path):
    with tab(browser, tmp_path / "page.png") as page:
        page.goto(page_file.as_uri())
        plot, readout = page.locator('[data-plot="rate"]'), page.locator('[data-plot="rate"] + .readout')
        plot.focus()
        page.keyboard.press("End")
        assert "at 0:59" in readout.inner_text()
        page.keyboard.press("ArrowLeft")
        assert "at 0:58" in readout.inner_text()
        band = page.locator('[data-plot="band"] + .readout')
        assert "at 0:58" in band.inner_text(), "all plots show the same instant"
        page.get_by_role("group", name="Response time.").hover()
        shown, besides = (re.findall(r"at \d:\d\d", each.inner_text()) for each in (readout, band))
        assert shown == besides != []
        everything = page.get_by_role("button", name="Show the whole run")
        assert not everything.is_visible()
        page.keyboard.press("End")
        page.keyboard.press("+")
        assert everything.is_visible()
        assert page.locator(".strip-row.fault i").all_inner_texts() == ["link"], "the other fault is out of sight"
        page.keyboard.press("Escape")
        assert not everything.is_visible()
        # Not under the bar that stays on top.
        plot.evaluate("place => place.scrollIntoView({block: 'center', behavior: 'instant'})")
        box = plot.bounding_box()
        page.mouse.move(box["x"] + 150, box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + 400, box["y"] + 60)
        page.mouse.up()
        assert everything.is_visible()
        everything.click()
        assert not everything.is_visible()
        column = page.locator("#percentiles th", has_text="Count").first
        column.get_by_role("button").press("Enter")
        assert column.get_attribute("aria-sort") == "descending"
        assert page.locator("#percentiles tbody tr").first.locator(".device").inner_text() == "http.poll"
        column.get_by_role("button").press("Enter")
        assert page.locator("#percentiles tbody tr").first.locator(".device").inner_text() == "http.report"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone_in_both_schemes_and_paper_is_light(browser, page_file, tmp_path, scheme):
    with tab(browser, tmp_path / "p.png", viewport={"width": 360, "height": 740}, color_scheme=scheme) as page:
        page.goto(page_file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        ground = "getComputedStyle(document.body).backgroundColor"
        assert (page.evaluate(ground) == "rgb(15, 17, 19)") is (scheme == "dark")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate(ground) == "rgb(255, 255, 255)"
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert (page.evaluate(ground) == "rgb(15, 17, 19)") is (scheme == "dark")
