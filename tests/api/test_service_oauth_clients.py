"""Registering partner applications, and which web pages may call the service from a browser."""

from __future__ import annotations

import httpx
import pytest

from simulator.service.scopes import SCOPES
from tests.api.oauth import BARE, CALLBACK, EMAIL, PASSWORD, Partner, partner, rows
from tests.support.partner import VERIFIER
from tests.support.service_running import running

SEED = """
users:
  - {email: new@example.com, password: made-up-password, has_account: false}
clients:
  - client_id: fleet-view
    client_secret: made-up-secret-of-more-than-32-characters
    name: Fleet View
    redirect_uris: ["https://partner.example/callback"]
    scopes: ["manufacturer:products", "manufacturer:devices"]
    description: Shows a fleet on a map.
  - {client_id: pocket, public: true, name: Pocket, redirect_uris: ["https://partner.example/callback"]}
"""


@pytest.fixture
def bench():
    with running() as bench:
        bench.add_user(EMAIL, PASSWORD)
        yield bench


def _add(bench, *, api_key=None, **members) -> httpx.Response:
    query = {} if api_key is None else {"api_key": api_key}
    body = {"name": "Planner", "redirect_uris": [CALLBACK], **members}
    return bench.http.post("/_emulator/clients", params=query, json=body)


def test_a_registered_clients_secret_is_shown_once_and_works(bench):
    answer = _add(bench, scopes=["manufacturer:products", "manufacturer:devices"])
    assert answer.status_code == 201
    assert answer.headers["cache-control"] == "no-store"
    made = answer.json()
    assert len(made["client_secret"]) >= 43
    assert made["scopes"] == ["manufacturer:products", "manufacturer:devices"]
    Partner(bench, made["client_id"], made["client_secret"]).tokens()
    assert made["client_secret"] not in repr([tuple(row) for row in rows(bench, "partner_clients")])
    public = _add(bench, public=True, client_id="pocket").json()
    assert (public["client_id"], public["client_secret"], public["scopes"]) == ("pocket", None, list(SCOPES))
    Partner(bench, "pocket", None).tokens()


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"name": None}, "name"),
        ({"redirect_uris": []}, "redirect_uris"),
        ({"redirect_uris": "https://partner.example/callback"}, "redirect_uris"),
        ({"redirect_uris": ["http://partner.example/callback"]}, "http is for this machine only"),
        ({"redirect_uris": ["javascript:alert(1)"]}, "reversed domain name"),
        ({"scopes": ["everything"]}, "scopes"),
        ({"client_id": "a b"}, "client_id"),
        ({"client_id": "sign-in"}, "client_id"),
        ({"client_secret": "short"}, "client_secret must have 32"),
        ({"client_secret": "x" * 40, "public": True}, "a public client has no client_secret"),
        ({"grant_types": ["password"]}, "grant_types"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_a_client_that_cannot_be_is_400_with_a_sentence(bench, members, told):
    answer = _add(bench, **members)
    assert answer.status_code == 400, answer.text
    assert told in answer.text


def test_an_id_is_taken_once_on_the_whole_service(bench):
    other = bench.add_account("other")
    assert _add(bench, client_id="planner").status_code == 201
    for api_key in (None, other.api_key):
        again = _add(bench, client_id="planner", api_key=api_key)
        assert (again.status_code, again.json()["error"]) == (409, "client_exists")
    assert _add(bench, api_key="mk_none").status_code == 404
    refused = _add(bench, client_secret="short")
    assert (refused.status_code, "client_secret must have" in refused.text) == (400, True)


def test_a_seed_changes_a_client_and_leaves_its_tokens_and_another_accounts_alone(bench):
    def sow(text: str, **query: str) -> httpx.Response:
        headers = {"content-type": "application/yaml"}
        return bench.http.post("/_emulator/seed", content=text, headers=headers, params=query)

    assert sow(SEED).json() == {"created": 3, "changed": 0, "unchanged": 0}
    made = Partner(bench, "fleet-view", "made-up-secret-of-more-than-32-characters")
    token = made.tokens(email="new@example.com")["access_token"]
    renamed = sow(SEED.replace("name: Fleet View", "name: Fleet Map")).json()
    assert renamed == {"created": 0, "changed": 1, "unchanged": 2}  # that person has an account since
    assert made.call(token).status_code == 200
    other = bench.add_account("other")
    theirs = sow(SEED, api_key=other.api_key)
    assert theirs.status_code == 400
    assert "client_id: there is a client 'fleet-view' already" in theirs.text
    without = sow(SEED.replace("client_secret: made-up", "# client_secret: made-up"))
    assert (without.status_code, "give client_secret, or public: true" in without.text) == (400, True)


def _origin_headers(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}


def test_pages_of_public_clients_may_call_from_a_browser_and_others_may_not(bench):
    partner(bench, public=True)
    partner_of_other = bench.add_client("Server", ["https://server.example/callback"])
    assert partner_of_other.client_secret
    base = bench.service.base_url
    allowed, refused = (
        "https://partner.example",
        ["https://server.example", "https://evil.example", "null", "http://partner.example"],
    )
    preflight = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    for path in ("/functions/v1/partner-oauth-token", "/functions/v1/partner-oauth-revoke", "/products"):
        answer = httpx.options(base + path, headers={"origin": allowed, **preflight}, **BARE)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == allowed
        assert "authorization" in answer.headers["access-control-allow-headers"].lower()
        assert "x-api-key" not in answer.headers["access-control-allow-headers"].lower()
        assert "access-control-allow-credentials" not in answer.headers
        assert "Origin" in answer.headers["vary"]
        for origin in refused:
            answer = httpx.options(base + path, headers={"origin": origin, **preflight}, **BARE)
            assert answer.status_code == 400
            assert "access-control-allow-origin" not in answer.headers


def test_a_single_page_application_gets_tokens_and_calls_the_api_across_origins(bench):
    made = partner(bench, public=True)
    origin = {"origin": "https://partner.example"}
    fields = {"grant_type": "authorization_code", "redirect_uri": CALLBACK, "code_verifier": VERIFIER}
    answer = made.post("/functions/v1/partner-oauth-token", data=made.form(**fields, code=made.code()), headers=origin)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://partner.example"
    wrong = made.post("/functions/v1/partner-oauth-token", data=made.form(**fields, code="x"), headers=origin)
    assert wrong.headers["access-control-allow-origin"] == "https://partner.example"  # so that the page reads the error
    headers = {**origin, "authorization": f"Bearer {answer.json()['access_token']}"}
    listed = httpx.get(bench.service.base_url + "/products", headers=headers, **BARE)
    assert (listed.status_code, listed.headers["access-control-allow-origin"]) == (200, "https://partner.example")
    assert "ratelimit" in listed.headers["access-control-expose-headers"].lower()
    elsewhere = httpx.get(
        bench.service.base_url + "/products", headers={**headers, "origin": "https://e.example"}, **BARE
    )
    assert "access-control-allow-origin" not in elsewhere.headers


def test_pages_and_control_paths_are_nobody_elses(bench):
    partner(bench, public=True)
    for path in ("/partner-oauth-authorize", "/_emulator/health"):
        for origin in ("https://partner.example", "https://evil.example"):
            answer = httpx.get(bench.service.base_url + path, headers={"origin": origin}, **BARE)
            assert _origin_headers(answer) == {}
