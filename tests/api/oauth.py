"""Partners of a running service, for tests: a registered client, and codes by way of the pages."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote_plus, urlencode, urlsplit

import httpx

from simulator.wire import paths
from tests.support.partner import CHALLENGE, VERIFIER, PlainBrowser, parameters_of
from tests.support.service_running import Bench

CALLBACK = "https://partner.example/callback"
EMAIL = "ada@example.com"
PASSWORD = "made-up-password"
BARE: dict[str, Any] = {"trust_env": False, "verify": False, "timeout": 60}
"""Plain HTTP only: the certificates for anything else take longer to load than a request takes."""


@dataclass
class Partner:
    """A registered client."""

    bench: Bench
    client_id: str
    secret: str | None
    redirect_uri: str = CALLBACK

    @property
    def is_public(self) -> bool:
        return self.secret is None

    def query(self, **changes: str | None) -> list[tuple[str, str]]:
        """A good authorization request; a change to None leaves a parameter out."""
        given: dict[str, str | None] = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": "manufacturer:products manufacturer:devices",
            "state": "the-state",
        }
        if self.is_public:
            given |= {"code_challenge": CHALLENGE, "code_challenge_method": "S256"}
        return [(name, value) for name, value in (given | changes).items() if value is not None]

    def code(self, email: str = EMAIL, **changes: str | None) -> str:
        """A code for what this person approved just now."""
        signed_in: dict[str, httpx.Cookies] = vars(self.bench).setdefault("cookies", {})
        with PlainBrowser(self.bench.service.base_url, email, PASSWORD) as browser:
            browser.http.cookies = signed_in.get(email, httpx.Cookies())
            page = browser.open(f"{paths.OAUTH_AUTHORIZE}?{urlencode(self.query(**changes))}")
            answer = browser.send(page, "approve")
            signed_in[email] = browser.http.cookies
        assert answer.status_code == 303, answer.text
        return parameters_of(answer.headers["location"])["code"]

    def form(self, **fields: str | None) -> dict[str, str]:
        """Fields with this client's own credentials; a field that is None is left out."""
        own = {"client_id": self.client_id, "client_secret": self.secret}
        return {name: value for name, value in (own | fields).items() if value is not None}

    def exchange(self, code: str, **changes: str | None) -> httpx.Response:
        """The code for tokens."""
        fields = {"grant_type": "authorization_code", "code": code, "redirect_uri": self.redirect_uri}
        verifier = {"code_verifier": VERIFIER} if self.is_public else {}
        return self.post(paths.OAUTH_TOKEN, data=self.form(**{**fields, **verifier, **changes}))

    def refresh(self, token: str, **changes: str | None) -> httpx.Response:
        """The next pair."""
        fields = {"grant_type": "refresh_token", "refresh_token": token}
        return self.post(paths.OAUTH_TOKEN, data=self.form(**{**fields, **changes}))

    def tokens(self, **changes: str | None) -> dict[str, Any]:
        """A first pair."""
        answer = self.exchange(self.code(**changes))
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, **request: Any) -> httpx.Response:
        """Any request, without any credentials but those in it."""
        return httpx.post(self.bench.service.base_url + path, **BARE, **request)

    def call(self, token: str, path: str = "/products") -> httpx.Response:
        """The API with an access token."""
        headers = {"authorization": f"Bearer {token}"}
        return httpx.get(self.bench.service.base_url + path, headers=headers, **BARE)

    def authorize(self, pairs: list[tuple[str, str]] | None = None, **changes: str | None) -> httpx.Response:
        """What the browser is answered."""
        query = self.query(**changes) if pairs is None else pairs
        url = self.bench.service.base_url + paths.OAUTH_AUTHORIZE
        return httpx.get(url, params=query, **BARE)


def partner(bench: Bench, *, public: bool = False, **settings: Any) -> Partner:
    """A newly registered client."""
    made = bench.add_client("Workshop Planner", [CALLBACK], public=public, **settings)
    return Partner(bench, made.client_id, made.client_secret)


def rows(bench: Bench, table: str) -> list[Any]:
    """What is stored."""
    return bench.service.do(lambda service: service.db.sql.execute(f"SELECT * FROM {table}").fetchall())


def basic(client_id: str, secret: str) -> dict[str, str]:
    """The header of HTTP Basic, encoded as RFC 6749 says."""
    text = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return {"authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}


def sent_back(answer: httpx.Response) -> dict[str, str]:
    """The parameters that a redirect to the partner carries."""
    assert answer.status_code == 303, (answer.status_code, answer.text[:300])
    location = answer.headers["location"]
    assert location.startswith(CALLBACK + "?"), location
    return dict(parse_qsl(urlsplit(location).query, keep_blank_values=True))


def refused(answer: httpx.Response, status: int, error: str) -> None:
    """An error of the token endpoint, with everything that it must have."""
    body = answer.json()
    assert (answer.status_code, body["error"]) == (status, error), answer.text
    assert body["message"] == body["error_description"] != ""
    assert set(body) == {"error", "error_description", "message"}
    # RFC 6749, section 5.2
    assert all(" " <= c <= "~" and c not in '"\\' for c in body["error_description"]), body
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["pragma"] == "no-cache"
