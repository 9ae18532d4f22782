"""A real Chromium for tests of pages, driven by playwright."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.conftest import require_program

# What an expectation waits for comes for certain, however busy this machine is.
expect.set_options(timeout=60_000)

_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find_chromium() -> str:
    """The program; where it is installed, the one that has no windows to draw: the same engine, half the work a tab."""
    return shutil.which("chromium-headless-shell") or require_program("chromium")


@contextlib.contextmanager
def chromium(executable: str) -> Iterator[Browser]:
    """The system's Chromium for the length of the block; its profile is a new one, gone at the end."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=_ARGUMENTS, timeout=120_000)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def tab(browser: Browser, picture: Path, *, expected: Sequence[str] = (), **settings: Any) -> Iterator[Page]:
    """A tab of a browser without any cookies.

    What the browser complains about on the console, above all breaches of a content security policy, fails the test;
    so does an error of a script. When the block fails, the page's picture is kept.

    Args:
        browser: see :func:`chromium`.
        picture: where the picture of a page that failed is kept.
        expected: parts of complaints that belong to the test.
        settings: of the browser's context, such as ``viewport``.
    """
    context = browser.new_context(**settings)
    context.set_default_timeout(60_000)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    try:
        yield page
        assert not [text for text in complaints if not any(part in text for part in expected)]
    except BaseException:
        with contextlib.suppress(Exception):
            picture.write_bytes(page.screenshot(full_page=True))
            print(f"the page's picture: {picture}")  # noqa: T201 - pytest shows it with the failure
        raise
    finally:
        context.close()
