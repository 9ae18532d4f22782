"""What a browser is sent with, which of the answers that it may come back with are believed, and token files."""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from agent.errors import ConfigurationError
from agent.wire.client import Connection
from agent.wire.secret import MASK, Secret, redact
from simulator.login.errors import SignInEnded, SignInFailed
from simulator.login.flow import SignIn, code_of
from simulator.login.tokens import TokenSet, read_tokens

ISSUER = "https://service.test"
REDIRECT = "http://127.0.0.1:8976/callback"
STATE = "the-state"


def came_back(**members: str) -> str:
    return urlencode({"state": STATE, "code": "the-code", **members})


@pytest.mark.parametrize("secret", [None, Secret("a secret of the client")])
def test_the_browser_is_sent_with_the_specifications_parameters(secret):
    with Connection(ISSUER) as connection:
        urls = [SignIn(connection, "app", secret, "one two", REDIRECT).url for _ in range(2)]
    first, second = ({name: value for name, (value,) in parse_qs(urlsplit(url).query).items()} for url in urls)
    pkce = {"code_challenge": first.get("code_challenge"), "code_challenge_method": "S256"} if secret is None else {}
    assert first == {
        "client_id": "app",
        "redirect_uri": REDIRECT,
        "scope": "one two",
        "response_type": "code",
        "state": first["state"],
        **pkce,
    }
    assert first["state"] != second["state"]
    assert secret is not None or len(first["code_challenge"]) == 43


def test_the_code_is_taken_from_an_answer_to_this_request():
    assert code_of(came_back(), STATE) == "the-code"
    assert code_of(came_back(iss=ISSUER), STATE) == "the-code"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (came_back(state="other"), "state does not match"),
        (came_back(state="ä", error="access_denied"), "state does not match"),
        ("code=the-code", "state does not match"),
        (came_back(error="access_denied"), "denied"),
        (came_back(error="invalid_scope", error_description="no\nsuch scope"), "no.such scope.*check --scope"),
        (came_back(code=""), "without a code"),
    ],
)
def test_any_other_answer_is_refused_with_a_sentence(query, words):
    with pytest.raises(SignInFailed, match=words):
        code_of(query, STATE)


def test_a_password_is_typed_on_a_page_with_https_or_on_this_machine():
    for base_url, auth_url in (("http://service.test", None), (ISSUER, "http://login.test"), (ISSUER, "javascript:1")):
        with Connection(base_url) as connection, pytest.raises(ConfigurationError, match="--auth-url https"):
            assert SignIn(connection, "app", None, "one", REDIRECT, auth_url).url
    with Connection("http://127.0.0.1:8080") as connection:
        assert SignIn(connection, "app", None, "one", REDIRECT).url.startswith("http://127.0.0.1:8080/partner-oauth-")
    with Connection("http://service.test") as connection:
        page = SignIn(connection, "app", None, "one", REDIRECT, "https://login.test/").url
    assert page.startswith("https://login.test/partner-oauth-authorize?")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a token alone",
        "[]",
        '{"base_url": "https://a.example", "client_id": "c"}',
        '{"base_url": "ftp://a.example", "client_id": "c", "access_token": "t"}',
        '{"base_url": "https://a.example", "client_id": "c", "access_token": "not-so secret"}',
        '{"base_url": "https://a.example", "client_id": "c", "access_token": ""}',
    ],
)
def test_what_is_no_token_file_is_told_without_its_content(tmp_path, text):
    (tmp_path / "t").write_text(text)
    with pytest.raises(SignInEnded, match="is no token file") as caught:
        read_tokens(tmp_path / "t")
    assert "so secret" not in str(caught.value)


def test_tokens_are_masked_as_soon_as_there_are_any():
    values = {"access_token": Secret("access-1b7e55"), "refresh_token": Secret("refresh-9c02aa")}
    TokenSet(base_url="https://a.example", client_id="c", **values)
    assert redact("access-1b7e55, refresh-9c02aa") == f"{MASK}, {MASK}"
