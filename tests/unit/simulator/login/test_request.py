"""What a browser is sent with, and which of the answers that it may come back with are believed."""

from __future__ import annotations

import base64
import secrets
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from agent.errors import ConfigurationError, ServerFault, UnexpectedAnswer
from agent.wire import paths
from agent.wire.connection import Connection
from agent.wire.secret import Secret
from simulator.login.metadata import Endpoints, find_endpoints
from simulator.login.request import SignInFailed, begin, query_of

ISSUER = "https://service.test"
REDIRECT = "http://127.0.0.1:8976/callback"


def make(*, is_public: bool = True):
    drawn = iter((b"\x01", b"\x02"))
    return begin("app", REDIRECT, "manufacturer:data", lambda size: next(drawn) * size, is_public=is_public)


def came_back(**members: str) -> str:
    return urlencode({"state": make().state.reveal(), "code": "the-code", "iss": ISSUER, **members})


class TestRequest:
    def test_the_browser_is_sent_with_the_specifications_parameters_and_the_hash_of_the_verifier(self):
        request = make()
        address = urlsplit(request.url("https://auth.test/partner-oauth-authorize"))
        query = {name: value for name, (value,) in parse_qs(address.query).items()}
        assert address.path == "/partner-oauth-authorize"
        assert query == {
            "client_id": "app",
            "redirect_uri": REDIRECT,
            "scope": "manufacturer:data",
            "response_type": "code",
            "state": request.state.reveal(),
            "code_challenge": query["code_challenge"],
            "code_challenge_method": "S256",
        }
        assert len(query["code_challenge"]) == 43
        assert request.verifier.reveal() not in address.query

    def test_the_challenge_is_that_of_the_rfc(self):
        # RFC 7636, appendix B: these bytes, this verifier, this challenge.
        octets = base64.urlsafe_b64decode("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk=")
        request = begin("app", REDIRECT, "s", lambda _: octets, is_public=True)
        assert request.verifier == Secret("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")
        assert "code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&" in request.url("https://auth.test/a")

    def test_an_endpoint_keeps_its_own_query(self):
        assert make().url("https://auth.test/a?tenant=1").startswith("https://auth.test/a?tenant=1&client_id=app&")

    def test_a_confidential_client_proves_itself_by_its_secret_alone(self):
        request = make(is_public=False)
        assert request.verifier is None
        assert "code_challenge" not in request.url("https://auth.test/a")

    def test_two_sign_ins_share_nothing(self):
        one, two = (begin("app", REDIRECT, "s", secrets.token_bytes, is_public=True) for _ in range(2))
        assert one.state != two.state
        assert one.verifier != two.verifier

    def test_a_request_never_prints_its_secrets(self):
        request = make()
        assert request.state.reveal() not in repr(request)
        assert request.verifier.reveal() not in repr(request)


class TestAnswer:
    def test_the_code_is_taken_from_an_answer_to_this_request(self):
        assert make().code_of(came_back(), ISSUER, iss_announced=True).reveal() == "the-code"

    @pytest.mark.parametrize("state", ["", "other", "ä", "A" * 43])
    def test_another_state_is_another_sign_in(self, state):
        for query in (came_back(state=state), came_back(state=state, error="access_denied")):
            with pytest.raises(SignInFailed, match="state does not match"):
                make().code_of(query, ISSUER)

    def test_a_missing_state_is_one_too(self):
        with pytest.raises(SignInFailed, match="state does not match"):
            make().code_of("code=the-code", None)

    @pytest.mark.parametrize("iss", ["https://evil.test", "https://service.test/", ""])
    def test_another_issuer_is_a_mix_up(self, iss):
        with pytest.raises(SignInFailed, match=r"not from https://service\.test"):
            make().code_of(came_back(iss=iss), ISSUER)

    def test_an_issuer_that_was_announced_must_be_there_and_one_that_was_not_need_not(self):
        without = urlencode({"state": make().state.reveal(), "code": "the-code"})
        with pytest.raises(SignInFailed, match="iss is missing"):
            make().code_of(without, ISSUER, iss_announced=True)
        assert make().code_of(without, ISSUER).reveal() == "the-code"
        assert make().code_of(came_back(iss="https://anything.test"), None).reveal() == "the-code"

    @pytest.mark.parametrize("name", ["code", "state", "iss", "error"])
    def test_a_member_that_comes_twice_is_refused(self, name):
        with pytest.raises(SignInFailed, match="twice"):
            make().code_of(f"{came_back(error='x')}&{name}=other", ISSUER)

    def test_a_no_is_told_as_one(self):
        with pytest.raises(SignInFailed, match="denied"):
            make().code_of(came_back(error="access_denied", code=""), ISSUER)

    def test_a_refusal_names_the_fix_on_one_line(self):
        with pytest.raises(SignInFailed, match="check --scope") as caught:
            make().code_of(came_back(error="invalid_scope", error_description="no\nsuch scope"), ISSUER)
        assert "\n" not in str(caught.value)

    def test_an_answer_without_a_code_is_none(self):
        with pytest.raises(SignInFailed, match="without a code"):
            make().code_of(came_back(code=""), ISSUER)

    @pytest.mark.parametrize(
        ("pasted", "query"),
        [
            (f"  {REDIRECT}?code=a&state=b \n", "code=a&state=b"),
            (f"'{REDIRECT}?code=a&state=b#x'", "code=a&state=b"),
            ("code=a&state=b", "code=a&state=b"),
        ],
    )
    def test_a_pasted_address_is_read_with_its_wrapping(self, pasted, query):
        assert query_of(pasted) == query

    @pytest.mark.parametrize("pasted", ["", "hello", REDIRECT, f"{REDIRECT}?"])
    def test_what_is_no_such_address_is_told(self, pasted):
        with pytest.raises(SignInFailed, match="copy all"):
            query_of(pasted)


DOCUMENT = {
    "issuer": ISSUER,
    "authorization_endpoint": "https://login.test/authorize",
    "token_endpoint": f"{ISSUER}/oauth/token",
    "code_challenge_methods_supported": ["S256"],
    "authorization_response_iss_parameter_supported": True,
}


class TestEndpoints:
    def find(self, answers, base_url=ISSUER, auth_url=None):
        asked = []

        def answer(request):
            asked.append(request.url.path)
            found = answers.get(request.url.path, (404, {"error": "not_found"}))
            return httpx.Response(found[0], json=found[1])

        with Connection(base_url, transport=httpx.MockTransport(answer)) as connection:
            return find_endpoints(connection, auth_url), asked

    def test_a_service_says_itself_where_its_endpoints_are(self):
        found, asked = self.find({paths.OAUTH_METADATA: (200, DOCUMENT)})
        assert found == Endpoints("https://login.test/authorize", f"{ISSUER}/oauth/token", ISSUER, sends_iss=True)
        assert asked == [paths.OAUTH_METADATA]

    def test_with_a_path_the_document_lies_between_host_and_path_or_below(self):
        document = {**DOCUMENT, "issuer": f"{ISSUER}/v1", "token_endpoint": f"{ISSUER}/v1/t"}
        for place in (f"{paths.OAUTH_METADATA}/v1", f"/v1{paths.OAUTH_METADATA}"):
            found, _ = self.find({place: (200, document)}, f"{ISSUER}/v1")
            assert found.token == f"{ISSUER}/v1/t"

    @pytest.mark.parametrize("status", [401, 404, 405])
    def test_a_plain_server_has_the_specifications_paths(self, status):
        answers = {paths.OAUTH_METADATA: (status, {"error": "x"})}
        found, _ = self.find(answers)
        assert found == Endpoints(f"{ISSUER}/partner-oauth-authorize")
        found, _ = self.find(answers, auth_url="https://login.test/")
        assert found.authorize == "https://login.test/partner-oauth-authorize"

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
    def test_a_document_that_leads_astray_is_refused(self, changes, words):
        with pytest.raises(ConfigurationError, match=words):
            self.find({paths.OAUTH_METADATA: (200, {**DOCUMENT, **changes})})

    def test_a_failing_service_is_not_taken_for_a_plain_one(self):
        with pytest.raises(ServerFault):
            self.find({paths.OAUTH_METADATA: (503, {"error": "down"})})
        with pytest.raises(UnexpectedAnswer):
            self.find({paths.OAUTH_METADATA: (302, {})})

    def test_a_sign_in_page_in_the_clear_is_for_loopback_only(self):
        with pytest.raises(ConfigurationError, match="--auth-url https"):
            self.find({}, "http://service.test")
        assert self.find({}, "http://127.0.0.1:8080")[0].authorize == "http://127.0.0.1:8080/partner-oauth-authorize"
