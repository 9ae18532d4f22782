"""``/partner-oauth-authorize``: every request that is not put to the user, and what the pages' forms do."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.api.oauth import CALLBACK, EMAIL, PASSWORD, Partner, partner, sent_back
from tests.support.partner import CHALLENGE, VERIFIER, PlainBrowser, parameters_of, request_query
from tests.support.service_running import running

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
        bench.add_user(EMAIL, PASSWORD)
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


def test_the_address_keeps_the_query_that_it_is_registered_with(bench):
    uri = "https://partner.example/callback?tenant=7"
    made = bench.add_client("With a query", [uri, CALLBACK], public=True)
    theirs = Partner(bench, made.client_id, None, uri)
    answer = theirs.authorize(scope=None)
    assert answer.headers["location"].startswith(f"{uri}&error=invalid_scope&")


# --- the pages ------------------------------------------------------------------------------------------------------

ADDRESS = "/partner-oauth-authorize"


@pytest.fixture
def visitor(bench) -> Iterator[PlainBrowser]:
    with PlainBrowser(bench.service.base_url) as browser:
        yield browser


@pytest.mark.parametrize("state", ["a state/with?signs=&ü東\U0001f680" + "x" * 500, None])
def test_the_way_through_the_pages_brings_a_code_the_unchanged_state_and_the_issuer(bench, public, visitor, state):
    query = request_query(public.client_id, CALLBACK, state=state)
    location = visitor.approve(query, EMAIL, PASSWORD)
    assert location.startswith(f"{CALLBACK}?code=")
    back = parameters_of(location)
    assert len(back["code"]) >= 43
    assert public.exchange(back.pop("code")).status_code == 200
    assert back == {"iss": bench.service.base_url} | ({} if state is None else {"state": state})


def test_a_no_goes_back_without_a_sign_in_and_with_one(public, visitor):
    query = f"{ADDRESS}?{request_query(public.client_id, CALLBACK)}"
    assert sent_back(visitor.send(visitor.open(query), "deny"))["error"] == "access_denied"
    assert sent_back(visitor.send(visitor.sign_in(query, EMAIL, PASSWORD), "deny"))["error"] == "access_denied"


def test_every_page_keeps_itself_to_itself(public, visitor):
    query = f"{ADDRESS}?{request_query(public.client_id, CALLBACK)}"
    answers = [visitor.open(query).answer, visitor.sign_in(query, EMAIL, PASSWORD).answer, visitor.open(ADDRESS).answer]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert "<script" not in answer.text
    assert "form-action 'self' https:;" in answers[0].headers["content-security-policy"]
    for name in re.findall(r'"(/oauth/static/[^"]+)"', answers[0].text):
        assert visitor.http.get(name).status_code == 200


def test_a_form_works_only_from_a_page_that_this_browser_was_shown(bench, public, visitor):
    query = f"{ADDRESS}?{request_query(public.client_id, CALLBACK)}"
    page = visitor.sign_in(query, EMAIL, PASSWORD)
    with PlainBrowser(bench.service.base_url) as other:
        theirs = other.sign_in(query, EMAIL, PASSWORD)
        for csrf in ("", "x", theirs.csrf, page.csrf[:-1], "ü"):
            refused = visitor.send(page, "approve", csrf=csrf)
            assert (refused.status_code, "location" in refused.headers) == (403, False)
            assert "This page is too old" in refused.text
    assert visitor.send(page, "approve").headers["location"].startswith(f"{CALLBACK}?code=")


def test_a_sign_in_changes_the_cookie_and_an_old_one_opens_nothing(bench, public, visitor):
    query = f"{ADDRESS}?{request_query(public.client_id, CALLBACK)}"
    cookie = visitor.open(query).answer.headers["set-cookie"]
    assert "httponly" in cookie.lower()
    assert "samesite=lax" in cookie.lower()
    before = dict(visitor.http.cookies)
    page = visitor.sign_in(query, EMAIL, PASSWORD)
    signed_in = dict(visitor.http.cookies)
    assert before != signed_in
    visitor.send(page, "switch")
    for jar in (before, signed_in):
        visitor.http.cookies.clear()
        visitor.http.cookies.update(jar)
        assert 'name="password"' in visitor.open(query).answer.text


def test_a_sign_in_ends_after_an_hour_and_nothing_is_approved_without_one(public, bench, visitor):
    query = f"{ADDRESS}?{request_query(public.client_id, CALLBACK)}"
    page = visitor.sign_in(query, EMAIL, PASSWORD)
    bench.clock.advance(3_600)
    answer = visitor.send(page, "approve")
    assert (answer.status_code, answer.headers["location"].startswith(ADDRESS)) == (303, True)
    assert 'name="password"' in visitor.open(query).answer.text


def test_a_wrong_email_and_a_wrong_password_look_the_same_and_what_was_typed_stays_text(public, visitor):
    query = f"{ADDRESS}?{request_query(public.client_id, CALLBACK)}"
    texts = set()
    for email, password in ((EMAIL, "wrong"), ("nobody@example.com", PASSWORD), ('"><script>', ""), ("x" * 9_999, "y")):
        page = visitor.open(query)
        answer = visitor.send(page, "sign_in", email=email, password=password)
        assert answer.status_code == 303
        again = visitor.open(answer.headers["location"])
        assert "<script" not in again.answer.text
        assert PASSWORD not in again.answer.text
        texts.add(again.text)
        assert "The email or the password is wrong." not in visitor.open(query).text  # it is told once
    assert len(texts) == 1


def test_what_is_no_form_is_400(public, visitor):
    address = f"/partner-oauth-answer?{request_query(public.client_id, CALLBACK)}"
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert visitor.http.post(address, content=b"%FF=1", headers=form).status_code == 400
    assert visitor.http.post(address, json={"answer": "approve"}).status_code == 415
    assert visitor.http.get("/oauth/static/../pages.py").status_code in {401, 404}
