"""The pages of partner access as HTML: templates of this package, and the headers that keep them to themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final
from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined

from simulator.service.answers import Answer, Header

HTML: Final[Header] = (b"content-type", b"text/html; charset=utf-8")
_STATIC_TYPES: Final = {
    "pages.css": b"text/css; charset=utf-8",
    "icon.svg": b"image/svg+xml",
}
STATIC_NAMES: Final = tuple(_STATIC_TYPES)
_NO_SNIFFING: Final[Header] = (b"x-content-type-options", b"nosniff")
_HEADERS: Final[tuple[Header, ...]] = (
    (b"cache-control", b"no-store"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    _NO_SNIFFING,
)
_HOST: Final = re.compile(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?", re.ASCII)
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*", re.ASCII)
_LOOPBACK: Final = "http://127.0.0.1:* http://localhost:*"


@dataclass(frozen=True, slots=True)
class ContinueLink:
    """Where a person goes on from an error page."""

    href: str
    text: str


def render(
    template: str, *, status: int = 200, headers: tuple[Header, ...] = (), policy: bytes | None = None, **context: Any
) -> Answer:
    """The HTML of a page.

    Args:
        template: name in ``templates/`` without ``.html.j2``.
        status: of the answer.
        headers: further ones.
        policy: the content security policy; by default that of a page whose forms stay here.
        context: what the template names; a name that is missing raises :class:`jinja2.UndefinedError`.
    """
    html = _environment().get_template(f"{template}.html.j2").render(**context)
    policy = make_policy() if policy is None else policy
    return Answer(
        status, html.encode(errors="replace"), (*_HEADERS, (b"content-security-policy", policy), *headers), HTML
    )


def see_other(location: str, *headers: Header) -> Answer:
    """303: what the form did is done, and loading the next page again does not do it again."""
    return Answer(303, b"", (*_HEADERS, (b"location", location.encode()), *headers))


def static(name: str) -> Answer:
    """A file of ``static/``."""
    kind: Header = (b"content-type", _STATIC_TYPES[name])
    return Answer(200, _read(name), ((b"cache-control", b"no-cache"), _NO_SNIFFING), kind)


def make_policy(redirect_uri: str | None = None, *, picture: str | None = None) -> bytes:
    """What the page may load and where its forms may lead.

    Args:
        redirect_uri: where the answer to the form may send the browser: Chromium holds such redirects against
            ``form-action`` too, and all that follow on them.
        picture: the origin of a picture on the page, beside our own.
    """
    targets = "'self'" if redirect_uri is None else f"'self' {_form_targets(redirect_uri)}"
    pictures = "'self'" if picture is None else f"'self' {picture}"
    return (
        f"default-src 'none'; style-src 'self'; img-src {pictures}; form-action {targets}; "
        "frame-ancestors 'none'; base-uri 'none'"
    ).encode()


def _form_targets(redirect_uri: str) -> str:
    """The sources that a redirect to this address, and a further one by whoever is there, need.

    A partner's callback often sends the browser on to another host of his. So an https address opens https, and one on
    this machine opens this machine; everything else opens itself alone.
    """
    parts = urlsplit(redirect_uri)
    if parts.scheme == "https":
        return "https:"
    if parts.scheme == "http" and parts.hostname in {"127.0.0.1", "localhost", "::1"}:
        # A policy cannot name an IPv6 address.
        return "http:" if parts.hostname == "::1" else _LOOPBACK
    if parts.scheme == "http" and _HOST.fullmatch(parts.netloc):
        return f"http://{parts.netloc}"
    return f"{parts.scheme}:" if _SCHEME.fullmatch(parts.scheme) else ""


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("simulator.service.oauth"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _read(name: str) -> bytes:
    return (files("simulator.service.oauth") / "static" / name).read_bytes()
