from __future__ import annotations

import httpx
import pytest

from agent.errors import ConfigurationError
from agent.wire.auth import BearerToken, Credential, KeyPair, origin_of
from agent.wire.secret import Secret, redact

KEYS = ("x-api-key", "x-secret-key")


def headers_of(auth: Credential, url: str) -> httpx.Headers:
    return next(iter(auth.auth_flow(httpx.Request("GET", url)))).headers


@pytest.fixture
def pair() -> KeyPair:
    return KeyPair("mk_made_up", Secret("msk_made_up"))


def test_both_keys_go_with_every_request_to_the_bound_origin(pair):
    headers = headers_of(pair.bound_to(httpx.URL("https://service.test/base")), "https://SERVICE.test:443/other")
    assert [headers[name] for name in KEYS] == ["mk_made_up", "msk_made_up"]


@pytest.mark.parametrize(
    "url",
    ["http://service.test/", "https://other.test/", "https://service.test:444/", "https://service.test.evil.test/"],
)
def test_no_key_goes_to_another_origin(pair, url):
    headers = headers_of(pair.bound_to(httpx.URL("https://service.test/base")), url)
    assert not [name for name in KEYS if name in headers]


def test_a_key_pair_that_is_bound_to_nothing_goes_nowhere(pair):
    assert not [name for name in KEYS if name in headers_of(pair, "https://service.test/")]


def test_a_bearer_token_goes_as_authorization():
    token = BearerToken(Secret("made-up")).bound_to(httpx.URL("https://service.test"))
    assert headers_of(token, "https://service.test/x")["authorization"] == "Bearer made-up"
    assert "authorization" not in headers_of(token, "https://other.test/x")


@pytest.mark.parametrize("key", ["", "msk a", "msk_a\n", "msk_ä", "msk_\0", " msk_a"])
def test_a_key_that_cannot_be_a_header_is_refused_without_showing_it(key):
    with pytest.raises(ConfigurationError) as caught:
        KeyPair("mk_a", Secret(key))
    assert "secret_key" in str(caught.value)
    assert not key.strip() or key.strip() not in str(caught.value)
    with pytest.raises(ConfigurationError, match="token"):
        BearerToken(Secret(key))


def test_swapped_keys_are_told_before_the_secret_one_leaves_as_the_public_one():
    with pytest.raises(ConfigurationError, match="swap") as caught:
        KeyPair("msk_made_up", Secret("mk_made_up"))
    assert "msk_made_up" not in str(caught.value)


def test_all_faults_of_a_key_pair_are_told_together():
    with pytest.raises(ConfigurationError) as caught:
        KeyPair("", Secret(""))
    assert len(caught.value.faults) == 2


def test_a_credential_never_prints(pair):
    for shown in (repr(pair), str(pair), repr(BearerToken(Secret("made-up-token")))):
        assert "msk_made_up" not in shown
        assert "made-up-token" not in shown


@pytest.mark.parametrize(
    "text", ["key msk_made_up is bad", "msk_other/key+x=", "Bearer abc.def-ghi", "x:msk_made_up,y:msk_made_up"]
)
def test_secrets_in_other_peoples_words_are_masked(pair, text):
    shown = pair.redact(text)
    assert "made_up" not in shown
    assert "abc" not in shown
    assert "other" not in shown
    assert "**********" in shown


def test_a_token_of_any_form_is_masked_by_its_own_credential():
    assert BearerToken(Secret("zzz")).redact("the token zzz is old") == "the token ********** is old"
    assert redact("nothing secret: mk_public") == "nothing secret: mk_public"
    assert redact("somebody pasted dat_0123456789abcdefABCDEF0123456789") == "somebody pasted **********"


def test_an_origin_is_scheme_host_and_port():
    assert origin_of(httpx.URL("http://A.test/x")) == "http://a.test:80"
    assert origin_of(httpx.URL("https://a.test:8443")) == "https://a.test:8443"
