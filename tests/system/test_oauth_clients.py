"""The whole flow through clients that other people wrote, against the real service over a real socket."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx_oauth.oauth2 import GetAccessTokenError, OAuth2, RefreshTokenError
from oauthlib.oauth2 import InvalidGrantError, MismatchingStateError
from requests_oauthlib import OAuth2Session

from tests.support.node_packages import node_with
from tests.support.partner import CHALLENGE, VERIFIER, PlainBrowser, parameters_of
from tests.support.service_running import Bench, running

NODE_CLIENTS = Path(__file__).with_name("oauth_clients")
EMAIL, PASSWORD = "ada@example.com", "correct horse battery staple"
REDIRECT = "http://127.0.0.1:1/callback"
SCOPES = ["manufacturer:products", "manufacturer:devices"]


@dataclass(frozen=True)
class App:
    """A registered partner application."""

    client_id: str
    secret: str | None


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with running() as found:
        found.add_user(EMAIL, PASSWORD, has_account=False)
        yield found


@pytest.fixture(scope="module")
def apps(bench) -> dict[str, App]:
    made = {}
    for kind in ("public", "confidential"):
        client = bench.add_client(f"A {kind} app", [REDIRECT], scopes=SCOPES, public=kind == "public")
        made[kind] = App(client.client_id, client.client_secret)
    return made


@pytest.fixture(scope="module")
def browser(bench) -> Iterator[PlainBrowser]:
    """A person's browser, signed in."""
    with PlainBrowser(bench.service.base_url, EMAIL, PASSWORD) as found:
        yield found


def approve(browser: PlainBrowser, address: str, said: str = "approve") -> str:
    """Open the address and say yes or no; where the browser is sent then."""
    page = browser.open(address)
    answer = browser.send(page, said)
    assert answer.status_code == 303, answer.text
    location = answer.headers["location"]
    assert location.startswith(REDIRECT), location
    return location


# --- Python -----------------------------------------------------------------------------------------------------


@pytest.fixture
def insecure_transport(monkeypatch):
    """oauthlib insists on https; loopback is the exception it has to be told."""
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")


@pytest.mark.usefixtures("insecure_transport")
@pytest.mark.parametrize("kind", ["public", "confidential"])
def test_requests_oauthlib_goes_the_whole_way(bench, browser, apps, kind):
    url, app = bench.service.base_url, apps[kind]
    token_url = f"{url}/functions/v1/partner-oauth-token"
    secret = {"client_secret": app.secret} if app.secret else {"include_client_id": True}
    pkce = "S256" if kind == "public" else None
    renewed: list[dict[str, Any]] = []
    with OAuth2Session(
        app.client_id,
        redirect_uri=REDIRECT,
        scope=SCOPES,
        pkce=pkce,
        auto_refresh_url=token_url,
        auto_refresh_kwargs={"client_id": app.client_id, "client_secret": app.secret},
        token_updater=renewed.append,
    ) as session:
        session.trust_env = False
        address, _ = session.authorization_url(f"{url}/partner-oauth-authorize")
        back = approve(browser, address)
        token = session.fetch_token(token_url, authorization_response=back, **secret)
        assert (token["token_type"], token["expires_in"]) == ("Bearer", 3600)
        assert sorted(token["scope"]) == sorted(SCOPES)
        assert session.get(f"{url}/products").status_code == 200

        session.token = {**token, "expires_at": time.time() - 1}
        assert session.get(f"{url}/products").status_code == 200
        assert renewed[0]["refresh_token"] != token["refresh_token"]
        with pytest.raises(InvalidGrantError):
            session.refresh_token(token_url, refresh_token=token["refresh_token"], **secret)


@pytest.mark.usefixtures("insecure_transport")
def test_requests_oauthlib_sees_a_state_that_is_not_its_own(bench, browser, apps):
    url, app = bench.service.base_url, apps["public"]
    with OAuth2Session(app.client_id, redirect_uri=REDIRECT, scope=SCOPES, pkce="S256") as session:
        address, state = session.authorization_url(f"{url}/partner-oauth-authorize")
        back = approve(browser, address)
        with pytest.raises(MismatchingStateError):
            session.fetch_token(f"{url}/token", authorization_response=back.replace(state, "other"))


@pytest.mark.parametrize(
    ("kind", "method"),
    [("public", "client_secret_post"), ("confidential", "client_secret_post"), ("confidential", "client_secret_basic")],
)
def test_httpx_oauth_goes_the_whole_way(bench, browser, apps, kind, method):
    asyncio.run(_through_httpx_oauth(bench.service.base_url, browser, apps[kind], method))


async def _through_httpx_oauth(url: str, browser: PlainBrowser, app: App, method: Any) -> None:
    oauth = OAuth2(
        app.client_id,
        app.secret or "",
        f"{url}/partner-oauth-authorize",
        f"{url}/functions/v1/partner-oauth-token",
        refresh_token_endpoint=f"{url}/functions/v1/partner-oauth-token",
        revoke_token_endpoint=f"{url}/functions/v1/partner-oauth-revoke",
        token_endpoint_auth_method=method,
        revocation_endpoint_auth_method=method,
    )
    address = await oauth.get_authorization_url(
        REDIRECT, state=f"state-{method}", scope=SCOPES, code_challenge=CHALLENGE, code_challenge_method="S256"
    )
    came = parameters_of(approve(browser, address))
    assert (came["state"], came["iss"]) == (f"state-{method}", url)
    token = await oauth.get_access_token(came["code"], REDIRECT, VERIFIER)
    assert not token.is_expired()
    with pytest.raises(GetAccessTokenError):
        await oauth.get_access_token("made-up", REDIRECT, VERIFIER)
    renewed = await oauth.refresh_token(token["refresh_token"])
    headers = {"authorization": f"Bearer {renewed['access_token']}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=120) as api:
        assert (await api.get("/products")).status_code == 200
        await oauth.revoke_token(renewed["refresh_token"], "refresh_token")
        with pytest.raises(RefreshTokenError):
            await oauth.refresh_token(renewed["refresh_token"])
        assert (await api.get("/products")).status_code == 401


# --- JavaScript -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def node() -> str:
    """Node with the clients installed from the lock file, once for each checkout."""
    return node_with(NODE_CLIENTS)


def through_node(node: str, library: str, browser: PlainBrowser, app: App, said: str = "approve") -> Any:
    issuer = str(browser.http.base_url).rstrip("/")
    told = {
        "issuer": issuer,
        "client_id": app.client_id,
        "client_secret": app.secret,
        "redirect_uri": REDIRECT,
        "scope": " ".join(SCOPES),
    }
    program = subprocess.Popen(
        [node, NODE_CLIENTS / "flow.mjs", library],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NODE_OPTIONS": ""},
    )
    try:
        program.stdin.write(json.dumps(told) + "\n")
        program.stdin.flush()
        address = program.stdout.readline().strip()
        assert address.startswith(issuer), address + program.stderr.read()
        output, errors = program.communicate(approve(browser, address, said) + "\n", timeout=120)
        assert output, errors
        return json.loads(output)
    finally:
        program.kill()
        program.communicate()


@pytest.mark.parametrize("kind", ["public", "confidential"])
@pytest.mark.parametrize("library", ["oauth4webapi", "openid-client"])
def test_a_node_client_goes_the_whole_way(node, browser, apps, library, kind):
    found = through_node(node, library, browser, apps[kind])
    assert found == {
        "expires_in": 3600,
        "scope": " ".join(SCOPES),
        "rotated": True,
        "call": 200,
        "call_with_the_old_token": {"error": "invalid_token"},
        "call_after_revoking": {"error": "invalid_token"},
        "refresh_after_revoking": {"error": "invalid_grant"},
    }


@pytest.mark.parametrize("library", ["oauth4webapi", "openid-client"])
def test_a_node_client_hears_of_a_no(node, browser, apps, library):
    assert through_node(node, library, browser, apps["public"], "deny") == {"error": "access_denied"}


def test_the_lock_file_names_no_registry():
    lock = (NODE_CLIENTS / "package-lock.json").read_text("utf-8")
    assert "resolved" not in lock
    assert "integrity" in lock
