"""The application: request log, faults and gate around FastAPI, and one answer for each kind of error."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import ASGIApp

from agent.wire.models import describe_issue
from simulator.service import documents
from simulator.service.api import analytics, commands, database, devices, products, readings, rules
from simulator.service.control import accounts, clock, faults, requests, seed, state
from simulator.service.control import devices as scripted_devices
from simulator.service.control.faults import Faults
from simulator.service.control.matching import Paths
from simulator.service.control.requests import Recorder
from simulator.service.errors import ApiError, invalid_all
from simulator.service.gate import Gate
from simulator.service.http import Route
from simulator.service.oauth import endpoints as oauth_endpoints
from simulator.service.oauth import pages as oauth_pages
from simulator.service.oauth.cors import Cors
from simulator.service.service import Service
from simulator.service.variant_answers import error_answer

ROUTERS: Sequence[APIRouter] = (
    readings.router,  # first: routes are tried in this order, and devices ask for these most
    commands.router,
    documents.router,
    products.router,
    products.dashboards,
    devices.router,
    devices.onboarding,
    database.router,
    rules.router,
    analytics.router,
    oauth_endpoints.sign_in_router,
    oauth_endpoints.partner_router,
    oauth_pages.router,
)
CONTROL_ROUTERS: Sequence[APIRouter] = (
    state.router,
    seed.router,
    clock.router,
    accounts.router,
    scripted_devices.router,
    requests.router,
    faults.router,
)
_WORDS: Final = {"extra_forbidden": "unknown member", "missing": "is missing"}
"""What pydantic says of Python's arguments -> what is said of JSON."""


def build_app(
    service: Service, on_start: Callable[[], None] = lambda: None, console: Sequence[APIRouter] = ()
) -> ASGIApp:
    """The application around a service that somebody else closes.

    Args:
        service: what answers.
        on_start: called in the loop's thread before the first request.
        console: routers of the console.
    """

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            on_start()
            yield

    commands.end_in_time(service)
    service.scripted = scripted_devices.ScriptedDevices(service)  # last: they act on what the others have done
    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None)
    app.router.redirect_slashes = False
    for router in (*ROUTERS, *(CONTROL_ROUTERS if service.config.control else ()), *console):
        app.routes.extend(router.routes)  # as they are: each knows its own scope, and the document lists them
    app.add_exception_handler(RequestValidationError, _refuse_invalid)
    app.add_exception_handler(HTTPException, _answer_error)
    service.paths = Paths(app.routes)
    hot = [route for route in app.routes if isinstance(route, Route) and route.is_hot]
    return Recorder(Faults(Cors(Gate(app, hot, service), service), service), service)


async def _refuse_invalid(request: Request, exc: Exception) -> Response:
    """400 with every problem, instead of FastAPI's 422."""
    assert isinstance(exc, RequestValidationError)  # noqa: S101 - for types: it is registered for this class
    problems = [(one["loc"][1:], one) for one in exc.errors()]
    return await _answer_error(
        request,
        invalid_all(
            [
                (".".join(map(str, place)) or one["loc"][0], _WORDS.get(one["type"]) or describe_issue(one))
                for place, one in problems
                # An array is also "too short" when its items are at fault, which is all that there is to say.
                if one["type"] != "too_short" or not any(other[: len(place)] == place != other for other, _ in problems)
            ]
        ),
    )


async def _answer_error(request: Request, exc: Exception) -> Response:
    error = exc if isinstance(exc, ApiError) else _of_starlette(request, exc)
    headers, body = error_answer(request.scope["variant"], error)
    return Response(body, error.status_code, headers)


def _of_starlette(request: Request, exc: Exception) -> ApiError:
    status = exc.status_code if isinstance(exc, HTTPException) else 500
    if status == 405:
        matches = [one for one in request.app.routes if one.matches(request.scope)[0] is not Match.NONE]
        methods = {method for one in matches for method in one.methods or ()}
        allowed = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
        text = f"This path takes {allowed}."
        return ApiError(405, "method_not_allowed", text, headers={"Allow": allowed})
    if status == 404:
        return ApiError(404, "not_found", "There is nothing at this path.")
    text = exc.detail if isinstance(exc, HTTPException) else "The service failed on this request."
    return ApiError(status, "bad_request" if status < 500 else "internal_error", str(text))
