"""What a browser is sent with, which of the answers that it may come back with are believed, and token files."""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from agent.errors import ConfigurationError, ServerFault, UnexpectedAnswer
from agent.wire import paths
from agent.wire.connection import Connection
from agent.wire.secret import Secret
from simulator.login.errors import SignInEnded, SignInFailed
from simulator.login.flow import Endpoints, SignIn, code_of, find_endpoints, query_of
from simulator.login.tokens import TokenFile

ISSUER = "https://service.test"
REDIRECT = "http://127.0.0.1:8976/callback"
STATE = "the-state"
ANNOUNCED = Endpoints(f"{ISSUER}/authorize", "", ISSUER, sends_iss=True)
DOCUMENT = {
    "issuer": ISSUER,
    "authorization_endpoint": "https://login.test/authorize",
    "token_endpoint": f"{ISSUER}/oauth/token",
    "code_challenge_methods_supported": ["S256"],
    "authorization_response_iss_parameter_supported": True,
}


def came_back(**members: str) -> str:
    return urlencode({"state": STATE, "code": "the-code", "iss": ISSUER, **members})


@pytest.mark.parametrize("secret", [None, Secret("a secret of the client")])
def test_the_browser_is_sent_with_the_specifications_parameters(secret):
    with Connection(ISSUER) as connection:
        urls = [
            SignIn(connection, Endpoints(f"{ISSUER}/a?tenant=1"), "app", secret, "one  two", REDIRECT).url
            for _ in range(2)
        ]
    first, second = ({name: value for name, (value,) in parse_qs(urlsplit(url).query).items()} for url in urls)
    pkce = {"code_challenge": first.get("code_challenge"), "code_challenge_method": "S256"} if secret is None else {}
    assert first == {
        "tenant": "1",
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
    assert code_of(came_back(), STATE, ANNOUNCED) == "the-code"
    without_iss = urlencode({"state": STATE, "code": "the-code"})
    assert code_of(without_iss, STATE, Endpoints("", "", ISSUER)) == "the-code"
    assert code_of(came_back(iss="https://any.test"), STATE, Endpoints("")) == "the-code"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (came_back(state="other"), "state does not match"),
        (came_back(state="ä", error="access_denied"), "state does not match"),
        ("code=the-code", "state does not match"),
        (came_back(iss="https://evil.test"), r"not from https://service\.test"),
        (came_back(iss=ISSUER + "/"), r"not from https://service\.test"),
        (urlencode({"state": STATE, "code": "the-code"}), "iss is missing"),
        (came_back() + "&code=other", "twice"),
        (came_back() + f"&state={STATE}", "twice"),
        (came_back(error="access_denied"), "denied"),
        (came_back(error="invalid_scope", error_description="no\nsuch scope"), "no such scope.*check --scope"),
        (came_back(code=""), "without a code"),
        ("&".join(f"a{n}=1" for n in range(60)), "more than 50"),
    ],
)
def test_any_other_answer_is_refused_with_a_sentence(query, words):
    with pytest.raises(SignInFailed, match=words):
        code_of(query, STATE, ANNOUNCED)


def test_a_pasted_address_is_read_with_its_wrapping():
    for pasted in (f"  {REDIRECT}?code=a&state=b \n", f"'{REDIRECT}?code=a&state=b#x'", "code=a&state=b"):
        assert query_of(pasted) == "code=a&state=b"
    for pasted in ("", "hello", REDIRECT, f"{REDIRECT}?", "http://[?x"):
        with pytest.raises(SignInFailed, match="copy all"):
            query_of(pasted)


def find(answers, base_url=ISSUER, auth_url=None) -> Endpoints:
    def answer(request):
        status, body = answers.get(request.url.path, (404, {"error": "not_found"}))
        return httpx.Response(status, json=body)

    with Connection(base_url, transport=httpx.MockTransport(answer)) as connection:
        return find_endpoints(connection, auth_url)


def test_a_service_says_itself_where_its_endpoints_are():
    found = find({paths.OAUTH_METADATA: (200, DOCUMENT)})
    assert found == Endpoints("https://login.test/authorize", f"{ISSUER}/oauth/token", ISSUER, sends_iss=True)
    document = {**DOCUMENT, "issuer": f"{ISSUER}/v1", "token_endpoint": f"{ISSUER}/v1/t"}
    for place in (f"{paths.OAUTH_METADATA}/v1", f"/v1{paths.OAUTH_METADATA}"):
        assert find({place: (200, document)}, f"{ISSUER}/v1").token == f"{ISSUER}/v1/t"


@pytest.mark.parametrize("status", [401, 404, 405])
def test_a_plain_server_has_the_specifications_paths(status):
    answers = {paths.OAUTH_METADATA: (status, {"error": "x"})}
    assert find(answers) == Endpoints(f"{ISSUER}/partner-oauth-authorize")
    assert find(answers, auth_url="https://login.test/").authorize == "https://login.test/partner-oauth-authorize"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"issuer": "https://evil.test"}, "calls itself https://evil"),
        ({"issuer": 7}, "calls itself nothing"),
        ({"token_endpoint": "https://evil.test/token"}, "another origin"),
        ({"token_endpoint": "http://service.test/token"}, "another origin"),
        ({"authorization_endpoint": "http://login.test/authorize"}, "is not https"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "is not https"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
    ],
)
def test_a_document_that_leads_astray_is_refused(changes, words):
    with pytest.raises(ConfigurationError, match=words):
        find({paths.OAUTH_METADATA: (200, {**DOCUMENT, **changes})})


def test_a_failing_service_is_not_taken_for_a_plain_one():
    for status, error in ((503, ServerFault), (302, UnexpectedAnswer)):
        with pytest.raises(error):
            find({paths.OAUTH_METADATA: (status, {"error": "down"})})
    with pytest.raises(ConfigurationError, match="--auth-url https"):
        find({}, "http://service.test")


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
        TokenFile(tmp_path / "t").read()
    assert "so secret" not in str(caught.value)
