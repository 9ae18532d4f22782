"""``GET /partner-oauth-authorize``: every request that is not put to the user, by raw HTTP."""

from __future__ import annotations

import pytest

from tests.contract.oauth import CALLBACK, EMAIL, PASSWORD, Partner, partner, sent_back
from tests.partner import CHALLENGE, VERIFIER, PlainBrowser, parameters_of, request_query
from tests.service_running import running

"""Not https, where the pages' cookie would be kept from the plain HTTP of a test."""
HOSTILE = {
    "quotes": "'\"`; DROP TABLE grants; --",
    "markup": "<script>alert(1)</script>",
    "NUL": "a\0b",
    "non-ASCII": "Zürich 東京 \U0001f680",
    "a line break": "a\r\nLocation: https://evil.example/",
    "10 kB": "x" * 10_000,
    "an address": "https://evil.example/",
    "an address without a scheme": "//evil.example/",
    "a script address": "javascript:alert(1)",
}


@pytest.fixture(scope="module")
def bench():
    with running() as bench:
        bench.service.add_user(EMAIL, PASSWORD)
        yield bench


@pytest.fixture(scope="module")
def confidential(bench) -> Partner:
    return partner(bench, scopes=["manufacturer:products", "manufacturer:devices"])


@pytest.fixture(scope="module")
def public(bench) -> Partner:
    return partner(bench, public=True)


def _is_error_page(partner: Partner, pairs, word: str) -> None:
    page = partner.authorize(pairs)
    assert page.status_code == 400
    assert "location" not in page.headers
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "evil.example" not in page.headers.get("content-security-policy", "")
    from_json = partner.bench.http.get("/partner-oauth-authorize", params=pairs, headers={"accept": "application/json"})
    assert (from_json.status_code, from_json.json()["error"]) == (400, word)
    assert from_json.json()["message"]
    assert "location" not in from_json.headers


@pytest.mark.parametrize("client_id", [None, "", "nobody", "NOBODY", *HOSTILE.values()])
def test_an_unknown_client_gets_the_error_page_and_never_a_redirect(confidential, client_id):
    _is_error_page(confidential, confidential.query(client_id=client_id), "invalid_client")


def test_sign_ins_own_client_never_takes_part(confidential):
    _is_error_page(confidential, confidential.query(client_id="sign-in"), "invalid_redirect_uri")


@pytest.mark.parametrize(
    "redirect_uri",
    [
        None,
        "",
        CALLBACK + "/",
        CALLBACK + "?",
        CALLBACK + "?a=b",
        CALLBACK + "#",
        CALLBACK.upper(),
        CALLBACK.replace("https", "http"),
        CALLBACK.replace("partner.", "partner.evil."),
        CALLBACK.replace("https://", "https://user@"),
        CALLBACK.replace("/callback", "/x/../callback"),
        CALLBACK.replace("/callback", "/%63allback"),
        f" {CALLBACK}",
        f"{CALLBACK}\0",
        "https://partner.example:443/callback",
        *HOSTILE.values(),
    ],
)
def test_a_redirect_uri_that_is_not_a_registered_one_to_the_letter_gets_the_error_page(confidential, redirect_uri):
    _is_error_page(confidential, confidential.query(redirect_uri=redirect_uri), "invalid_redirect_uri")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"response_type": None}, "invalid_request"),
        ({"response_type": ""}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_type": "code token"}, "unsupported_response_type"),
        ({"response_type": "CODE"}, "unsupported_response_type"),
        ({"scope": None}, "invalid_scope"),
        ({"scope": ""}, "invalid_scope"),
        ({"scope": " "}, "invalid_scope"),
        ({"scope": "manufacturer:products manufacturer:rules"}, "invalid_scope"),  # no partial grant
        ({"scope": "manufacturer:*"}, "invalid_scope"),
        ({"scope": "manufacturer:products,manufacturer:devices"}, "invalid_scope"),
        ({"scope": "manufacturer:products\tmanufacturer:devices"}, "invalid_scope"),
        ({"scope": "MANUFACTURER:PRODUCTS"}, "invalid_scope"),
        ({"code_challenge": CHALLENGE}, "invalid_request"),
        ({"code_challenge": CHALLENGE, "code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": "S256"}, "invalid_request"),
    ],
)
def test_a_request_that_cannot_be_granted_goes_back_with_an_error_the_state_and_the_issuer(
    bench, confidential, changes, error
):
    back = sent_back(confidential.authorize(**changes))
    assert back.pop("error_description")
    assert back == {"error": error, "state": "the-state", "iss": bench.service.base_url}


@pytest.mark.parametrize(
    "changes",
    [
        {"code_challenge": None},
        {"code_challenge": None, "code_challenge_method": None},
        {"code_challenge_method": None},
        {"code_challenge_method": "plain"},
        {"code_challenge_method": "s256"},
        {"code_challenge_method": "S512"},
        {"code_challenge": "short"},
        {"code_challenge": CHALLENGE + "="},
        {"code_challenge": CHALLENGE[:-1] + "+"},
        {"code_challenge": VERIFIER * 2},
    ],
)
def test_a_public_client_must_use_pkce_with_s256(public, changes):
    assert sent_back(public.authorize(**changes))["error"] == "invalid_request"


@pytest.mark.parametrize("name", ["scope", "response_type", "state", "code_challenge", "unknown"])
def test_a_repeated_parameter_goes_back_with_invalid_request(public, name):
    pairs = [*public.query(unknown="x"), (name, "again")]
    back = sent_back(public.authorize(pairs))
    assert back["error"] == "invalid_request"
    assert ("state" in back) == (name != "state")


@pytest.mark.parametrize("name", ["client_id", "redirect_uri"])
def test_a_repeated_client_or_address_gets_the_error_page(public, name):
    pairs = public.query()
    word = {"client_id": "invalid_client", "redirect_uri": "invalid_redirect_uri"}[name]
    for again in (dict(pairs)[name], "https://evil.example/"):
        _is_error_page(public, [*pairs, (name, again)], word)
        _is_error_page(public, [(name, again), *pairs], word)


@pytest.mark.parametrize("query", ["%FF", "client_id=%ZZ&x=%FF", "&".join(f"a{n}=1" for n in range(60))])
def test_a_query_that_cannot_be_read_gets_the_error_page(bench, query):
    answer = bench.http.get(f"/partner-oauth-authorize?{query}", headers={"accept": "application/json"})
    assert answer.status_code == 400
    assert "location" not in answer.headers


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_parameter_is_a_documented_answer_and_no_way_elsewhere(bench, public, value):
    for name in ("scope", "response_type", "state", "code_challenge", "code_challenge_method", "nonce"):
        answer = public.authorize(**{name: value})
        assert answer.status_code in {200, 303}, name
        if answer.status_code == 303:
            back = sent_back(answer)
            assert back["error"] in {"invalid_request", "invalid_scope", "unsupported_response_type"}, name
            assert back["iss"] == bench.service.base_url
        else:
            assert name in {"state", "nonce"}
            assert "<script>alert" not in answer.text, name


def test_the_way_through_the_pages_brings_a_code_the_unchanged_state_and_the_issuer(bench, public):
    state = "a state/with?signs=&ü東\U0001f680" + "x" * 500
    query = request_query(public.client_id, CALLBACK, state=state)
    with PlainBrowser(bench.service.base_url) as browser:
        location = browser.approve(query, EMAIL, PASSWORD)
    assert location.startswith(f"{CALLBACK}?code=")
    back = parameters_of(location)
    assert (back["state"], back["iss"], set(back)) == (state, bench.service.base_url, {"code", "state", "iss"})
    assert len(back["code"]) >= 43
    assert public.exchange(back["code"]).status_code == 200


def test_a_request_without_state_comes_back_without_one(bench, public):
    with PlainBrowser(bench.service.base_url) as browser:
        back = parameters_of(browser.approve(request_query(public.client_id, CALLBACK, state=None), EMAIL, PASSWORD))
    assert set(back) == {"code", "iss"}


def test_the_address_keeps_the_query_that_it_is_registered_with(bench):
    uri = "https://partner.example/callback?tenant=7"
    made = bench.service.add_client("With a query", [uri, CALLBACK], public=True)
    theirs = Partner(bench, made.client_id, None, uri)
    answer = theirs.authorize(scope=None)
    assert answer.headers["location"].startswith(f"{uri}&error=invalid_scope&")
