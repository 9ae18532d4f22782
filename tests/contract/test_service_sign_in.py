"""Sign-in, and what its token opens."""

from __future__ import annotations

import httpx
import pytest

from agent.errors import ConfigurationError, Unauthorized
from agent.wire.auth import BearerToken, KeyPair
from agent.wire.secret import Secret
from simulator.service.errors import Conflict
from simulator.service.storage import grants as stored_grants
from simulator.service.storage import people
from simulator.service.storage import tokens as stored_tokens
from simulator.service.storage.tables import grants, tokens
from simulator.wire.client import ServiceClient
from tests.contract.test_service_golden import golden
from tests.service_running import Bench, client, running

EMAIL = "person@example.com"
PASSWORD = "made-up-password"


@pytest.fixture(scope="module")
def shared():
    with running() as bench:
        bench.service.add_user(EMAIL, PASSWORD)
        yield bench


@pytest.fixture
def bench():
    with running() as bench:
        bench.service.add_user(EMAIL, PASSWORD, user_id="user-0001")
        yield bench


def _sign_in(http: httpx.Client, email: str = EMAIL, password: str = PASSWORD) -> httpx.Response:
    return http.post("/auth/signin", json={"email": email, "password": password})


def _token(bench: Bench, **headers: str) -> httpx.Client:
    token = _sign_in(bench.http).json()["access_token"]
    return _bare(bench, authorization=f"Bearer {token}", **headers)


def _bare(bench: Bench, **headers: str) -> httpx.Client:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Client(base_url=bench.service.base_url, headers=given, trust_env=False, timeout=120)


def _rows(bench, table):
    return bench.service._service.read_now(lambda c: c.execute(table.select()).all())


def test_signing_in_answers_the_golden_body(bench):
    answer = bench.http.post("/auth/signin", json=golden("sign_in_request"))
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    body, expected = answer.json(), golden("sign_in_answer")
    assert set(body) == set(expected)
    made = {"access_token", "refresh_token", "scope"}
    assert {name: body[name] for name in body.keys() - made} == {name: expected[name] for name in body.keys() - made}
    assert expected["scope"] in body["scope"].split()
    again = _sign_in(bench.http).json()
    assert len({answer[kind] for answer in (body, again) for kind in ("access_token", "refresh_token")}) == 4


def test_a_wrong_email_and_a_wrong_password_look_the_same(bench):
    other = bench.service.add_account("other")
    bench.service.add_user("theirs@example.com", PASSWORD, api_key=other.api_key)
    pairs = [
        (EMAIL, "wrong"),
        (EMAIL, ""),
        ("nobody@example.com", PASSWORD),
        ("theirs@example.com", PASSWORD),  # of the account with the other keys
        ("' OR 1=1 --", PASSWORD),
        (EMAIL, PASSWORD + " "),
        ("x" * 100_000, "y" * 100_000),
    ]
    answers = [_sign_in(bench.http, *pair) for pair in pairs]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.text for answer in answers}) == 1
    assert answers[0].json()["error"] == "invalid_credentials"
    assert "www-authenticate" in answers[0].headers
    assert _rows(bench, tokens) == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"email": EMAIL},
        {"email": EMAIL, "password": 7},
        {"email": EMAIL, "password": None},
        {"email": "", "password": "x"},
        {"email": [EMAIL], "password": "x"},
        {"email": EMAIL, "password": "x", "remember": True},
        [],
    ],
)
def test_a_body_that_is_no_sign_in_is_400(shared, body):
    answer = shared.http.post("/auth/signin", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"] == "validation_error"


def test_text_that_is_no_clean_json_is_400(shared):
    for raw in ('{"email":"a","password":"\\u0000"}', '{"email":"a","password":"\\ud800"}', "{", ""):
        answer = shared.http.post("/auth/signin", content=raw, headers={"content-type": "application/json"})
        assert answer.status_code == 400


def test_the_email_is_one_in_any_case_and_once_on_the_service(bench):
    assert _sign_in(bench.http, " Person@EXAMPLE.com ").status_code == 200
    other = bench.service.add_account("other")
    for api_key in (None, other.api_key):
        with pytest.raises(Conflict, match="user_exists"):
            bench.service.add_user("PERSON@example.com", "x", api_key=api_key)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"email": "nobody", "password": "x"}, "no email address"),
        ({"email": "a@b\0", "password": "x"}, "no email address"),
        ({"email": "a@b", "password": ""}, "password must have"),
        ({"email": "a@b", "password": Secret("")}, "password must have"),
        ({"email": "a@b", "password": "x", "user_id": "\0"}, "user_id must have"),
        ({"email": "a@b", "password": "x", "api_key": "mk_none"}, "no account with the key"),
    ],
)
def test_a_person_that_cannot_be_is_refused_with_a_sentence(shared, settings, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        shared.service.add_user(**settings)


def test_a_person_is_a_user_of_the_account_before_the_first_device(bench):
    assert bench.http.get("/onboarding/user/user-0001/devices").json()["data"] == []


def test_the_token_opens_the_api_of_its_account_for_an_hour_of_the_services_clock(bench):
    product_id = bench.product()
    other = bench.service.add_account("other")
    with _token(bench) as http, client(bench.service, other.api_key, other.secret_key.reveal()) as theirs:
        theirs.post("/products", json={"name": "theirs"})
        assert [product["product_id"] for product in http.get("/products").json()["data"]] == [product_id]
        device_id = bench.device(product_id)
        for method, path, body, status in (
            ("PUT", f"/products/{product_id}/dashboard", {"name": "x"}, 200),
            ("POST", f"/products/{product_id}/database/schemas", {"name": "x"}, 201),
            ("GET", "/database/runtime-data", None, 200),
            ("POST", "/sensor-data", {"device_id": device_id, "sensor_data": {"t": 1}}, 201),
            ("GET", "/devices", None, 200),
            ("HEAD", "/devices", None, 200),
            ("POST", "/commands/send", {"device_id": device_id, "command_payload": {}}, 202),
            ("DELETE", f"/onboarding/device/{device_id}", None, 204),
            ("GET", "/nowhere", None, 404),
            ("PATCH", "/products", None, 405),
            ("POST", "/auth/signin", {"email": EMAIL, "password": PASSWORD}, 403),
        ):
            assert http.request(method, path, json=body).status_code == status, (method, path)
        bench.clock.advance(3599.999)
        assert http.get("/products").status_code == 200
        bench.clock.advance(0.001)
        _expect_invalid(http.get("/products"))


def _expect_invalid(answer):
    assert answer.status_code == 401
    assert answer.json() == golden("error_401_invalid_token")
    assert answer.headers["www-authenticate"].startswith("Bearer ")
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]


def test_a_token_that_is_none_is_401_invalid_token(bench):
    made = _sign_in(bench.http).json()
    for value in (
        made["refresh_token"],
        made["access_token"][:-1],
        made["access_token"] + " x",
        "",
        "' OR 1=1 --",
        "\xff",
        "x" * 8_000,
    ):
        with _bare(bench) as http:
            _expect_invalid(
                http.get(
                    "/products",
                    headers={"authorization": b" ".join([b"Bearer", *([value.encode("latin-1")] if value else [])])},
                )
            )


def test_both_keys_win_and_one_alone_is_401(bench):
    keys = {"x-api-key": bench.service.api_key, "x-secret-key": bench.service.secret_key.reveal()}
    with _token(bench) as http:
        assert http.get("/products", headers={**keys, "authorization": "Bearer none"}).status_code == 200
        wrong = http.get("/products", headers={**keys, "x-secret-key": "msk_wrong"})
        assert (wrong.status_code, wrong.json()["error"]) == (401, "invalid_credentials")
        for name, value in keys.items():
            answer = http.get("/products", headers={name: value})
            assert (answer.status_code, answer.json()["error"]) == (401, "missing_credentials")
            assert answer.headers["www-authenticate"].startswith("ApiKey ")
    with _bare(bench, authorization="Basic YTpi") as http:
        assert http.get("/products").json()["error"] == "missing_credentials"


def test_the_scheme_is_read_in_any_case(bench):
    token = _sign_in(bench.http).json()["access_token"]
    with _bare(bench, authorization=f"bEARER  {token}") as http:
        assert http.get("/products").status_code == 200


def test_a_token_that_lacks_the_scope_is_403_and_says_which(bench):
    service = bench.service._service
    person = service.read_now(lambda c: people.find(c, 1, EMAIL))
    made = service.writer.call(
        lambda c: stored_grants.open_grant(c, person, "manufacturer:data", "grant", bench.clock.now_ms())
    )
    with _bare(bench, authorization=f"Bearer {made.access_token.reveal()}") as http:
        assert http.get("/sensor-data").status_code == 200
        answer = http.get("/products")
        assert answer.status_code == 403
        assert answer.json() == golden("error_403_insufficient_scope")
        assert 'error="insufficient_scope", scope="manufacturer:products"' in answer.headers["www-authenticate"]


def test_the_quota_counts_for_the_tokens_user_and_invalid_tokens_cost_nobody_anything():
    with running(rate_limit=4) as bench:
        bench.service.add_user(EMAIL, PASSWORD)
        with _token(bench) as first, _token(bench) as second, _bare(bench, authorization="Bearer none") as none:
            statuses = [http.get("/products").status_code for http in (first, second, none, first, second, first)]
            assert statuses == [200, 200, 401, 200, 200, 429]
            assert bench.http.get("/products").status_code == 200  # the key pair has a count of its own


def test_neither_tokens_nor_passwords_are_stored_in_clear(bench):
    answer = bench.http.post(
        "/auth/signin", json={"email": EMAIL, "password": PASSWORD}, headers={"idempotency-key": "once"}
    ).json()
    again = bench.http.post(
        "/auth/signin", json={"email": EMAIL, "password": PASSWORD}, headers={"idempotency-key": "once"}
    ).json()
    assert answer["access_token"] != again["access_token"]  # no answer with a token is kept to be replayed
    stored = repr([_rows(bench, table) for table in tokens.metadata.sorted_tables])
    assert "scrypt$" in stored
    for secret in (answer["access_token"], answer["refresh_token"], PASSWORD):
        assert secret not in stored


def test_tokens_that_are_over_are_deleted_and_their_grants_with_the_last(bench):
    _sign_in(bench.http)
    service = bench.service._service
    prune = lambda: service.writer.call(lambda c: stored_tokens.prune(c, bench.clock.now_ms()))  # noqa: E731
    bench.clock.advance(3600)
    assert prune() == 1
    assert len(_rows(bench, tokens)) == len(_rows(bench, grants)) == 1
    bench.clock.advance(30 * 86_400)
    assert prune() == 1
    assert _rows(bench, tokens) == _rows(bench, grants) == []


def test_the_client_signs_in_and_goes_on_with_its_token(bench):
    with ServiceClient(bench.service.base_url, KeyPair(bench.service.api_key, bench.service.secret_key)) as service:
        with pytest.raises(Unauthorized):
            service.sign_in(EMAIL, Secret("wrong"))
        answer = service.sign_in(EMAIL, Secret(PASSWORD))
    assert answer.user == {"user_id": "user-0001", "email": EMAIL}
    product_id = bench.product()
    with ServiceClient(bench.service.base_url, BearerToken(answer.access_token)) as service:
        assert [product.product_id for product in service.products()] == [product_id]
