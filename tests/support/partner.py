"""A partner's side of partner access, for tests: an application on loopback, and a browser without any script."""

from __future__ import annotations

import contextlib
import html
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import httpx

CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
"""Of :data:`VERIFIER` (RFC 7636, appendix B)."""
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"


@dataclass
class PartnerApp:
    """An application that a browser comes back to.

    Attributes:
        uri: its redirect address.
        came: the parameters of each time that somebody came back.
        referers: the ``Referer`` of each of them.
    """

    uri: str
    came: list[dict[str, str]] = field(default_factory=list)
    referers: list[str | None] = field(default_factory=list)


@contextlib.contextmanager
def partner_app() -> Iterator[PartnerApp]:
    """An application that listens for the length of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path == "/callback":
                app.came.append({name: values[0] for name, values in parse_qs(parts.query).items()})
                app.referers.append(self.headers.get("Referer"))
            if parts.path == "/hop":  # a partner whose callback sends the browser on to a host of another name
                self.send_response(302)
                self.send_header("Location", app.uri.replace("127.0.0.1", "localhost") + f"?{parts.query}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            frame = unquote(parts.query) if parts.path == "/frame" else ""
            body = (
                "<!doctype html><html lang=en><title>Partner</title><link rel=icon href=data:,>"
                f"<h1>Back at the partner</h1>{frame and f'<iframe src={frame!r}></iframe>'}"
            ).encode()
            self.send_response(200 if parts.path in {"/callback", "/frame"} else 404)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    app = PartnerApp(f"http://127.0.0.1:{server.server_port}/callback")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield app
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def request_query(client_id: str, redirect_uri: str, **changes: str | None) -> str:
    """The query of an authorization request with PKCE; a change to None leaves a parameter out."""
    given = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "scope": "manufacturer:products",
        "state": "the-state",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        **changes,
    }
    return urlencode({name: value for name, value in given.items() if value is not None})


@dataclass
class Page:
    """What a browser shows.

    Attributes:
        action: where its first form goes.
        csrf: what that form carries.
    """

    answer: httpx.Response
    action: str
    csrf: str

    @property
    def text(self) -> str:
        """The page without tags, one space between words."""
        return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", self.answer.text)).split())


class PlainBrowser:
    """A browser that keeps cookies, follows what the service's own forms answer, and stops at other addresses.

    With an email and a password it signs in by itself where a page asks for that.
    """

    def __init__(self, base_url: str, email: str = "", password: str = "") -> None:
        self._person = (email, password)
        self.http = httpx.Client(
            base_url=base_url, trust_env=False, timeout=120, headers={"accept": "text/html,application/xhtml+xml"}
        )

    def open(self, address: str) -> Page:
        """Load a page."""
        page = self._load(address)
        if self._person[0] and 'name="password"' in page.answer.text:
            answer = self.send(page, "sign_in", email=self._person[0], password=self._person[1])
            page = self._load(answer.headers["location"])
        return page

    def _load(self, address: str) -> Page:
        answer = self.http.get(address)
        form = re.search(r'<form method="post" action="([^"]*)"', answer.text)
        csrf = re.search(r'name="csrf" value="([^"]*)"', answer.text)
        return Page(answer, html.unescape(form[1]) if form else "", csrf[1] if csrf else "")

    def send(self, page: Page, said: str = "", **fields: str) -> httpx.Response:
        """Send the page's form; ``said`` is the button."""
        data = {"csrf": page.csrf, "answer": said, **fields}
        return self.http.post(page.action, data={name: value for name, value in data.items() if value})

    def sign_in(self, address: str, email: str, password: str) -> Page:
        """Sign in on the page at this address and load it again."""
        page = self.open(address)
        answer = self.send(page, "sign_in", email=email, password=password)
        assert answer.status_code == 303, answer.text
        return self.open(answer.headers["location"])

    def approve(self, query: str, email: str, password: str) -> str:
        """Sign in and allow; where the service sends the browser."""
        page = self.sign_in(f"/partner-oauth-authorize?{query}", email, password)
        answer = self.send(page, "approve")
        assert answer.status_code == 303, answer.text
        return answer.headers["location"]

    def close(self) -> None:
        """No connection stays open."""
        self.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def parameters_of(location: str) -> dict[str, str]:
    """The query parameters of an address."""
    return {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}


def exchange_code(base_url: str, client_id: str, redirect_uri: str, code: str) -> httpx.Response:
    """Tokens for a code of a public client whose request was :func:`request_query`'s."""
    return httpx.post(
        f"{base_url}/functions/v1/partner-oauth-token",
        data={
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": client_id,
            "code_verifier": VERIFIER,
        },
        trust_env=False,
        timeout=120,
    )
