"""A browser, a service with its console, and ``open_at``: a signed-in tab at a page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.chromium import chromium, find_chromium
from tests.console_pages import ConsoleBench, OpenPage, open_page, running_console


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium(find_chromium()) as started:
        yield started


@pytest.fixture(scope="module")
def console() -> Iterator[ConsoleBench]:
    with running_console() as bench:
        yield bench


@pytest.fixture
def open_at(browser: Browser, console: ConsoleBench, tmp_path: Path) -> OpenPage:
    def open_one(path: str, **settings: object) -> AbstractContextManager[Page]:
        return open_page(browser, console, path, tmp_path / "failed.png", **settings)  # type: ignore[arg-type]

    return open_one
