"""Paths that need no keys: the control paths, the documents, partner access and its pages."""

from __future__ import annotations

from typing import Final

from agent.wire import paths

AUTHORIZE: Final = paths.OAUTH_AUTHORIZE
ANSWER: Final = "/partner-oauth-answer"
"""Where the forms of the authorize page go; that one takes GET only, as the specification has it."""
STATIC: Final = "/oauth/static/"
STYLE: Final = f"{STATIC}pages.css"
ICON: Final = f"{STATIC}icon.svg"

PAGES: Final = frozenset({AUTHORIZE, ANSWER, STYLE, ICON})
"""The pages of partner access, open to everybody: a session or a form says who it is."""
CONTROL_PREFIX: Final = "/_emulator/"
HEALTH: Final = f"{CONTROL_PREFIX}health"
PUBLIC: Final = frozenset(
    {
        "/.well-known/device-service",
        "/openapi.json",
        "/docs",
        "/docs/swagger-ui-bundle.js",
        "/docs/swagger-ui.css",
        paths.OAUTH_TOKEN,
        paths.OAUTH_REVOKE,
        paths.OAUTH_METADATA,
        *PAGES,
    }
)
"""Documents that describe the service, and where partners come without keys: they say who they are in another way."""
