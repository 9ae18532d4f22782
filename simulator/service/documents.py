"""What the service says about itself: its extensions, its OpenAPI documents, a page to try it without a network."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from fastapi import Response
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from starlette.responses import FileResponse, HTMLResponse
from starlette.routing import BaseRoute

from agent.wire import paths
from agent.wire.limits import BODY_BYTES, JSON_DEPTH
from agent.wire.server import (
    BATCH_SENSOR_DATA,
    COMMAND_EVENTS,
    COMMAND_RESULTS,
    COMMAND_STATUS,
    COMMAND_TTL,
    IDEMPOTENCY_KEY,
    LIST_PARAMETERS,
    LONG_POLL,
    READING_KEYS,
    RECORDED_AT,
)
from simulator.service.errors import ApiError
from simulator.service.gate import CONTROL_PREFIX, PUBLIC
from simulator.service.http import CallDep, ErrorBody, Json, Route, Router, extends

OFFERED: Final = (
    BATCH_SENSOR_DATA,
    COMMAND_EVENTS,
    COMMAND_RESULTS,
    COMMAND_STATUS,
    COMMAND_TTL,
    IDEMPOTENCY_KEY,
    LIST_PARAMETERS,
    LONG_POLL,
    READING_KEYS,
    RECORDED_AT,
    "oauth-metadata",
    "single-records",
    "rule-management",
)
_DESCRIPTION: Final = f"""\
The Manufacturer API. Send both keys with every request, `x-api-key` **and** `x-secret-key`;
where an operation names a scope, `Authorization: Bearer <ACCESS_TOKEN>` does as well.

* **Extensions**: what is marked `x-extension` goes beyond the specification;
  `GET /.well-known/device-service` lists those that a service has.
* **Bodies** are JSON in UTF-8: at most {BODY_BYTES:,} bytes and {JSON_DEPTH} levels. Refused everywhere with 400: NaN,
  integers beyond 64 bits, NUL and lone surrogates in text, a name twice in one object, and unknown members where none
  are announced. An unknown query parameter is refused too.
* **Times** are RFC 3339 in UTC with milliseconds; where one is sent, epoch milliseconds do as well.
* **Lists** come in pages: `limit`, `cursor`, `order`; `Link: <...>; rel="next"` leads on.
* **Errors** carry `error`, a stable word, and `message`, a sentence.
* `POST` takes an `Idempotency-Key`: the answer to the first request with it is returned again for 24 hours.
* `X-Request-Id` is returned when a request has one, and made otherwise.
"""
_PAGE: Final = """\
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
_PAGE_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self' 'unsafe-inline'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_FILES: Final = ("swagger-ui-bundle.js", "swagger-ui.css")
_ALWAYS: Final = {
    "400": "`validation_error`: `details` name each problem",
    "500": "`internal_error`: the service's log says why",
    "503": "`storage_unavailable`: nothing was stored; try again",
}
_WITH_BODY: Final = {"413": "`payload_too_large`", "415": "`unsupported_media_type`"}
_WITH_KEYS: Final = {
    "401": "`missing_credentials`, `invalid_credentials` or `invalid_token`",
    "403": "`insufficient_scope`, of a bearer token",
    "429": "`rate_limit_exceeded`: wait `Retry-After` seconds",
}
_WITH_IDEMPOTENCY: Final = {
    "409": "`idempotency_key_in_use`: the first request with it still runs",
    "422": "`idempotency_key_reused`: it was used for another path or body",
}
_IDEMPOTENCY_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The request is carried out once; its answer is replayed for 24 h",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[!-~]([ -~]*[!-~])?$"},
    **extends(IDEMPOTENCY_KEY),
}
_ERROR: Final = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
_SECURITY: Final = {
    "api_key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "Public key, begins with `mk_`"},
    "secret_key": {
        "type": "apiKey",
        "in": "header",
        "name": "x-secret-key",
        "description": "Secret key, begins with `msk_`. Keep it on a server that you control, never in an app",
    },
    "bearer": {"type": "http", "scheme": "bearer", "description": "Access token of a partner application"},
}

router = Router("discovery")


class Discovery(BaseModel):
    """The extensions that this service has."""

    extensions: list[str]


@router.get(paths.DISCOVERY, response_model=Discovery, openapi_extra=extends("discovery"))
async def discover() -> Response:
    """The extensions of this service; a plain server answers 404 here."""
    return Json({"extensions": OFFERED})


@router.get("/openapi.json", include_in_schema=False)
async def show_document(call: CallDep) -> Response:
    """The document of the specification and the extensions."""
    return Json(
        make_document(call.request.app.routes, "Device manufacturer and partner service (local)", control=False)
    )


@router.get(f"{CONTROL_PREFIX}openapi.json", include_in_schema=False)
async def show_control_document(call: CallDep) -> Response:
    """The document of the control surface."""
    return Json(make_document(call.request.app.routes, "Control of the local service", control=True))


@router.get("/docs", include_in_schema=False)
async def show_page() -> Response:
    """A page to read the document and try it; its files come from the package fastapi-offline."""
    return HTMLResponse(_PAGE, headers=_PAGE_HEADERS)


@router.get("/docs/{name}", include_in_schema=False)
async def show_page_file(name: str) -> Response:
    """A file of that page."""
    spec = find_spec("fastapi_offline")  # its files are wanted, and not what it does to FastAPI
    if name not in _FILES or spec is None or spec.origin is None:
        raise ApiError(404, "not_found", "There is no such file; the page needs the package fastapi-offline.")
    file = Path(spec.origin).with_name("static") / name
    return FileResponse(file, headers={"Cache-Control": "max-age=86400"})


def make_document(routes: Sequence[BaseRoute], title: str, *, control: bool) -> dict[str, Any]:
    """The OpenAPI document of the control surface, or of everything else."""
    document = get_openapi(
        title=title,
        version=importlib.metadata.version("device-agent"),
        description=_DESCRIPTION,
        routes=[one for one in routes if getattr(one, "path", "").startswith(CONTROL_PREFIX) is control],
        servers=[{"url": "/", "description": "This service"}],
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)  # of FastAPI's 422, which this service does not answer with
    schemas.setdefault("ErrorBody", ErrorBody.model_json_schema(ref_template="#/components/schemas/{model}"))
    schemas.update(schemas["ErrorBody"].pop("$defs", {}))
    if not control:
        components["securitySchemes"] = _SECURITY
    for route in routes:
        if isinstance(route, Route) and route.path in document["paths"]:
            for method in route.methods or ():
                if (operation := document["paths"][route.path].get(method.lower())) is not None:
                    _complete(operation, route, method)
    return document


def _complete(operation: dict[str, Any], route: Route, method: str) -> None:
    """What all operations have in common, and no handler says."""
    has_keys = route.path not in PUBLIC and not route.path.startswith(CONTROL_PREFIX)
    common = dict(_ALWAYS)
    if "requestBody" in operation:
        common |= _WITH_BODY
    # Both keys are one requirement; a bearer token is another that does as well.
    operation["security"] = [{"api_key": [], "secret_key": []}] if has_keys else []
    if has_keys:
        common |= _WITH_KEYS
        if route.bearer_scope is not None:
            operation["security"].append({"bearer": [route.bearer_scope]})
        if method == "POST" and route.replayed:
            operation.setdefault("parameters", []).append(_IDEMPOTENCY_KEY)
            common |= _WITH_IDEMPOTENCY
    if "{" in route.path:
        common["404"] = "`not_found`: an id in the path is no text"
    responses = operation["responses"]
    responses.pop("422", None)
    for status, text in common.items():
        responses.setdefault(status, {"description": text, "content": _ERROR})
