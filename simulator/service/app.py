"""The service as an ASGI application."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from pydantic_core import to_json
from starlette.routing import Router
from starlette.types import ASGIApp, Lifespan

from simulator.service.answers import Answer
from simulator.service.call import Call
from simulator.service.config import ServiceConfig
from simulator.service.document import make_document
from simulator.service.endpoints import Endpoint, Reply, make_routes, no_such_path
from simulator.service.gate import CONTROL_PREFIX, Gate
from simulator.service.routes import commands, control, devices, discovery, onboarding, products, sensor_data
from simulator.service.service import Service

TITLE: Final = "Device manufacturer and partner service (local)"

# Routes are tried in this order: what comes most often stands first.
ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *sensor_data.ENDPOINTS,
    *commands.ENDPOINTS,
    *products.ENDPOINTS,
    *devices.ENDPOINTS,
    *onboarding.ENDPOINTS,
    *discovery.ENDPOINTS,
)


def create_app(config: ServiceConfig) -> ASGIApp:
    """The application with storage of its own; the server's shutdown closes it.

    Raises:
        ConfigurationError: the data folder cannot be used.
    """
    service = Service(config)

    @contextlib.asynccontextmanager
    async def running_then_closed(app: object) -> AsyncIterator[None]:
        async with service.running(app):
            yield
        service.close()

    return build_app(service, running_then_closed)


def build_app(service: Service, lifespan: Lifespan[Any] | None = None) -> ASGIApp:
    """The application around a service that somebody else closes."""
    control_endpoints = control.ENDPOINTS if service.config.control else ()
    served = (
        *ENDPOINTS,
        *control_endpoints,
        _serve_document("/openapi.json", "show_document", ENDPOINTS),
        *(
            [_serve_document(f"{CONTROL_PREFIX}openapi.json", "show_control_document", control_endpoints)]
            if control_endpoints
            else []
        ),
    )
    router = Router(
        make_routes(service, served), redirect_slashes=False, default=no_such_path, lifespan=lifespan or service.running
    )
    return Gate(
        router,
        callers=service.callers,
        quota=service.quota,
        clock=service.clock,
        ids=service.ids,
        control=service.config.control,
    )


def _serve_document(path: str, name: str, endpoints: tuple[Endpoint, ...]) -> Endpoint:
    made: list[bytes] = []

    async def show_document(_call: Call) -> Answer:
        if not made:  # made when it is first asked for: the schemas of all types take a while
            made.append(to_json(make_document(endpoints, TITLE)))
        return Answer(200, made[0])

    return Endpoint(
        "GET", path, show_document, name, "This document", "discovery", (Reply(200, "OpenAPI 3.1"),), public=True
    )
