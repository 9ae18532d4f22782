"""The pages: a row of :data:`PAGES` for each, and the HTML that stands before a script has run.

The navigation is made of the same rows, on the server and in the browser.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic_core import to_json

from simulator.console.access import PREFIX
from simulator.console.static_files import address_of, read_files
from simulator.service.answers import Answer, Header

HTML: Final[Header] = (b"content-type", b"text/html; charset=utf-8")


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the console.

    Attributes:
        path: its address; ``{name}`` stands for one segment, which the component gets as a property.
        module: the file in ``static/pages/`` without ``.js``.
        title: of the document.
        nav: what the navigation calls it; None for a page that others lead to.
    """

    path: str
    module: str
    title: str
    nav: str | None = None


PAGES: Final = (
    Page("/", "devices", "Devices", "Devices"),
    Page("/console/devices/{device_id}", "device", "Device"),
    Page("/console/scan", "scan", "Scan a label", "Scan"),
    Page("/console/labels", "labels", "Labels", "Labels"),
    Page("/console/requests", "requests", "Requests", "Requests"),
    Page("/console/faults", "faults", "Faults", "Faults"),
    Page("/console/runs", "runs", "Runs", "Runs"),
    Page("/console/runs/{id}", "run", "Run"),
    Page("/console/service", "service", "Service", "Service"),
)
_IMPORTS: Final = {
    "preact": "vendor/preact.module.js",
    "preact/hooks": "vendor/hooks.module.js",
    "htm": "vendor/htm.module.js",
}
_FIRST: Final = ("core/", "components/", "vendor/preact", "vendor/hooks", "vendor/htm", "pages/devices.js")
"""Files that every page needs: the browser fetches them at once instead of one after the other."""


@cache
def _import_map() -> str:
    return to_json({"imports": {name: address_of(path) for name, path in _IMPORTS.items()}}).decode()


@cache
def _pages_json() -> str:
    """The rows for the browser; without ``<``, so that they end no script element."""
    rows = [{"path": one.path, "module": one.module, "title": one.title, "nav": one.nav} for one in PAGES]
    return to_json(rows).decode().replace("<", "\\u003c")


@cache
def _headers() -> tuple[Header, ...]:
    digest = base64.b64encode(hashlib.sha256(_import_map().encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'self' 'sha256-{digest}'; style-src 'self'; img-src 'self' data: blob:; "
        "connect-src 'self'; media-src 'self' blob:; frame-src 'self' blob:; frame-ancestors 'none'; "
        "base-uri 'none'; form-action 'self'"
    )
    return (
        (b"cache-control", b"no-store"),
        (b"content-security-policy", policy.encode()),
        (b"permissions-policy", b"camera=(self), geolocation=(), microphone=()"),
        (b"referrer-policy", b"no-referrer"),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
    )


def render_shell(page: Page, csrf: str) -> Answer:
    """A page of the console, for a browser with a session."""
    first = [address_of(path) for path in read_files() if path.startswith(_FIRST) and path.endswith(".js")]
    return _render(
        "shell", 200, page=page, pages=PAGES, csrf=csrf, first=first, import_map=_import_map(), pages_json=_pages_json()
    )


def render_entry(reason: str, *headers: Header, status: int = 401) -> Answer:
    """The page for a browser without a session: how to get a link.

    Args:
        reason: ``none``, or ``used`` after a link that is good no more.
        headers: further ones.
        status: of the answer.
    """
    return _render("entry", status, *headers, reason=reason)


def see_other(location: str, *headers: Header) -> Answer:
    """303 to another page."""
    return Answer(303, b"", (*_headers(), (b"location", location.encode()), *headers))


def _render(template: str, status: int, *headers: Header, **context: Any) -> Answer:
    html = _environment().get_template(f"{template}.html.j2").render(**context)
    return Answer(status, html.encode(), (*_headers(), *headers), HTML)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("simulator.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["address_of"] = address_of
    made.globals["prefix"] = PREFIX
    return made
