"""The decisions of partner access by themselves: what a client may be, what a request is, who a client is."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.service.core import token_family as pkce
from simulator.service.core.authorize import AuthorizationRequest, ErrorPage, RedirectError, decide
from simulator.service.core.client import SIGN_IN, Client, check_client, check_redirect_uri, check_secret, origin_of
from simulator.service.core.parameters import parse_pairs, with_query
from simulator.service.core.token_family import Code, Exchange, RefreshToken, TokenVerdict, judge_code, judge_refresh
from simulator.service.oauth.token import Form, read_credentials

CALLBACK = "https://partner.example/callback"
CLIENT = Client("partner-1", "Partner", (CALLBACK,), ("manufacturer:products", "manufacturer:devices"))
GOOD = (
    ("client_id", "partner-1"),
    ("redirect_uri", CALLBACK),
    ("response_type", "code"),
    ("scope", "manufacturer:devices  manufacturer:products manufacturer:devices"),
    ("state", "s"),
    ("code_challenge", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"),
    ("code_challenge_method", "S256"),
)
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"


def test_a_good_request_is_put_to_the_user_and_survives_being_written_down():
    request = decide(GOOD, CLIENT)
    assert request == AuthorizationRequest(
        CLIENT, CALLBACK, ("manufacturer:devices", "manufacturer:products"), "s", dict(GOOD)["code_challenge"]
    )
    assert decide(request.pairs(), CLIENT) == request
    assert request.location("c", "https://i") == f"{CALLBACK}?code=c&state=s&iss=https%3A%2F%2Fi"
    assert request.denied().error == "access_denied"


def test_a_client_that_is_not_the_one_named_is_none():
    assert isinstance(decide(GOOD, dataclasses.replace(CLIENT, client_id="other")), ErrorPage)


NAMES = [name for name, _ in GOOD]
VALUES = st.sampled_from([value for _, value in GOOD]) | st.text(max_size=20)


@given(st.lists(st.tuples(st.sampled_from(NAMES) | st.text(max_size=5), VALUES), max_size=12))
def test_whatever_is_asked_nobody_is_sent_anywhere_but_to_the_registered_address(pairs):
    decision = decide(pairs, CLIENT)
    if isinstance(decision, RedirectError):
        assert decision.location("https://i").startswith(f"{CALLBACK}?error={decision.error}&error_description=")
        assert all(" " <= c <= "~" and c not in '"\\' for c in decision.error_description)
    elif isinstance(decision, AuthorizationRequest):
        assert decision.redirect_uri == CALLBACK
        assert set(decision.scopes) <= set(CLIENT.scopes)
        assert decision.code_challenge is not None


@given(st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_one_wrong_value_is_never_put_to_the_user_with_a_right_answer(changes):
    pairs = tuple({**dict(GOOD), **changes}.items())
    if isinstance(decide(pairs, CLIENT), AuthorizationRequest):
        assert dict(pairs)["response_type"] == "code"
        assert dict(pairs)["code_challenge_method"] == "S256"


def test_the_example_of_rfc_7636_appendix_b():
    challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    assert pkce.challenge_of(VERIFIER) == challenge
    assert pkce.matches(challenge, VERIFIER)
    assert not pkce.matches(challenge, VERIFIER[:-1] + "K")


@pytest.mark.parametrize(("length", "good"), [(42, False), (43, True), (128, True), (129, False)])
def test_a_verifier_has_43_to_128_characters(length, good):
    verifier = "a" * length
    assert pkce.matches(pkce.challenge_of(verifier), verifier) is good
    assert not pkce.matches(pkce.challenge_of("a" * 42 + "+"), "a" * 42 + "+")


@pytest.mark.parametrize(
    "uri",
    [
        "https://partner.example/callback",
        "https://partner.example:8443/callback?tenant=7",
        "http://127.0.0.1:8765/callback",
        "http://[::1]:8765/callback",
        "http://localhost/callback",
        "com.example.app:/callback",
        "com.example.app://callback",
    ],
)
def test_an_address_that_may_be_registered(uri):
    assert check_redirect_uri(uri) is None


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "/callback",
        "partner.example/callback",
        "http://partner.example/callback",
        "http://127.0.0.1.evil.example/callback",
        "http://127.0.0.1@evil.example/callback",
        "https://",
        "https:///callback",
        "https://partner.example/callback#part",
        "https://user:secret@partner.example/callback",
        "https://partner.example:99999/callback",
        "https://partner.example\\@evil.example/callback",
        "https://partner.example/call back",
        "https://pärtner.example/callback",
        "HTTPS://partner.example/callback",
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "app:/callback",
        "https://partner.example/" + "x" * 2_000,
        "https://partner.example/\0",
        "https://[bad/callback",
    ],
)
def test_an_address_that_may_not_be_registered_is_refused_with_a_sentence(uri):
    fault = check_redirect_uri(uri)
    assert fault is not None
    assert "must be" in fault or "reversed domain name" in fault


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"client_id": ""}, "client_id"),
        ({"client_id": "a b"}, "client_id"),
        ({"client_id": SIGN_IN.client_id}, "client_id"),
        ({"name": " "}, "name"),
        ({"name": "a\0"}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"redirect_uris": ()}, "redirect_uris"),
        ({"redirect_uris": (CALLBACK,) * 21}, "redirect_uris"),
        ({"redirect_uris": ("http://a.example",)}, "redirect_uris"),
        ({"scopes": ()}, "scopes"),
        ({"scopes": ("manufacturer:everything",)}, "scopes"),
        ({"grant_types": ("refresh_token",)}, "grant_types"),
        ({"grant_types": ("authorization_code", "password")}, "grant_types"),
        ({"description": "x" * 501}, "description"),
        ({"home_url": "http://partner.example"}, "home_url"),
        ({"logo_url": "javascript:alert(1)"}, "logo_url"),
    ],
)
def test_a_client_that_cannot_be_registered_is_told_why(changes, word):
    assert check_client(CLIENT) == []
    faults = check_client(dataclasses.replace(CLIENT, **changes))
    assert [fault.partition(" ")[0].rstrip(":") for fault in faults] == [word]


def test_a_secret_that_is_given_has_room_for_160_random_bits():
    assert check_secret("x" * 32) is None
    for secret in ("", "x" * 31, "x" * 257, "x" * 40 + " ", "ü" * 40, "x" * 40 + "\0"):
        assert "client_secret must have 32 to 256" in (check_secret(secret) or "")


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://a.example/x?y", "https://a.example"),
        ("https://a.example:443/", "https://a.example"),
        ("https://a.example:8443/", "https://a.example:8443"),
        ("http://127.0.0.1:80/", "http://127.0.0.1"),
        ("http://[::1]:3000/cb", "http://[::1]:3000"),
        ("http://a.example/", None),
        ("com.example.app:/cb", None),
    ],
)
def test_the_origin_is_written_as_a_browser_writes_it(url, origin):
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    ("url", "joined"),
    [
        ("https://a/b", "https://a/b?x=1"),
        ("https://a/b?", "https://a/b?x=1"),
        ("https://a/b?c=2", "https://a/b?c=2&x=1"),
    ],
)
def test_parameters_are_added_to_what_an_address_has(url, joined):
    assert with_query(url, {"x": "1", "y": None}) == joined


@pytest.mark.parametrize("raw", [b"a=%FF", b"\xff", b"&".join([b"a=b"] * 51)])
def test_a_query_that_cannot_be_read_is_refused(raw):
    with pytest.raises(ValueError, match="decode|fields"):
        parse_pairs(raw)


def test_a_form_shows_its_secrets_nowhere():
    form = Form((("client_id", "a"), ("client_secret", "hidden-secret"), ("code", "hidden-code")))
    shown = f"{form!r} {form} {read_credentials(form, None)!r}"
    assert "hidden" not in shown


def test_a_code_that_was_used_is_judged_by_that_alone():
    used = Code("c", CALLBACK, None, expires_ms=10, used_ms=5)
    assert judge_code(used, Exchange("other", "x"), 20)[0] is TokenVerdict.REUSED
    unused = dataclasses.replace(used, used_ms=None)
    assert judge_code(unused, Exchange(CALLBACK, None), 9)[0] is TokenVerdict.GOOD
    assert judge_code(unused, Exchange(CALLBACK, None), 10)[0] is TokenVerdict.OVER


def test_a_refresh_token_that_was_used_is_good_within_the_grace_only():
    used = RefreshToken(expires_ms=1_000, used_ms=100, revoked_ms=None)
    assert judge_refresh(used, 100, 0)[0] is TokenVerdict.REUSED
    assert judge_refresh(used, 109, 10)[0] is TokenVerdict.GOOD
    assert judge_refresh(used, 110, 10)[0] is TokenVerdict.REUSED
    assert judge_refresh(used, 1_000, 10)[0] is TokenVerdict.OVER
    assert judge_refresh(dataclasses.replace(used, revoked_ms=101), 105, 10)[0] is TokenVerdict.OVER
