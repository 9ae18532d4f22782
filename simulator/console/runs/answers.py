"""Files and pages of runs as answers: what somebody else made is shown, and can do nothing to this service."""

from __future__ import annotations

from typing import Final

from simulator.service.answers import Answer, Header

SANDBOX: Final = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)
"""Of a report. It brings its own scripts, and its folder may be anybody's: ``sandbox`` gives it an origin of its own,
so that they reach neither the session nor any address of this service or elsewhere.
"""
_HEADERS: Final[tuple[Header, ...]] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_PLAIN: Final = (b"content-security-policy", b"sandbox; default-src 'none'; frame-ancestors 'self'")
_PLAIN_TYPE: Final[Header] = (b"content-type", b"text/plain; charset=utf-8")


def page(html: bytes) -> Answer:
    """A report."""
    headers = (*_HEADERS, (b"content-security-policy", SANDBOX.encode()), (b"x-frame-options", b"SAMEORIGIN"))
    return Answer(200, html, headers, (b"content-type", b"text/html; charset=utf-8"))


def plain_file(content: bytes) -> Answer:
    """A file of a run: text to look at, whatever it says that it is."""
    return Answer(200, content, (*_HEADERS, _PLAIN), _PLAIN_TYPE)
