"""The service as an ASGI application."""

from __future__ import annotations

from typing import Any, Final

from starlette.types import ASGIApp, Lifespan

from simulator.service.additions import Addition
from simulator.service.addresses import PAGES
from simulator.service.answers import DateHeader
from simulator.service.browser_access import BrowserLayer
from simulator.service.control_access import ControlAccess
from simulator.service.core import scopes
from simulator.service.endpoints import Endpoint, Paths, path_templates, scoped
from simulator.service.fault_layer.layer import FaultLayer
from simulator.service.gate import Gate
from simulator.service.oauth import (
    authorize_pages,
    sign_in,
    token_endpoints,
)
from simulator.service.oauth.cors import Cors
from simulator.service.profile_layer.layer import ProfileLayer
from simulator.service.request_log.recorder import Recorder
from simulator.service.routes import (
    analytics,
    command_events,
    commands,
    control,
    control_accounts,
    control_clients,
    control_clock,
    control_devices,
    control_faults,
    control_profiles,
    control_requests,
    control_snapshots,
    dashboards,
    database,
    devices,
    documents,
    onboarding,
    products,
    rules,
    sensor_data,
)
from simulator.service.service import Service
from simulator.service.storage import clients

# Routes are tried in this order: what comes most often stands first.
ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *scoped(scopes.DATA, sensor_data.ENDPOINTS),
    *scoped(scopes.COMMANDS, commands.ENDPOINTS),
    *scoped(scopes.COMMANDS, command_events.ENDPOINTS),
    *scoped(scopes.DATABASE, database.ENDPOINTS),
    *scoped(scopes.PRODUCTS, products.ENDPOINTS),
    *scoped(scopes.DASHBOARDS, dashboards.ENDPOINTS),
    *scoped(scopes.DEVICES, devices.ENDPOINTS),
    *scoped(scopes.ONBOARDING, onboarding.ENDPOINTS),
    *scoped(scopes.RULES, rules.ENDPOINTS),
    *scoped(scopes.ANALYTICS, analytics.ENDPOINTS),
    *sign_in.ENDPOINTS,
    *authorize_pages.ENDPOINTS,
    *token_endpoints.ENDPOINTS,
    *documents.ENDPOINTS,
)


def build_app(service: Service, lifespan: Lifespan[Any] | None = None, addition: Addition | None = None) -> ASGIApp:
    """The application around a service that somebody else closes.

    Args:
        service: what answers.
        lifespan: what is entered before the first request and left after the last one; the service's own when None.
        addition: further endpoints, and the pages that they belong to.
    """
    control_endpoints = _control_endpoints(service, addition)
    served = (
        *ENDPOINTS,
        *authorize_pages.FORMS,
        *control_endpoints,
        *documents.make_endpoints(ENDPOINTS, control_endpoints),
    )
    service.templates = path_templates(served)
    pages = addition.pages if addition else ()
    served_paths = Paths(service, (*served, *pages), lifespan or service.running)
    access = ControlAccess(service.control_token)
    gate = Gate(
        served_paths,
        callers=service.callers,
        find_bearer=service.find_bearer,
        quota=service.quota,
        clock=service.clock,
        ids=service.ids,
        control=service.config.control,
        access=access,
        epochs=service.epochs,
        browser=addition.access if addition else None,
    )
    complete = Cors(gate, lambda: service.look_up(clients.browser_origins), closed=PAGES)
    dated = DateHeader(complete, service.clock.now_ms)
    profiled = ProfileLayer(dated, served_paths, service, ENDPOINTS, access)
    app: ASGIApp = FaultLayer(profiled, service, access)
    if addition is not None:
        app = BrowserLayer(app, DateHeader(gate, service.clock.now_ms), addition.access)
    return recorded(service, app, access, addition)


def _control_endpoints(service: Service, addition: Addition | None) -> tuple[Endpoint, ...]:
    return (
        (
            *control.ENDPOINTS,
            *control_accounts.ENDPOINTS,
            *control_clients.ENDPOINTS,
            *control_clock.ENDPOINTS,
            *control_profiles.ENDPOINTS,
            *control_requests.ENDPOINTS,
            *control_snapshots.ENDPOINTS,
            *control_devices.ENDPOINTS,
            *control_faults.ENDPOINTS,
            *(addition.control if addition else ()),
        )
        if service.config.control
        else ()
    )


def recorded(service: Service, app: ASGIApp, access: ControlAccess, addition: Addition | None = None) -> ASGIApp:
    """The application behind the layer that notes requests; the application itself where none are kept."""
    if not service.requests.keep:
        return app
    service.recorder = Recorder(
        app,
        log=service.requests,
        now_ms=service.clock.now_ms,
        is_observer=access.is_observer,
        browser=addition.access if addition else None,
    )
    return service.recorder
