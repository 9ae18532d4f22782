"""A service with its console, and tabs of a real Chromium that are signed in to it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Page

from simulator.console.app import make_console
from simulator.console.runs.runs import RunSettings
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.chromium import tab
from tests.node_packages import node_with
from tests.service_running import Bench, client

PACKAGES = Path(__file__).parent / "e2e" / "console"
# What Chromium writes on its console when an answer's status is 400 or more, or there is no answer.
REFUSED = "Failed to load resource: "
Looks = Literal["light", "dark", "forced"]
ALL_LOOKS: tuple[Looks, ...] = ("light", "dark", "forced")
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 800}
# WCAG 2.2 AA, and what axe's authors advise beside it.
_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


class ConsoleBench(Bench):
    """A service with its console, on the machine's own clock; :class:`Bench` has what makes products and devices."""

    def link(self) -> str:
        """A fresh address that opens the console."""
        addition = self.service.addition
        assert addition is not None
        return self.service.base_url + addition.entry_path()


@contextlib.contextmanager
def running_console(runs: RunSettings | None = None, **settings: Any) -> Iterator[ConsoleBench]:
    """A service with its console for the length of the block.

    Args:
        runs: where fleet runs and scenarios are.
        settings: of the service.
    """
    made = functools.partial(make_console, settings=runs)
    config = ServiceConfig(**{"rate_limit": 0, "log_level": "warning", **settings})
    with RunningService(config, make_addition=made) as service, client(service) as http:
        yield ConsoleBench(service, None, http)  # type: ignore[arg-type]  # it is nobody's to set


OpenPage = Callable[..., AbstractContextManager[Page]]


@contextlib.contextmanager
def open_page(
    browser: Browser, bench: ConsoleBench, path: str, picture: Path, *, look: Looks = "light", **settings: Any
) -> Iterator[Page]:
    """A signed-in tab that shows ``path``.

    Args:
        browser: see :func:`tests.chromium.chromium`.
        bench: the service.
        path: of the page, such as ``/console/devices/...``.
        picture: where the picture of a page that failed is kept.
        look: light, dark, or the forced colours of a reader with high contrast.
        settings: ``expected`` complaints, and settings of the browser's context, such as ``viewport``.
    """
    scheme = "dark" if look == "dark" else "light"
    forced = {"forced_colors": "active"} if look == "forced" else {}
    with tab(browser, picture, base_url=bench.service.base_url, color_scheme=scheme, **forced, **settings) as page:
        page.goto(bench.link())
        if path != "/":
            page.goto(path)
        page.get_by_role("main").wait_for()
        yield page


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
