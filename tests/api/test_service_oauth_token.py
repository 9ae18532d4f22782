"""The token endpoint: every answer of it, by raw HTTP."""

from __future__ import annotations

import pytest

from simulator.service.oauth.tokens import CODE_S
from simulator.wire import paths
from tests.api.oauth import CALLBACK, EMAIL, PASSWORD, Partner, basic, partner, refused
from tests.api.test_service_golden import golden
from tests.support.partner import CHALLENGE, VERIFIER
from tests.support.service_running import running

SCOPES = ["manufacturer:products", "manufacturer:devices"]
FIELDS = ("grant_type", "code", "redirect_uri", "client_id", "client_secret", "code_verifier", "refresh_token", "scope")


@pytest.fixture(scope="module")
def shared():
    with running() as bench:
        bench.add_user(EMAIL, PASSWORD, user_id="user-0001")
        yield bench


@pytest.fixture(scope="module")
def confidential(shared) -> Partner:
    return partner(shared, scopes=SCOPES)


@pytest.fixture(scope="module")
def public(shared) -> Partner:
    return partner(shared, public=True)


@pytest.fixture(params=["confidential", "public"])
def either(request, confidential, public) -> Partner:
    return confidential if request.param == "confidential" else public


def test_a_code_becomes_the_golden_token_response_and_the_token_opens_the_api(either):
    answer = either.exchange(either.code(scope="manufacturer:products"))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["pragma"] == "no-cache"
    made, expected = answer.json(), golden("token_answer")
    assert set(made) == set(expected)
    secret = {"access_token", "refresh_token"}
    assert {k: v for k, v in made.items() if k not in secret} == {k: v for k, v in expected.items() if k not in secret}
    assert all(len(made[name]) >= 43 for name in secret)
    assert either.call(made["access_token"]).status_code == 200
    outside = either.call(made["access_token"], "/devices")
    assert (outside.status_code, outside.json()["error"]) == (403, "insufficient_scope")


def test_json_and_forms_say_the_same(either):
    for grant in ("code", "refresh_token"):
        if grant == "code":
            proof = {"code_verifier": VERIFIER} if either.is_public else {}
            body = {"grant_type": "authorization_code", "code": either.code(), "redirect_uri": CALLBACK, **proof}
        else:
            body = {"grant_type": "refresh_token", "refresh_token": either.tokens()["refresh_token"]}
        answer = either.post(paths.OAUTH_TOKEN, json={**either.form(**body), "scope": None, "unknown": {"x": 1}})
        assert answer.status_code == 200, answer.text


def test_the_secret_may_come_by_basic_instead(confidential):
    fields = {"grant_type": "authorization_code", "redirect_uri": CALLBACK}
    header = basic(confidential.client_id, confidential.secret)
    answer = confidential.post(paths.OAUTH_TOKEN, data={**fields, "code": confidential.code()}, headers=header)
    assert answer.status_code == 200
    with_id = {**fields, "code": confidential.code(), "client_id": confidential.client_id}
    assert confidential.post(paths.OAUTH_TOKEN, data=with_id, headers=header).status_code == 200


def test_basic_is_percent_decoded(shared):
    made = partner(shared, client_secret="a+b%20c%d:e&f=g/" + "x" * 32)
    answer = made.post(
        paths.OAUTH_TOKEN,
        data={"grant_type": "authorization_code", "redirect_uri": CALLBACK, "code": made.code()},
        headers=basic(made.client_id, made.secret),
    )
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, "invalid_request"),
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"grant_type": "AUTHORIZATION_CODE"}, "unsupported_grant_type"),
        ({"grant_type": "authorization_code"}, "invalid_request"),
        ({"grant_type": "authorization_code", "code": "x"}, "invalid_request"),
        ({"grant_type": "authorization_code", "redirect_uri": CALLBACK}, "invalid_request"),
        ({"grant_type": "authorization_code", "code": "", "redirect_uri": CALLBACK}, "invalid_request"),
        ({"grant_type": "refresh_token"}, "invalid_request"),
    ],
)
def test_what_is_missing_or_unknown_is_named(confidential, fields, error):
    refused(confidential.post(paths.OAUTH_TOKEN, data=confidential.form(**fields)), 400, error)
    refused(confidential.post(paths.OAUTH_TOKEN, json=confidential.form(**fields)), 400, error)


def test_a_client_without_the_grant_type_is_told_so_and_gets_no_refresh_token(shared):
    made = partner(shared, grant_types=["authorization_code"])
    tokens = made.tokens()
    assert "refresh_token" not in tokens
    assert made.call(tokens["access_token"]).status_code == 200
    refused(made.refresh("any"), 400, "unauthorized_client")


def test_a_wrong_missing_or_superfluous_secret_is_401_and_leaves_the_code_alone(confidential, public):
    code = confidential.code()
    for secret in ("wrong", "", None, confidential.secret + "x", confidential.secret[:-1], "\0", "ü"):
        answer = confidential.exchange(code, client_secret=secret)
        refused(answer, 401, "invalid_client")
        assert "www-authenticate" not in answer.headers
    for client_id in ("nobody", "\0", "", None, "x" * 10_000):
        refused(confidential.exchange(code, client_id=client_id), 401, "invalid_client")
    assert confidential.exchange(code).status_code == 200
    of_public = public.code()
    refused(public.exchange(of_public, client_secret="superfluous"), 401, "invalid_client")
    refused(public.refresh("any", client_secret="superfluous"), 401, "invalid_client")
    assert public.exchange(of_public, client_secret="").status_code == 200  # an empty one is none


def test_a_wrong_secret_by_basic_is_401_with_a_challenge(confidential, public):
    form = {"grant_type": "authorization_code", "code": "x", "redirect_uri": CALLBACK, "code_verifier": VERIFIER}
    headers = [
        basic(confidential.client_id, "wrong"),
        basic(confidential.client_id, ""),
        basic("nobody", "wrong"),
        basic(public.client_id, "superfluous"),
        {"authorization": "Basic"},
        {"authorization": "Basic !!!"},
        {"authorization": "Basic bm8gY29sb24="},
        {"authorization": "Basic Og=="},
        {"authorization": "basic //8="},
        {"authorization": "Basic JUZGOiVGRg=="},  # %FF:%FF
    ]
    for header in headers:
        answer = confidential.post(paths.OAUTH_TOKEN, data=form, headers=header)
        refused(answer, 401, "invalid_client")
        assert answer.headers["www-authenticate"].startswith('Basic realm="')


def test_both_ways_at_once_are_400(confidential):
    header = basic(confidential.client_id, confidential.secret)
    fields = {"grant_type": "authorization_code", "code": "x", "redirect_uri": CALLBACK}
    both = confidential.post(paths.OAUTH_TOKEN, data=confidential.form(**fields), headers=header)
    refused(both, 400, "invalid_request")
    other = confidential.post(paths.OAUTH_TOKEN, data={**fields, "client_id": "another"}, headers=header)
    refused(other, 400, "invalid_request")


@pytest.mark.parametrize("name", FIELDS)
def test_a_repeated_parameter_is_400(confidential, name):
    pairs = [*confidential.form(grant_type="authorization_code", code="x", redirect_uri=CALLBACK).items()]
    pairs += [(name, "again"), (name, "and again")]
    form = "&".join(f"{k}={v}" for k, v in pairs)
    headers = {"content-type": "application/x-www-form-urlencoded"}
    refused(confidential.post(paths.OAUTH_TOKEN, content=form, headers=headers), 400, "invalid_request")
    twice = f'{{"grant_type": "refresh_token", "{name}": "a", "{name}": "b"}}'
    refused(
        confidential.post(paths.OAUTH_TOKEN, content=twice, headers={"content-type": "application/json"}),
        400,
        "invalid_request",
    )


@pytest.mark.parametrize("body", ["", "{", "[]", "null", '"x"', '{"grant_type": 7}', '{"code": ["x"]}', "grant_type=x"])
def test_json_that_is_no_object_of_texts_is_400(confidential, body):
    answer = confidential.post(paths.OAUTH_TOKEN, content=body, headers={"content-type": "application/json"})
    refused(answer, 400, "invalid_request")


@pytest.mark.parametrize("body", [b"%FF=1", b"grant_type=%FF", b"\xff=1", b"&".join(b"a%d=1" % n for n in range(60))])
def test_a_form_that_is_none_is_400(confidential, body):
    headers = {"content-type": "application/x-www-form-urlencoded"}
    refused(confidential.post(paths.OAUTH_TOKEN, content=body, headers=headers), 400, "invalid_request")


def test_another_media_type_is_415_and_too_much_is_413(confidential):
    refused(
        confidential.post(paths.OAUTH_TOKEN, content="<x/>", headers={"content-type": "application/xml"}),
        415,
        "unsupported_media_type",
    )
    form = {"content-type": "application/x-www-form-urlencoded"}
    refused(
        confidential.post(paths.OAUTH_TOKEN, content=b"a=" + b"x" * 300_000, headers=form), 413, "payload_too_large"
    )


def test_another_method_is_405(shared):
    for path in (paths.OAUTH_TOKEN, paths.OAUTH_REVOKE):
        answer = shared.http.get(path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_a_code_that_does_not_fit_is_400_invalid_grant_and_stays_good_for_its_owner(shared, either):
    other = partner(shared, public=either.is_public)
    code = either.code()
    refused(either.exchange("unknown"), 400, "invalid_grant")
    refused(other.exchange(code), 400, "invalid_grant")
    refused(either.exchange(code, redirect_uri=CALLBACK + "/"), 400, "invalid_grant")
    if either.is_public:
        refused(either.exchange(code, code_verifier=None), 400, "invalid_request")
        for verifier in ("x" * 43, VERIFIER[:-1], VERIFIER + "x", CHALLENGE, VERIFIER * 4, "ü" * 43):
            refused(either.exchange(code, code_verifier=verifier), 400, "invalid_grant")
    assert either.exchange(code).status_code == 200


def test_a_confidential_client_may_use_pkce_too_and_is_held_to_it(confidential):
    with_pkce = {"code_challenge": CHALLENGE, "code_challenge_method": "S256"}
    code = confidential.code(**with_pkce)
    refused(confidential.exchange(code), 400, "invalid_grant")
    refused(confidential.exchange(code, code_verifier="x" * 43), 400, "invalid_grant")
    assert confidential.exchange(code, code_verifier=VERIFIER).status_code == 200
    # RFC 9700, section 4.8.2: a verifier without a challenge means that somebody took the challenge away.
    refused(confidential.exchange(confidential.code(), code_verifier=VERIFIER), 400, "invalid_grant")


def test_a_code_is_good_for_five_minutes_of_the_services_clock():
    with running() as bench:
        bench.add_user(EMAIL, PASSWORD)
        made = partner(bench)
        late, in_time = made.code(), made.code()
        bench.clock.advance(CODE_S - 0.001)
        assert CODE_S == 300
        assert made.exchange(in_time).status_code == 200
        bench.clock.advance(0.001)
        refused(made.exchange(late), 400, "invalid_grant")


def test_a_code_presented_again_revokes_every_token_of_its_grant(either):
    code = either.code()
    first = either.exchange(code).json()
    second = either.refresh(first["refresh_token"]).json()
    others = either.tokens()
    assert either.call(second["access_token"]).status_code == 200
    # What else comes with it makes no difference: whoever has a used code is one too many.
    refused(either.exchange(code, redirect_uri=CALLBACK + "/"), 400, "invalid_grant")
    gone = either.call(second["access_token"])
    assert (gone.status_code, gone.json()["error"]) == (401, "invalid_token")
    assert 'error="invalid_token"' in gone.headers["www-authenticate"]
    refused(either.refresh(second["refresh_token"]), 400, "invalid_grant")
    assert either.call(others["access_token"]).status_code == 200  # another grant of the same user and client


def test_a_used_code_of_another_client_does_nothing(shared, either):
    code = either.code()
    tokens = either.exchange(code).json()
    refused(partner(shared, public=either.is_public).exchange(code), 400, "invalid_grant")
    assert either.call(tokens["access_token"]).status_code == 200


def test_a_refresh_rotates_both_tokens(either):
    first = either.tokens()
    answer = either.refresh(first["refresh_token"])
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    second = answer.json()
    assert set(second) == set(first)
    assert {second["access_token"], second["refresh_token"]}.isdisjoint(first.values())
    assert second["scope"] == first["scope"]
    assert either.call(second["access_token"]).status_code == 200
    assert either.call(first["access_token"]).json()["error"] == "invalid_token"


def test_a_rotated_refresh_token_presented_again_revokes_the_whole_family(either):
    first = either.tokens()
    second = either.refresh(first["refresh_token"]).json()
    third = either.refresh(second["refresh_token"]).json()
    refused(either.refresh(first["refresh_token"]), 400, "invalid_grant")
    assert either.call(third["access_token"]).json()["error"] == "invalid_token"
    refused(either.refresh(third["refresh_token"]), 400, "invalid_grant")


def test_a_refresh_token_is_its_own_clients_only(shared, either):
    tokens = either.tokens()
    other = partner(shared, public=either.is_public)
    for token in (tokens["refresh_token"], tokens["access_token"], "unknown"):
        refused(other.refresh(token), 400, "invalid_grant")
    refused(either.refresh(tokens["access_token"]), 400, "invalid_grant")
    assert either.refresh(tokens["refresh_token"]).status_code == 200


def test_a_refresh_may_ask_for_less_and_never_for_more(either):
    token = either.tokens()["refresh_token"]
    for scope in ("manufacturer:rules", "manufacturer:products manufacturer:rules", " ", "x\0", "manufacturer:*"):
        refused(either.refresh(token, scope=scope), 400, "invalid_scope")
    less = either.refresh(token, scope="manufacturer:devices").json()
    assert less["scope"] == "manufacturer:devices"
    assert either.call(less["access_token"], "/devices").status_code == 200
    assert either.call(less["access_token"]).status_code == 403
    again = either.refresh(less["refresh_token"]).json()  # the grant itself still holds all of it
    assert again["scope"] == "manufacturer:products manufacturer:devices"


def test_credentials_of_the_api_mean_nothing_here(shared, confidential):
    keys = {"x-api-key": "mk_wrong", "x-secret-key": "msk_wrong"}
    fields = {"grant_type": "authorization_code", "code": confidential.code(), "redirect_uri": CALLBACK}
    assert confidential.post(paths.OAUTH_TOKEN, data=confidential.form(**fields), headers=keys).status_code == 200
    in_query = f"{paths.OAUTH_TOKEN}?client_id={confidential.client_id}&client_secret={confidential.secret}"
    refused(confidential.post(in_query, data={**fields, "code": confidential.code()}), 401, "invalid_client")


def test_tokens_of_a_sign_in_are_refreshed_with_its_own_public_client(shared):
    signed_in = shared.http.post("/auth/signin", json={"email": EMAIL, "password": PASSWORD}).json()
    its_own = Partner(shared, "sign-in", None)
    second = its_own.refresh(signed_in["refresh_token"])
    assert second.status_code == 200
    assert its_own.call(second.json()["access_token"]).status_code == 200
    refused(its_own.refresh(signed_in["refresh_token"]), 400, "invalid_grant")
    assert its_own.call(second.json()["access_token"]).status_code == 401
    refused(its_own.exchange("any", code_verifier=VERIFIER), 400, "unauthorized_client")
