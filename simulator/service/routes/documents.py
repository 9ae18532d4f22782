"""What the service says about itself: its extensions, its OpenAPI documents, a page to try it without a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pydantic_core import to_json

from agent.wire import extensions, paths
from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.answers import Answer, Header, ok
from simulator.service.call import Call
from simulator.service.document import make_document
from simulator.service.endpoints import Endpoint, Reply
from simulator.service.errors import NotFound
from simulator.service.parameters import SINGLE_RECORDS
from simulator.service.records import DiscoveryRecord
from simulator.service.routes import rules

TITLE: Final = "Device manufacturer and partner service (local)"
CONTROL_TITLE: Final = "Control of the local service"

_HTML: Final[Header] = (b"content-type", b"text/html; charset=utf-8")
_FILES: Final = {
    "swagger-ui-bundle.js": (b"content-type", b"text/javascript; charset=utf-8"),
    "swagger-ui.css": (b"content-type", b"text/css; charset=utf-8"),
}
"""Of Swagger UI, which the package fastapi-offline brings along: the page needs no network."""
_PAGE: Final = b"""\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Device service: read it and try it</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/swagger-ui.css">
<noscript>This page needs JavaScript. The same document as JSON: <a href="/openapi.json">/openapi.json</a>.</noscript>
<div id="document"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script>
SwaggerUIBundle({ url: "/openapi.json", dom_id: "#document", deepLinking: true, docExpansion: "list" });
</script>
"""
# Nothing is loaded from anywhere else, and the page can talk to this service only.
_POLICY: Final = (
    b"default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    b"img-src 'self' data:; font-src data:; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS: Final[tuple[Header, ...]] = (
    (b"content-security-policy", _POLICY),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)
_FILE_HEADERS: Final[tuple[Header, ...]] = ((b"cache-control", b"max-age=86400"),)


def make_endpoints(listed: Sequence[Endpoint], control: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """The endpoints of the documents.

    Args:
        listed: what ``/openapi.json`` describes.
        control: what ``/_emulator/openapi.json`` describes; none when control is off.
    """
    documents = [
        _serve("/openapi.json", "show_document", lambda: _document(listed, TITLE)),
        _serve("/docs", "show_page", _page),
        *(_serve(f"/docs/{name}", f"show_page_{name}", partial(_file, name)) for name in _FILES),
    ]
    if control:
        path = f"{CONTROL_PREFIX}openapi.json"
        documents.append(_serve(path, "show_control_document", lambda: _document(control, CONTROL_TITLE)))
    return tuple(documents)


def _document(endpoints: Sequence[Endpoint], title: str) -> Answer:
    return Answer(200, to_json(make_document(endpoints, title)))


def _page() -> Answer:
    return Answer(200, _PAGE, _PAGE_HEADERS, _HTML)


def _file(name: str) -> Answer:
    spec = find_spec("fastapi_offline")  # its files are wanted, and not FastAPI
    if spec is None or spec.origin is None:
        raise NotFound("not_found", "The page needs fastapi-offline: pip install '.[simulator]' in a clone.")
    return Answer(200, Path(spec.origin).with_name("static").joinpath(name).read_bytes(), _FILE_HEADERS, _FILES[name])


def _serve(path: str, name: str, make: Callable[[], Answer]) -> Endpoint:
    made: list[Answer] = []

    async def show(_call: Call) -> Answer:
        if not made:  # made when it is first asked for: the schemas of all types take a while
            made.append(make())
        return made[0]

    return Endpoint("GET", path, show, name, "This document", "discovery", (Reply(200, "The document"),), public=True)


OFFERED: Final = (
    extensions.BATCH_SENSOR_DATA,
    extensions.COMMAND_EVENTS,
    extensions.COMMAND_RESULTS,
    extensions.COMMAND_STATUS,
    extensions.COMMAND_TTL,
    extensions.IDEMPOTENCY_KEY,
    extensions.LIST_PARAMETERS,
    extensions.LONG_POLL,
    extensions.RECORDED_AT,
    SINGLE_RECORDS,
    rules.FIRINGS,
    rules.MANAGEMENT,
)


async def discover(_call: Call) -> Answer:
    """The extensions of this service; a plain server answers 404 here."""
    return ok({"extensions": OFFERED})


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        paths.DISCOVERY,
        discover,
        "discover",
        "The extensions of this service; a plain server answers 404 here",
        "discovery",
        (Reply(200, "Their names", DiscoveryRecord),),
        extension="discovery",
        public=True,
    ),
)
