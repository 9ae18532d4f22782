"""A service with its console, a browser, and tabs of it that were opened by the console's link."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.support.chromium import chromium, find_chromium, tab
from tests.support.node_packages import node_with
from tests.support.service_running import Bench, client

PACKAGES = Path(__file__).parent
# What Chromium writes on its console when an answer's status is 400 or more, or there is no answer.
REFUSED = "Failed to load resource: "
# WCAG 2.2 AA, and what axe's authors advise beside it.
_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OpenTab = Callable[..., AbstractContextManager[Page]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium(find_chromium()) as started:
        yield started


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """Has the folders ``runs`` and ``scenarios``."""
    (tmp_path / "scenarios").mkdir()
    return tmp_path


@pytest.fixture
def console(places: Path) -> Iterator[Bench]:
    config = ServiceConfig(
        console=True, runs_dir=places / "runs", scenarios_dir=places / "scenarios", rate_limit=0, log_level="warning"
    )
    with RunningService(config) as service, client(service) as http:
        yield Bench(service, None, http)  # type: ignore[arg-type]  # its clock is the machine's


@pytest.fixture
def open_tab(browser: Browser, console: Bench, tmp_path: Path) -> OpenTab:
    """A tab that the console's link has opened."""

    @contextlib.contextmanager
    def open_one(**settings: Any) -> Iterator[Page]:
        with tab(browser, tmp_path / "failed.png", base_url=console.service.base_url, **settings) as page:
            page.goto(console.service.console_url or "")
            page.get_by_role("heading", name="Devices", level=1).wait_for()
            yield page

    return open_one


def faults_of(page: Page) -> list[str]:
    """What axe-core finds on the page: a line for each fault and element. Empty when there is nothing."""
    page.evaluate(_axe())
    found = page.evaluate(
        "tags => axe.run(document, {runOnly: {type: 'tag', values: tags}, resultTypes: ['violations']})", _TAGS
    )
    return [
        f"{fault['id']}: {fault['help']}: {node['target']} {node['failureSummary']}"
        for fault in found["violations"]
        for node in fault["nodes"]
    ]


@functools.cache
def _axe() -> str:
    node_with(PACKAGES)
    return (PACKAGES / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def has_no_overflow(page: Page) -> bool:
    """Whether the page as a whole needs no scrolling from side to side."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


def check_looks(page: Page) -> None:
    """The page is right for a reader with light, dark and forced colours, and on a phone."""
    before = page.viewport_size
    for scheme, forced in (("light", "none"), ("dark", "none"), ("light", "active")):
        page.emulate_media(color_scheme=scheme, forced_colors=forced)  # type: ignore[arg-type]
        assert faults_of(page) == []
    page.emulate_media(color_scheme="light", forced_colors="none")
    page.set_viewport_size({"width": 390, "height": 844})
    assert has_no_overflow(page)
    if before is not None:
        page.set_viewport_size(before)
